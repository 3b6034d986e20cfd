//! Discipline `HandOff` on a real server: what the conformance suite can't see or do. Dead and deaf waiters, lost replies,
//! tokens over failures, what holds cost and what is told about them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod absent;
mod cost;
mod deaf;
mod holds;
mod long_line;
mod lost_replies;
mod messages;
mod support;
mod tokens;
