//! What the watchdog does and logs while the server does not answer, on a clock that the tests move.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod costs;
mod outages;
mod panics;
mod support;
