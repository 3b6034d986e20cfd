//! The memory backend, seen through the `Backend` trait, on a clock that the tests move.

#[cfg(test)]
mod crowd;
#[cfg(test)]
mod fair;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod holds;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod repeats;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod shared_ends;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tickets;
#[cfg(test)]
mod walk;
