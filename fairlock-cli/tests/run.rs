//! `fairlock run` against real servers, and killed at every stage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

#[path = "run/codes.rs"]
mod codes;
#[path = "run/killed.rs"]
mod killed;
#[path = "run/lost.rs"]
mod lost;
#[path = "run/signals.rs"]
mod signals;
#[path = "run/terminal.rs"]
mod terminal;
