//! One connection to one server, from its address to the reply: every step has a deadline.

mod address;
mod backoff;
mod decoder;
mod failure;
mod open;
mod resolver;
mod secrets;
mod socket;
#[cfg(feature = "tls-rustls")]
mod tls;
mod verdict;
mod wire;

pub(crate) use address::{Address, SERVER_PORT, bare_delimiter};
pub(crate) use backoff::Backoff;
pub(crate) use failure::Failure;
pub(crate) use open::{Timeouts, open, open_and_ask};
pub(crate) use verdict::{Meaning, REPLICA};
pub(crate) use wire::Connection;
