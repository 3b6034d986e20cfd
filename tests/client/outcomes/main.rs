//! The outcomes of calls when requests and replies get lost, holds end and clients stop. They run in memory on a
//! manual clock, so each case is deterministic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

mod bump;
mod closures;
mod losses;
mod outages;
mod requests;
mod shared;
mod shutdown;
mod support;
mod waits;
