//! Faults of processes, threads and the network, one test each; `faults/README.md` has the table.

mod late;
mod network;
mod processes;
mod support;
mod threads;
