//! When an answer tells a waiter to look again. `lib/look.lua` of the Redis backend is the same.

use std::time::Duration;

use super::LockEntry;
use crate::context::Moment;

/// How long after the end of a hold the first in the queue looks, so that the hold has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// The shortest time between two looks of a waiter for a lock with several holders.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

impl LockEntry {
    /// When a request outside the queue may try again: at the first end of a hold, at the end of the grace, or at once.
    pub(super) fn busy_for(&self, now: Moment) -> Duration {
        self.holds.first_end().max(self.grace).map_or(Duration::ZERO, |end| end.saturating_sub(now))
    }

    /// When a waiter of this rank looks without a message: when the first of the holds ends, if the waiter is the first in the
    /// queue; or if the waiter is the first of its client and the next heartbeat would be later: all waiters ahead may have died
    /// with the holder. While the queue rests: after the rest.
    pub(super) fn look_in(
        &self,
        now: Moment,
        rank: u64,
        ttl: Duration,
        is_first_of_client: bool,
    ) -> Duration {
        let left = self.busy_for(now);
        if rank > 0 && (left.saturating_mul(3) >= ttl || !is_first_of_client) {
            return Duration::MAX;
        }
        let rests_for = self.rests_for(now);
        match left.saturating_add(PAST_THE_END) {
            _ if !rests_for.is_zero() => rests_for,
            // Several holds may end soon after each other.
            when if self.kind.is_shared() => when.max(LOOKS_EVERY),
            when => when,
        }
    }

    /// When a restored waiter looks: at once if free units may be its own, since the restoring call hands nothing on.
    pub(super) fn restored_looks_in(&self, now: Moment, rank: u64, ttl: Duration) -> Duration {
        let may_be_next = self.free() > 0 && self.rests_for(now).is_zero();
        if may_be_next { Duration::ZERO } else { self.look_in(now, rank, ttl, true) }
    }

    /// For how much longer units stay free because the queue rests.
    pub(super) fn rests_for(&self, now: Moment) -> Duration {
        if self.free() > 0 { self.queue.rests_for(now) } else { Duration::ZERO }
    }
}
