//! Redis backend of fairlock: locks on a server that any number of machines reach, shared with Java services that use
//! Redisson.
//!
//! ```text
//!  core ──► backend ──► disciplines ──► run ──► net::topology ──► net::commands ──► scripts/*.lua
//!                                                                                    │ PUBLISH
//!  core's sink ◄── wake_ups ◄── net::subscription (one thread a client) ◄────────────┘
//! ```
//!
//! The lock is Redisson's hash under the bare name of the lock, so all clients of fairlock and Redisson exclude each
//! other. `keys.rs` has the table of all keys and channels, `scripts/README.md` the rules of the Lua.

mod backend;
mod builder;
mod checks;
mod client_message;
mod disciplines;
mod doctor;
mod durability;
mod hash_slot;
mod inner;
mod kept_keys;
mod key_at_fault;
mod keys;
mod locks;
mod net;
mod renewal;
mod reply;
mod resp;
mod run;
mod scripts;
mod settings;
mod two_lines;
mod wake_ups;

pub use builder::RedisBuilder;
pub use doctor::{Finding, Verdict};
pub use durability::Durability;
pub use inner::RedisBackend;
pub use settings::Discipline;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
