//! The behaviours that Redisson's own tests of its locks show, as tests of ours; `tests/README.md` has the table.
//!
//! Where time can be moved by hand the same body runs on the memory backend too, see `World`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

#[path = "behaviours/crowds.rs"]
mod crowds;
#[path = "behaviours/holds.rs"]
mod holds;
#[path = "behaviours/leases.rs"]
mod leases;
#[path = "behaviours/line.rs"]
mod line;
#[path = "behaviours/outages.rs"]
mod outages;
#[path = "behaviours/renewal.rs"]
mod renewal;
#[path = "behaviours/scores.rs"]
mod scores;
#[path = "behaviours/slow_renewal.rs"]
mod slow_renewal;
#[path = "behaviours/waits.rs"]
mod waits;
#[path = "behaviours/wake_ups.rs"]
mod wake_ups;
#[path = "behaviours/world.rs"]
mod world;
