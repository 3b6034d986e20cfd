//! A cluster: the conformance suite, dead and frozen primaries, moved slots, and names that it can't keep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "cluster/conformance.rs"]
mod conformance;
#[path = "cluster/moves.rs"]
mod moves;
#[path = "cluster/nodes.rs"]
mod nodes;
#[path = "cluster/support.rs"]
mod support;
