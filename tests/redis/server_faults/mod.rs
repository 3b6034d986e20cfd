//! What other users of the server can do to a lock, and a restart of the server with all its data.

mod hostile;
mod looks;
#[cfg(feature = "night")]
mod servers;
mod support;
