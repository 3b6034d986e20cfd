//! Discipline `HandOff` on a real server, beyond the conformance suite: deaf waiters, tokens across failures, and costs.

mod cost;
#[cfg(feature = "night")]
mod deaf;
mod long_queue;
mod plain;
mod support;
mod tokens;
