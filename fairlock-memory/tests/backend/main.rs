//! The memory backend, seen through the `Backend` trait, on a clock that the tests move.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[cfg(feature = "night")]
mod crowd;
mod faults;
mod kinds;
mod support;
