//! Discipline `HandOff` on a real server, beyond the conformance suite: deaf waiters, tokens across failures, stored keys, and costs.

mod cost;
#[cfg(feature = "night")]
mod deaf;
#[cfg(feature = "night")]
mod layout;
mod long_queue;
mod plain;
mod support;
mod tokens;
