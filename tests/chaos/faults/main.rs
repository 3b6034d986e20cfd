//! Faults of processes, threads and the network, one test each; `faults/README.md` has the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod late;
mod network;
mod processes;
mod support;
mod threads;
