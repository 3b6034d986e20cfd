//! One connection to one server, from its address to the reply: every step has a deadline.

mod address;
mod announced;
mod decoder;
mod failure;
mod foreign;
mod open;
mod server_text;
mod verdict;
mod wire;

pub(crate) use fairlock_net::Timeouts;

pub(crate) use address::{Address, MustBe, SERVER_PORT};
pub(crate) use announced::AddressMap;
pub(crate) use failure::Failure;
pub(crate) use foreign::told_apart;
pub(crate) use open::{Role, open, open_and_ask};
pub(crate) use verdict::{Meaning, REPLICA};
pub(crate) use wire::Connection;
