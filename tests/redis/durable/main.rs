//! `durable`: a server that has forgotten holds grants nothing until no client can believe in one of them, and holders claim
//! theirs again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod claims;
mod forgets;
mod settings;
mod support;
