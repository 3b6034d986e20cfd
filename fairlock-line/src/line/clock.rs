//! The line's own clock, which only judges which waiters are present.

use std::time::Duration;

use crate::turn::{Moment, SWEEP_AFTER};

/// It follows the store's clock. But between two heartbeats (a waiter asks, or the lock is granted) it moves by at most half
/// of the least time to live in the line. Waiters renew their places every third of theirs, so a longer silence is not their
/// fault: the process stood still. If that made all waiters overdue, the lock would go to the first one to ask afterwards.
#[derive(Default)]
pub(crate) struct LineClock {
    /// Its value at the last heartbeat.
    pub(super) value: Moment,
    /// The store's time of that heartbeat.
    pub(super) pulse: Moment,
    /// The least time to live of the places.
    pub(super) least_ttl: Duration,
    /// At this value, no place with that time to live can be present any more.
    pub(super) least_ttl_until: Moment,
    /// The longest time to live since the line was empty.
    pub(super) longest_ttl: Duration,
}

impl LineClock {
    /// The current value. Reading does not move the clock.
    pub(crate) fn at(&self, now: Moment) -> Moment {
        self.value.saturating_add(now.saturating_sub(self.pulse).min(self.half_ttl()))
    }

    /// By the store's clock: for `inspect`, since this one stands still while no waiter is heard, and by it the waiters of a lock that
    /// is not used any more would never be absent.
    pub(crate) fn seen_at(&self, now: Moment) -> Moment {
        self.value.saturating_add(now.saturating_sub(self.pulse))
    }

    /// Whether the line has had no call for longer than a live waiter can be silent.
    pub(crate) fn is_silent(&self, now: Moment) -> bool {
        self.pulse.saturating_add(SWEEP_AFTER) < now
    }

    /// Half of the least time to live.
    pub(crate) fn half_ttl(&self) -> Duration {
        self.least_ttl / 2
    }

    /// A heartbeat of the line.
    pub(crate) fn pulse(&mut self, now: Moment) {
        (self.value, self.pulse) = (self.at(now), now);
    }

    /// Nobody could be heard from then on until now: that time does not count.
    pub(crate) fn skip(&mut self, since: Moment, now: Moment) {
        self.pulse = self.pulse.saturating_add(now.saturating_sub(since.max(self.pulse)));
    }

    /// A place with this time to live was refreshed. The least one counts until no waiter with it can be present. So it
    /// belongs to a waiter in line, and is forgotten after that one has left.
    pub(crate) fn count_ttl(&mut self, ttl: Duration, line_is_empty: bool) {
        if line_is_empty || ttl <= self.least_ttl || self.value >= self.least_ttl_until {
            (self.least_ttl, self.least_ttl_until) = (ttl, self.value.saturating_add(ttl));
        }
        self.longest_ttl = if line_is_empty { ttl } else { self.longest_ttl.max(ttl) };
    }

    /// When the last heartbeat is so long ago that no waiter can be alive. By the store's clock, since this one stands still
    /// meanwhile.
    pub(crate) fn over_at(&self) -> Moment {
        let patience = self.longest_ttl.saturating_mul(12).max(SWEEP_AFTER.saturating_mul(2));
        self.pulse.saturating_add(patience)
    }
}
