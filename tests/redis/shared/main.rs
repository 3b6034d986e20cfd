//! Locks with several holders on a real server, asked through the backend: units, ends, what clients are told, and names in use.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod crowds;
mod ends;
mod messages;
mod names;
mod spoilt;
mod support;
mod units;
