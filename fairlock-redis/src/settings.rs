//! What a user chooses for a backend, as the operations read it.

use std::time::Duration;

use crate::durability::Durability;
use crate::net::connection::Timeouts;

/// Which waiter of a fair lock is next, and how it learns of its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discipline {
    /// The releaser makes the next waiter the holder: one trip, however long the line. For Rust programs: Java's fair
    /// lock and this one exclude each other but have separate lines, which take turns without an order.
    #[default]
    HandOff,
    /// Redisson's `RedissonFairLock`: one line for Rust and Java.
    Redisson,
}

/// The settings that concern the operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) discipline: Discipline,
    pub(crate) thread_wait: Duration,
    pub(crate) refresh_on_retry: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) durability: Option<Durability>,
}
