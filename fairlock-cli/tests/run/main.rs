//! `fairlock run` against real servers, and killed at every stage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod as_flock;
mod codes;
mod durable;
mod first_process;
mod kept;
mod killed;
mod lost;
mod nested;
mod outages;
mod screen;
mod several;
mod signals;
mod terminal;
