//! The behaviours that Redisson's own lock tests show. `tests/README.md` lists those that other tests show.
//!
//! Where time can be moved by hand, the same body also runs on the memory backend, see `World`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

mod leases;
mod outages;
mod renewal;
mod waits;
mod wake_ups;
mod world;
