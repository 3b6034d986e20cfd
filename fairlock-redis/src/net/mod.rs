//! The connections to the servers: commands go out over shared connections, messages come in over one connection for each listener.
//!
//! ```text
//! topology      which server keeps a key: one server, the master that sentinels name, a node of a cluster
//! subscription  one connection and one thread that listen on channels
//! commands      a pool of connections to one server
//! connection    one connection: address, login, replies, and how it fails; fairlock-net carries it
//! ```
//!
//! Each room imports only rooms below it, and nothing else of the crate: nothing in here knows a lock. Only this folder knows
//! sockets and broken links. The rest of the crate sees [`Target`], which connects, and its result: [`Servers`], with `call` (one
//! key), `call_all` (many), `each` (every server) and `listen`, and with [`Failure`]s.

mod commands;
mod connection;
mod settings;
#[cfg_attr(not(feature = "redisson"), allow(dead_code, reason = "only Redisson's channels come and go"))]
mod subscription;
mod target;
#[cfg(test)]
#[cfg_attr(
    not(feature = "night"),
    allow(dead_code, reason = "most of what is tested in real time is tested at night")
)]
pub(crate) mod test_server;
mod topology;

pub(crate) use commands::{Listeners, Pool, Refusal, attempt_length, attempt_ttl, dry_run};
pub(crate) use connection::{
    Address, AddressMap, Failure, Meaning, Timeouts, field, items, micros, number, text, unintelligible,
};
pub(crate) use settings::{Greeting, MajorityTerms, Settings, in_range, invalid};
pub(crate) use subscription::{Event, Hears, OnEvent, Subscriber};
pub(crate) use target::Target;
pub(crate) use topology::{
    Arrangement, Order, Route, SentinelAnswer, ServerFailure, Servers, Surveyed, slot_of, tag_of_slot,
};
