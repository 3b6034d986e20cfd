//! Real Redisson and this library, on one server and one lock name: `tests/java/interop/run`.
//!
//! Each test starts a server, a JVM with one Redisson client ([`java`]), and our clients.
//! `tests/java/interop/README.md` lists the tests and Redisson's own mistakes.
#![forbid(unsafe_code)]

mod counts;
mod exclusion;
mod force;
mod java;
mod kills;
mod leases;
mod mixed;
mod order;
mod other_kinds;
mod quirks;
mod traces;
mod world;
