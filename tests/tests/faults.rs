//! Faults of processes, threads and the network, one test each; `faults/README.md` has the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "faults/network.rs"]
mod network;
#[path = "faults/processes.rs"]
mod processes;
#[path = "faults/support.rs"]
mod support;
#[path = "faults/threads.rs"]
mod threads;
