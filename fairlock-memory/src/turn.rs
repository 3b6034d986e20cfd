//! The context of one operation on one lock, and the sequence that tokens and tickets come from.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::{FencingToken, LockName, OwnerId};

use crate::wake_ups::{Outgoing, WakeUp, WakeUps};

/// A moment: the time since the store was made.
pub(crate) type Moment = Duration;

/// For how much longer than its time to live a waiter can be silent and keep its ticket.
pub(crate) const SWEEP_AFTER: Duration = Duration::from_secs(60);

/// Tokens follow the wall clock up to here (the year 2112). From here on they only count, to stay below 2^53.
const LAST_BY_CLOCK: u64 = 1 << 52;

/// The sequence of a shard's locks: microseconds of the wall clock, as on Redis, but always growing.
pub(crate) struct Sequence {
    last: u64,
    started_at_micros: u64,
}

impl Sequence {
    /// `started_at`: the wall clock at moment zero, since 1970.
    pub(crate) fn new(started_at: Duration) -> Sequence {
        Sequence { last: 0, started_at_micros: u64::try_from(started_at.as_micros()).unwrap_or(u64::MAX) }
    }

    fn next(&mut self, now: Moment) -> u64 {
        let elapsed = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let by_clock = self.started_at_micros.saturating_add(elapsed).min(LAST_BY_CLOCK);
        self.last = by_clock.max(self.last + 1);
        self.last
    }
}

/// What an operation on one lock needs beside that lock.
pub(crate) struct Turn<'a> {
    pub(crate) lock: &'a LockName,
    pub(crate) now: Moment,
    /// The number of the call: a waiter that asks in it learns of a grant by the answer.
    pub(crate) call: u64,
    pub(crate) wake_ups: &'a WakeUps,
    /// The wake-ups to deliver once the shard is free.
    pub(crate) outgoing: &'a mut Vec<Outgoing>,
    pub(crate) sequence: &'a mut Sequence,
    /// The last label that was kept.
    pub(crate) last_label: &'a mut Arc<str>,
}

impl Turn<'_> {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence.next(self.now)
    }

    pub(crate) fn next_token(&mut self) -> FencingToken {
        FencingToken::new(self.next_number())
    }

    /// Queues a wake-up for the owner's client, if it is subscribed.
    pub(crate) fn send(&mut self, owner: &OwnerId, wake_up: WakeUp) {
        self.outgoing.extend(self.wake_ups.to(owner, wake_up));
    }

    /// The last number that was drawn.
    pub(crate) fn last_number(&self) -> u64 {
        self.sequence.last
    }

    /// The text as a label. The last one is used again if it is the same, as when one client asks repeatedly.
    pub(crate) fn label(&mut self, text: &str) -> Arc<str> {
        if **self.last_label != *text {
            *self.last_label = text.into();
        }
        Arc::clone(self.last_label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_wall_clock_and_grow_even_when_it_stands_still() {
        let mut sequence = Sequence::new(Duration::from_micros(1_000));
        let mut next = |micros| sequence.next(Duration::from_micros(micros));
        assert_eq!([next(0), next(0), next(0), next(500)], [1_000, 1_001, 1_002, 1_500]);
        assert_eq!([next(u64::MAX), next(u64::MAX)], [1 << 52, (1 << 52) + 1]);
    }
}
