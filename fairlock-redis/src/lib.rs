//! Redis backend of fairlock: locks on a server that any number of machines reach, shared with Java services that use
//! Redisson.
//!
//! ```text
//!                    ┌─► hand_off ──► durable ─┐
//!  core ──► backend ─┤                         ├─► script ──► net ──► scripts/*.lua
//!                    └─► redisson ─────────────┘                         │ PUBLISH
//!  core's sink ◄── wake_ups ◄── net (one thread a client) ◄──────────────┘
//! ```
//!
//! | room | what |
//! | --- | --- |
//! | `builder`, `doctor`, `locks`, `backend` | what a program calls |
//! | `hand_off`, `redisson` | the rules of a lock: ours, for any capacity, and Redisson's (a feature) |
//! | `wake_ups` | the clients' subscriptions, and what a message means |
//! | `durable` | around scripts and replies: what survives a server that forgets |
//! | `script` | keys, arguments, the Lua, replies |
//! | `net` | connections; knows no lock, and nothing of this crate |
//!
//! Each room imports only what stands below it. The lock is Redisson's hash under the bare name of the lock, so all clients of fairlock
//! and Redisson exclude each other. `script/scripts.rs` has the table of all keys and channels, `scripts/README.md` the rules of the
//! Lua.

mod backend;
mod builder;
#[cfg(test)]
mod damaged_replies_tests;
mod doctor;
mod durable;
#[cfg(test)]
mod fake_backend;
mod hand_off;
mod locks;
mod net;
#[cfg(feature = "redisson")]
mod redisson;
mod script;
mod wake_ups;

pub use backend::RedisBackend;
pub use builder::{Discipline, RedisBuilder};
pub use durable::Durability;
#[cfg(feature = "rustls-0_23")]
pub use fairlock_net::rustls;

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "redisson"))]
#[doc = include_str!("../README.md")]
struct Readme;
