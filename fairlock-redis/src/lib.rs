//! Redis backend of fairlock: locks on a server that any number of machines reach, shared with Java services that
//! use Redisson if they are there.
//!
//! ```text
//!  core ──► backend ──► fair, hand_off, plain, hold ──► run ──► net::Topology ──► net::Pool ──► scripts/*.lua
//!                                                                                      │ PUBLISH
//!  core's sink ◄── subscribers (routes) ◄── net::Subscriber (one thread a client) ◄──────────────────┘
//! ```
//!
//! The lock is Redisson's hash under the bare name of the lock, so every fairlock client and every Redisson client
//! exclude each other. `keys.rs` has the table of all keys and channels, `scripts/README.md` the rules of the Lua.

mod answers;
mod backend;
mod builder;
mod doctor;
mod ears;
mod fair;
mod hand_off;
mod hold;
mod inspect;
mod keys;
mod locks;
mod net;
mod plain;
mod replicas;
mod reply;
mod run;
mod scripts;
mod text;
mod two_lines;

pub use backend::RedisBackend;
pub use builder::{Discipline, RedisBuilder};
pub use doctor::{Finding, Verdict};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
