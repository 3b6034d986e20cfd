//! The behaviours that Redisson's own lock tests show, as tests of ours; `tests/README.md` has the table.
//!
//! Where time can be moved by hand, the same body also runs on the memory backend, see `World`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

mod crowds;
mod leases;
mod line;
mod outages;
mod renewal;
mod scores;
mod slow_calls;
mod waits;
mod wake_ups;
mod world;
