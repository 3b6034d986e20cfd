//! What holds for the files of the repository: the tree, the guide, the sizes; and that checks find what is left.

#[cfg(feature = "servers")]
mod fixtures;
mod floors;
mod guide;
#[cfg(feature = "servers")]
mod guide_on_redis;
mod lock_files;
mod sizes;
mod surface;
mod threads;
