//! What recent answers have told: the server's clock, rows, and which rows others have locked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_rules::Moment;
use parking_lot::Mutex;

use crate::net::Row;

/// An older reading of the clock may have drifted by more than half a second.
const OLDEST: Duration = Duration::from_secs(600);
/// Two clocks drift apart by less than one part in so many.
const DRIFT: u32 = 1024;
/// A row that was found locked twice within this time was locked in between, but for moments.
const BLOCKED: Duration = Duration::from_secs(1);
/// How many rows are known to be locked, at most.
const MOST_BLOCKED: usize = 1024;
/// How many bytes the rows have that were seen lately, at most; and as many those that were seen before.
const MOST_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(crate) struct Recent {
    clock: Mutex<Option<Reading>>,
    rows: Mutex<Rows>,
    /// Since when and until when the row of a lock was found locked, by the server's clock.
    blocked: Mutex<HashMap<LockName, (Moment, Moment)>>,
    /// The server's clock stands still, as that of a test does.
    #[cfg(test)]
    pub(crate) stands: std::sync::atomic::AtomicBool,
}

/// The server's clock, as it was read between two moments.
#[derive(Clone, Copy)]
struct Reading {
    now: Moment,
    asked: Instant,
    heard: Instant,
}

type Seen = (Arc<Row>, Instant);

/// Rows as they were seen last, and when.
#[derive(Default)]
struct Rows {
    lately: HashMap<LockName, Seen>,
    before: HashMap<LockName, Seen>,
    bytes: usize,
}

impl Recent {
    /// Notes the server's time from an answer that has just come, unless an earlier answer tells it better, and agrees.
    pub(crate) fn heard(&self, now: Moment, asked: Instant) {
        let heard = Instant::now();
        let trip = heard.saturating_duration_since(asked);
        let is_known = self.clock(heard).is_some_and(|(known, late)| {
            late < trip && known <= now.saturating_add(trip) && now <= known.saturating_add(late)
        });
        if !is_known {
            *self.clock.lock() = Some(Reading { now, asked, heard });
        }
    }

    /// What the server's clock says at this moment, or has said before, never ahead of it; and by how much that is too early, at most.
    /// None if the clock was not heard for long.
    pub(crate) fn clock(&self, at: Instant) -> Option<(Moment, Duration)> {
        let Reading { now, asked, heard } = (*self.clock.lock())?;
        #[cfg(test)]
        if self.stands.load(std::sync::atomic::Ordering::Relaxed) {
            return Some((now, Duration::ZERO));
        }
        let age = at.saturating_duration_since(heard);
        let since = Duration::from_micros(u64::try_from((age - age / DRIFT).as_micros()).unwrap_or(u64::MAX));
        let late = heard.saturating_duration_since(asked) + age * 2 / DRIFT + Duration::from_micros(1);
        (age <= OLDEST).then(|| (now.saturating_add(since), late))
    }

    /// The row as it was seen last, and how long ago.
    pub(crate) fn row(&self, lock: &LockName) -> Option<(Arc<Row>, Duration)> {
        let rows = self.rows.lock();
        let (row, seen) = rows.lately.get(lock).or_else(|| rows.before.get(lock))?;
        Some((Arc::clone(row), seen.elapsed()))
    }

    /// Notes the row as it was seen just now; none if there is no such row.
    pub(crate) fn saw(&self, lock: &LockName, row: Option<&Arc<Row>>) {
        let mut rows = self.rows.lock();
        let Rows { lately, before, bytes } = &mut *rows;
        before.remove(lock);
        if let Some((former, _)) = lately.remove(lock) {
            *bytes -= former.size();
        }
        let Some(row) = row else { return };
        if *bytes + row.size() > MOST_BYTES {
            *before = std::mem::take(lately);
            *bytes = 0;
        }
        *bytes += row.size();
        lately.insert(lock.clone(), (Arc::clone(row), Instant::now()));
    }

    /// Another transaction has had the row locked since this moment.
    pub(crate) fn is_blocked(&self, lock: &LockName, since: Instant) {
        let now = Instant::now();
        let Some((clock, _)) = self.clock(now) else { return };
        let since = clock.saturating_sub(now.saturating_duration_since(since));
        let mut blocked = self.blocked.lock();
        if blocked.len() >= MOST_BLOCKED {
            blocked.retain(|_, (_, until)| clock <= until.saturating_add(BLOCKED));
        }
        if blocked.len() < MOST_BLOCKED {
            let known = blocked.entry(lock.clone()).or_insert((since, clock));
            *known = (if since <= known.1.saturating_add(BLOCKED) { known.0 } else { since }, clock);
        }
    }

    /// Since when the row has been locked, but for moments, if a decision whose step began to wait then can be made now.
    pub(crate) fn blocked_since(&self, lock: &LockName, waits_since: Moment) -> Moment {
        let known = self.blocked.lock().get(lock).copied();
        let known = known.filter(|(_, until)| waits_since <= until.saturating_add(BLOCKED));
        known.map_or(waits_since, |(since, _)| since.min(waits_since))
    }

    /// The row was written.
    pub(crate) fn is_written(&self, lock: &LockName) {
        self.blocked.lock().remove(lock);
    }

    #[cfg(feature = "servers")]
    #[cfg(test)]
    pub(crate) fn forget_rows(&self) {
        *self.rows.lock() = Rows::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_values::{SECOND, lock};

    const NOW: Moment = Duration::from_secs(1_700_000_000);

    #[test]
    fn rows_take_no_more_memory_than_they_may() {
        let (recent, large) = (Recent::default(), Arc::new(Row::of(vec![Some(vec![0; MOST_BYTES / 4])])));
        let locks: Vec<_> = (0..40).map(|n| lock(&n.to_string()).name).collect();
        let known = || locks.iter().filter(|lock| recent.row(lock).is_some()).count();
        for (at, lock) in locks.iter().enumerate() {
            recent.saw(lock, Some(&large));
            recent.saw(lock, Some(&large)); // takes its own place
            assert!(recent.row(lock).is_some() && (at.min(3)..8).contains(&known()), "{}", known());
        }
        locks.iter().for_each(|lock| recent.saw(lock, None));
        assert_eq!((known(), recent.rows.lock().bytes), (0, 0));
    }

    /// The server's clock is never behind what it is taken for, nor ahead by more than is said.
    #[test]
    fn the_best_reading_of_the_clock_counts_until_contradicted() {
        let (recent, now) = (Recent::default(), Instant::now());
        assert!(recent.clock(now).is_none());
        recent.heard(NOW, now - SECOND / 100);
        let late = || recent.clock(Instant::now()).unwrap().1;
        assert!(late() >= SECOND / 100);
        recent.heard(NOW, Instant::now());
        assert!(late() < SECOND / 100, "a better one");
        recent.heard(NOW, Instant::now() - SECOND / 10);
        assert!(late() < SECOND / 100, "a worse one that agrees");
        for away in [NOW + SECOND * 60, NOW] {
            recent.heard(away, Instant::now() - SECOND / 10);
            let (then, late) = recent.clock(Instant::now()).unwrap();
            assert!(away <= then && then <= away + SECOND && late >= SECOND / 10, "{then:?} {late:?}");
        }
        let (then, late) = recent.clock(now + OLDEST / 2).unwrap();
        assert!(then < NOW + OLDEST / 2 && then + late > NOW + OLDEST / 2, "the clocks may drift");
        assert!(recent.clock(now + OLDEST * 2).is_none());
    }
}
