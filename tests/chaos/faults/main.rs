//! Faults of the network and of processes, one test each; `faults/README.md` has the table.

mod network;
mod processes;
mod support;
