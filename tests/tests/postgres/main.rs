//! The PostgreSQL store against real servers and their faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod guide;
mod held;
mod network;
mod standby;
mod support;
