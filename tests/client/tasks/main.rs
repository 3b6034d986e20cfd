//! Locks for tasks, on every executor and over every backend: waits and releases that block no thread.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod crowds;
mod drops;
mod executors;
mod faults;
mod paused;
mod servers;
mod support;
