//! What is counted for a client, and for each lock for which that was asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::meters::Meters;
use super::{Stats, Times};
use crate::LockName;
use crate::claim::{GrantedBy, Punctuality};

#[derive(Debug)]
pub(crate) struct Tally {
    at_once: AtomicU64,
    by_wake_up: AtomicU64,
    by_polling: AtomicU64,
    renewals: AtomicU64,
    late_renewals: AtomicU64,
    lost: AtomicU64,
    places_lost: AtomicU64,
    waits: Mutex<TimesKept>,
    holds: Mutex<TimesKept>,
    pub(super) meters: Meters,
}

impl Tally {
    /// Runs code of the program, which keeps the metrics: no mutex may be held.
    pub(super) fn new(lock: Option<&LockName>) -> Tally {
        Tally {
            at_once: AtomicU64::new(0),
            by_wake_up: AtomicU64::new(0),
            by_polling: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            late_renewals: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            places_lost: AtomicU64::new(0),
            waits: Mutex::default(),
            holds: Mutex::default(),
            meters: Meters::new(lock),
        }
    }

    pub(super) fn granted(&self, by: GrantedBy, waited: Duration) {
        self.waits.lock().add(waited);
        count(match by {
            GrantedBy::FirstAsk => &self.at_once,
            GrantedBy::WakeUp => &self.by_wake_up,
            GrantedBy::Polling => &self.by_polling,
        });
    }

    /// A grant that was counted as found by polling came by a wake-up.
    pub(super) fn was_woken(&self) {
        self.by_polling.fetch_sub(1, Ordering::Relaxed);
        count(&self.by_wake_up);
    }

    pub(super) fn held(&self, held_for: Duration) {
        self.holds.lock().add(held_for);
    }

    pub(super) fn renewed(&self, punctuality: Punctuality) {
        count(&self.renewals);
        if punctuality == Punctuality::Late {
            count(&self.late_renewals);
        }
    }

    pub(super) fn lost(&self) {
        count(&self.lost);
    }

    pub(super) fn place_lost(&self) {
        count(&self.places_lost);
    }

    pub(super) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            granted_at_once: read(&self.at_once),
            granted_by_wake_up: read(&self.by_wake_up),
            granted_by_polling: read(&self.by_polling),
            waits: self.waits.lock().read(),
            holds: self.holds.lock().read(),
            renewals: read(&self.renewals),
            late_renewals: read(&self.late_renewals),
            lost: read(&self.lost),
            places_lost: read(&self.places_lost),
            ..Stats::default()
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How many of the latest times the percentiles are taken from.
const KEPT: usize = 1024;

#[derive(Debug, Default)]
struct TimesKept {
    latest: Vec<Duration>,
    count: u64,
    longest: Duration,
}

impl TimesKept {
    fn add(&mut self, time: Duration) {
        if self.latest.len() < KEPT {
            self.latest.push(time);
        } else {
            // Replaces the oldest.
            let at = usize::try_from(self.count % KEPT as u64).unwrap_or(0);
            self.latest[at] = time;
        }
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    fn read(&self) -> Times {
        let mut sorted = self.latest.clone();
        sorted.sort_unstable();
        // The smallest time that this many of a hundred do not exceed.
        let of = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        };
        Times { count: self.count, median: of(50), p95: of(95), p99: of(99), longest: self.longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_latest_times_and_the_longest_is_of_all() {
        let mut times = TimesKept::default();
        assert_eq!(times.read(), Times::default());
        times.add(Duration::from_secs(99));
        assert_eq!(times.read().median, Duration::from_secs(99));
        for n in 0..KEPT {
            times.add(Duration::from_millis(n as u64 % 100 + 1));
        }
        let Times { count, median, p95, p99, longest } = times.read();
        assert_eq!((count, longest), (1025, Duration::from_secs(99)));
        let near = |time: Duration, millis: u64| time.as_millis().abs_diff(u128::from(millis)) <= 1;
        assert!(near(median, 50) && near(p95, 95) && near(p99, 99), "{median:?} {p95:?} {p99:?}");
    }
}
