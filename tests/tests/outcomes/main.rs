//! What calls come to when requests and replies get lost, holds end and clients stop: in memory, on a clock that is moved
//! by hand, so that each case is the same each time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

mod bump;
mod losses;
mod outages;
mod requests;
mod shutdown;
mod support;
