//! The memory backend, seen through the `Backend` trait, on a clock that the tests move.

#[cfg(test)]
mod fair;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod holds;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod repeats;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tickets;
#[cfg(test)]
mod walk;
