//! A cluster: the conformance suite, dead and frozen primaries, moved slots, and names that it can't keep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod durable;
mod moves;
mod nodes;
mod support;
