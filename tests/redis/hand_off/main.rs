//! Discipline `HandOff` on a real server, beyond the conformance suite: dead and deaf waiters, lost replies, tokens
//! across failures, and costs.

mod absent;
mod cost;
mod deaf;
mod layout;
mod long_queue;
mod shared_name;
mod support;
mod tickets;
mod tokens;
