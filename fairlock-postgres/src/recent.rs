//! What recent answers have told: the server's clock, which locks are busy, and which rows others have locked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_rules::Moment;
use parking_lot::Mutex;

/// An older reading of the clock may have drifted by more than half a second.
const OLDEST: Duration = Duration::from_secs(600);
/// For how long a lock counts as busy.
const BUSY: Duration = Duration::from_millis(100);
/// For how long a lock counts as waited for: its release asks for a step at once. If there are waiters, that saves a trip, and
/// the next owner has the lock after two trips; if not, it costs a trip. Longer than a third of a lease: renewals tell whether
/// there are waiters.
const WAITED: Duration = Duration::from_secs(15);
/// A row that was found locked twice within this time was locked in between, but for moments.
const BLOCKED: Duration = Duration::from_secs(1);
/// How many rows are known to be locked, at most.
const MOST_BLOCKED: usize = 1024;
/// How many locks are told apart. Two locks that are not may cost each other a round trip, and no more.
const SLOTS: usize = 1024;

pub(crate) struct Recent {
    made: Instant,
    /// The server's clock, and when it was read.
    clock: Mutex<Option<(Moment, Instant)>>,
    busy: Slots,
    waited_for: Slots,
    /// Since when and until when the row of a lock was found locked, by the server's clock.
    blocked: Mutex<HashMap<LockName, (Moment, Moment)>>,
}

impl Recent {
    pub(crate) fn new() -> Recent {
        let (clock, blocked, busy, waited_for) = Default::default();
        Recent { made: Instant::now(), clock, busy, waited_for, blocked }
    }

    /// Notes the server's time from an answer that has just come: older than the real time by the answer's way.
    pub(crate) fn heard(&self, now: Moment) {
        *self.clock.lock() = Some((now, Instant::now()));
    }

    /// What the server's clock says at this moment; none if it was not heard for long.
    pub(crate) fn server_time(&self, at: Instant) -> Option<Moment> {
        let (then, heard) = (*self.clock.lock())?;
        let age = at.saturating_duration_since(heard);
        (age <= OLDEST).then(|| then.saturating_add(age))
    }

    /// The lock was found with a queue, or held by another owner.
    pub(crate) fn is_busy(&self, lock: &LockName) {
        self.busy.set(lock, self.made.elapsed() + BUSY);
    }

    /// Whether the lock was found busy within the last 100 ms.
    pub(crate) fn was_busy(&self, lock: &LockName) -> bool {
        self.busy.is_set(lock, self.made.elapsed())
    }

    /// The lock was found with a queue.
    pub(crate) fn is_waited_for(&self, lock: &LockName) {
        self.waited_for.set(lock, self.made.elapsed() + WAITED);
    }

    /// Whether the lock was found with a queue within the last 15 s.
    pub(crate) fn was_waited_for(&self, lock: &LockName) -> bool {
        self.waited_for.is_set(lock, self.made.elapsed())
    }

    /// Another transaction has had the row locked since this moment.
    pub(crate) fn is_blocked(&self, lock: &LockName, since: Instant) {
        let (Some(since), Some(now)) = (self.server_time(since), self.server_time(Instant::now())) else {
            return;
        };
        let mut blocked = self.blocked.lock();
        if blocked.len() >= MOST_BLOCKED {
            blocked.retain(|_, (_, until)| now <= until.saturating_add(BLOCKED));
        }
        if blocked.len() < MOST_BLOCKED {
            let known = blocked.entry(lock.clone()).or_insert((since, now));
            *known = (if since <= known.1.saturating_add(BLOCKED) { known.0 } else { since }, now);
        }
    }

    /// Since when the row has been locked, but for moments, if a step that began to wait at `waits_since` has got the row now.
    pub(crate) fn blocked_since(&self, lock: &LockName, waits_since: Moment) -> Moment {
        let known = self.blocked.lock().remove(lock);
        let known = known.filter(|(_, until)| waits_since <= until.saturating_add(BLOCKED));
        known.map_or(waits_since, |(since, _)| since.min(waits_since))
    }

    #[cfg(feature = "servers")]
    #[cfg(test)]
    pub(crate) fn forget_busy(&self) {
        let slots = self.busy.0.iter().chain(&self.waited_for.0);
        slots.for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}

/// Until when something counts as true of a lock, in microseconds since this was made.
struct Slots(Box<[AtomicU64]>);

impl Default for Slots {
    fn default() -> Slots {
        Slots((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Slots {
    fn set(&self, lock: &LockName, until: Duration) {
        self.0[lock.hash_code() as usize % SLOTS].store(micros(until), Ordering::Relaxed);
    }

    fn is_set(&self, lock: &LockName, now: Duration) -> bool {
        micros(now) < self.0[lock.hash_code() as usize % SLOTS].load(Ordering::Relaxed)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
