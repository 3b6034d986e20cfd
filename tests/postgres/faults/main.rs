//! The PostgreSQL store when servers, networks and processes fail, and the ways to reach a server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod disk;
mod distance;
mod hosts;
mod load;
mod messages;
mod network;
mod processes;
mod restarts;
mod sessions;
mod support;
mod tls;
