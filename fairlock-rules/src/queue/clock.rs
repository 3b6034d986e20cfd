//! The queue's own clock, by which waiters are present or absent.

use std::time::Duration;

use crate::context::{DEAD_AFTER, Moment};

/// Follows the store's clock, but moves between two operations on the queue by at most half of the least time to live in the queue.
/// Waiters renew their places every third of their times, so a longer silence of all is not their fault: the store stood still. If
/// that made all waiters overdue, the lock would go to the first waiter to ask afterwards.
#[derive(Default)]
pub(crate) struct Clock {
    /// The clock's value at the last operation.
    pub(super) value: Moment,
    /// The store's time at the last operation.
    pub(super) pulse: Moment,
    /// The least time to live of the places, and the longest since the queue was empty.
    pub(super) least_ttl: Duration,
    pub(super) longest_ttl: Duration,
    /// Whether this operation has found the clock behind the store's clock. Not part of the state.
    pub(super) is_held_back: bool,
}

impl Clock {
    /// The current value. Reading does not move the clock. A store's clock that was set back moves it by nothing.
    pub(crate) fn at(&self, now: Moment) -> Moment {
        self.value.saturating_add(now.saturating_sub(self.pulse).min(self.half_ttl()))
    }

    /// The value for `inspect`, which follows the store's clock. The queue's clock stands still while no waiter is heard: by that
    /// clock the waiters of an abandoned lock would never be absent.
    pub(crate) fn seen_at(&self, now: Moment) -> Moment {
        self.value.saturating_add(now.saturating_sub(self.pulse))
    }

    /// Whether the queue has had no operation for longer than a live waiter can be silent.
    pub(crate) fn is_silent(&self, now: Moment) -> bool {
        self.pulse.saturating_add(DEAD_AFTER) < now
    }

    /// Half of the least time to live.
    pub(crate) fn half_ttl(&self) -> Duration {
        self.least_ttl / 2
    }

    /// An operation on the queue.
    pub(crate) fn pulse(&mut self, now: Moment) {
        self.is_held_back = now.saturating_sub(self.pulse) > self.half_ttl();
        (self.value, self.pulse) = (self.at(now), now);
    }

    /// Nobody could be heard from then until now: that time does not count.
    pub(crate) fn skip(&mut self, since: Moment, now: Moment) {
        self.pulse = self.pulse.saturating_add(now.saturating_sub(since.max(self.pulse)));
    }

    /// A waiter with this time to live was heard. The least time to live is forgotten when the clock was held back: no waiter with
    /// that time has been heard for longer than a live waiter can be silent. (If all stood still, such a waiter is heard long before
    /// the clock can be held back again.) Otherwise one short wait would slow the clock for as long as anybody waits.
    pub(crate) fn count_ttl(&mut self, ttl: Duration, queue_is_empty: bool) {
        self.longest_ttl = if queue_is_empty { ttl } else { self.longest_ttl.max(ttl) };
        let is_forgotten = queue_is_empty || std::mem::take(&mut self.is_held_back);
        self.least_ttl = if is_forgotten { ttl } else { self.least_ttl.min(ttl) };
    }

    /// When the last operation is so long ago that no waiter can be alive, by the store's clock: this clock stands still meanwhile.
    pub(crate) fn over_at(&self) -> Moment {
        let patience = self.longest_ttl.saturating_mul(12).max(DEAD_AFTER.saturating_mul(2));
        self.pulse.saturating_add(patience)
    }
}
