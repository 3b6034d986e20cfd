//! The PostgreSQL store against real servers and their faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod disk;
mod guide;
mod held;
mod histories;
mod hosts;
mod load;
mod network;
mod processes;
mod restarts;
mod sessions;
mod standby;
mod support;
