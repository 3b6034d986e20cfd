//! The PostgreSQL store against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod encodings;
mod guide;
mod held;
mod histories;
mod settings;
mod standby;
