//! Discipline `HandOff` on a real server: what the conformance suite can't see or do. Dead and deaf waiters, lost replies,
//! tokens over failures, what holds cost and what is told about them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "hand_off/absent.rs"]
mod absent;
#[path = "hand_off/cost.rs"]
mod cost;
#[path = "hand_off/deaf.rs"]
mod deaf;
#[path = "hand_off/holds.rs"]
mod holds;
#[path = "hand_off/lost_replies.rs"]
mod lost_replies;
#[path = "hand_off/messages.rs"]
mod messages;
#[path = "hand_off/support.rs"]
mod support;
#[path = "hand_off/tokens.rs"]
mod tokens;
