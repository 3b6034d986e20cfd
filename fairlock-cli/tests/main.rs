//! Tests that start the command.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod blocked;
mod doctor;
mod kinds;
mod long_queue;
mod look;
mod machine;
mod manual;
mod postgres;
mod run;
mod samples;
mod settings;
mod support;
mod take;
