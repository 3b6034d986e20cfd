//! What the answers have told lately: the server's clock, and which locks are busy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_line::Moment;
use parking_lot::Mutex;

/// An older reading of the clock may have drifted by more than half a second.
const OLDEST: Duration = Duration::from_secs(600);
/// For how long a lock counts as busy.
const BUSY: Duration = Duration::from_millis(100);
/// How many locks are told apart. Two that are not may cost each other a round trip, and no more.
const SLOTS: usize = 1024;

pub(crate) struct Recent {
    made: Instant,
    /// The server's clock, and when it was read.
    clock: Mutex<Option<(Moment, Instant)>>,
    /// Until when a lock counts as busy, in microseconds since this was made.
    busy_until: Box<[AtomicU64]>,
}

impl Recent {
    pub(crate) fn new() -> Recent {
        let busy_until = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Recent { made: Instant::now(), clock: Mutex::new(None), busy_until }
    }

    /// An answer that has just come says that it is this time. So the server's clock is behind the real one by the answer's way.
    pub(crate) fn heard(&self, now: Moment) {
        *self.clock.lock() = Some((now, Instant::now()));
    }

    /// What the server's clock says at this moment; none if it was not heard for long.
    pub(crate) fn server_time(&self, at: Instant) -> Option<Moment> {
        let (then, heard) = (*self.clock.lock())?;
        let age = at.saturating_duration_since(heard);
        (age <= OLDEST).then(|| then.saturating_add(age))
    }

    /// The lock was found with a line, or held by another owner.
    pub(crate) fn is_busy(&self, lock: &LockName) {
        let until = self.made.elapsed() + BUSY;
        self.slot(lock).store(micros(until), Ordering::Relaxed);
    }

    /// Whether it was found so within the last 100 ms.
    pub(crate) fn was_busy(&self, lock: &LockName) -> bool {
        micros(self.made.elapsed()) < self.slot(lock).load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn forget_busy(&self) {
        self.busy_until.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    fn slot(&self, lock: &LockName) -> &AtomicU64 {
        &self.busy_until[lock.hash_code() as usize % SLOTS]
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
