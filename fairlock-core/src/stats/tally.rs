//! What is counted for a client, and for each lock for which that was asked for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::meters::Meters;
use super::{Event, NotGranted, NotGrantedByKind, OUTCOMES, Outcome, Stats, Times};
use crate::backend::LockId;
use crate::claim::{GrantedBy, Punctuality};
use crate::ids::{KINDS, LockKind};

pub(crate) struct Tally {
    by_wake_up: AtomicU64,
    by_polling: AtomicU64,
    renewals: AtomicU64,
    late_renewals: AtomicU64,
    lost: AtomicU64,
    places_lost: AtomicU64,
    /// The waits of all grants: grants in none of the two counts above were made at once.
    waits: TimesKept,
    holds: TimesKept,
    not_granted: Counts,
    /// The waits of calls without a grant: most locks have none.
    failed_waits: OnceLock<TimesKept>,
    pub(super) meters: Meters,
}

impl Tally {
    /// Runs code of the program, which keeps the metrics: no mutex may be held.
    pub(super) fn new(lock: Option<&LockId>) -> Tally {
        Tally {
            by_wake_up: AtomicU64::new(0),
            by_polling: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            late_renewals: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            places_lost: AtomicU64::new(0),
            waits: TimesKept::default(),
            holds: TimesKept::default(),
            not_granted: Counts::default(),
            failed_waits: OnceLock::new(),
            meters: Meters::new(lock),
        }
    }

    pub(super) fn count(&self, kind: LockKind, event: Event) {
        match event {
            Event::Granted { by, waited, .. } => {
                match by {
                    GrantedBy::FirstAsk => {}
                    GrantedBy::WakeUp => count(&self.by_wake_up),
                    GrantedBy::Polling => count(&self.by_polling),
                }
                self.waits.add(waited);
            }
            Event::NotGranted(outcome, waited) => {
                self.not_granted.count(kind, outcome);
                if outcome != Outcome::Busy {
                    self.failed_waits.get_or_init(TimesKept::default).add(waited);
                }
            }
            Event::PlaceLost => count(&self.places_lost),
            Event::Renewed(punctuality) => {
                count(&self.renewals);
                if punctuality == Punctuality::Late {
                    count(&self.late_renewals);
                }
            }
            Event::Held(time) => self.holds.add(time),
            Event::Lost(_) => count(&self.lost),
            Event::Asked(_) | Event::SlowWait => {}
        }
    }

    /// A grant that was counted as found by polling came by a wake-up.
    pub(super) fn was_woken(&self) {
        count(&self.by_wake_up);
        self.by_polling.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let waits = self.waits.read();
        let (by_wake_up, by_polling) = (read(&self.by_wake_up), read(&self.by_polling));
        Stats {
            // A grant is counted by its way first, so there may be fewer for a moment, but not more.
            granted_at_once: waits.count.saturating_sub(by_wake_up + by_polling),
            granted_by_wake_up: by_wake_up,
            granted_by_polling: by_polling,
            waits,
            holds: self.holds.read(),
            not_granted: self.not_granted.read(),
            failed_waits: self.failed_waits.get().map(TimesKept::read).unwrap_or_default(),
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

/// The counts of a tally, by kind and outcome.
#[derive(Default)]
struct Counts([[AtomicU64; OUTCOMES.len()]; KINDS.len()]);

impl Counts {
    fn count(&self, kind: LockKind, outcome: Outcome) {
        self.0[kind.place()][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> NotGrantedByKind {
        let [fair, plain, read_write, semaphore] = self.0.each_ref().map(|counts| {
            let [busy, timed_out, cancelled, unavailable, refused] =
                counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            NotGranted { busy, timed_out, cancelled, unavailable, refused }
        });
        NotGrantedByKind { fair, plain, read_write, semaphore }
    }
}

/// How many of the latest times the percentiles are taken from.
const KEPT: usize = 1024;

/// Counted by all threads of a client, so without a mutex, and apart from the cache lines of what they only read.
#[repr(align(64))]
struct TimesKept {
    count: AtomicU64,
    /// In nanoseconds.
    longest: AtomicU64,
    /// In nanoseconds, plus one: a time that was counted a moment ago may not be here yet, and its place is 0 at first.
    latest: Box<[AtomicU64]>,
}

impl Default for TimesKept {
    fn default() -> TimesKept {
        let latest = (0..KEPT).map(|_| AtomicU64::new(0)).collect();
        TimesKept { count: AtomicU64::new(0), longest: AtomicU64::new(0), latest }
    }
}

impl TimesKept {
    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1);
        // Most times are not the longest: reading leaves the queue to the other threads.
        if nanos > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(nanos, Ordering::Relaxed);
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // Replaces the oldest.
        self.latest[number as usize % KEPT].store(nanos + 1, Ordering::Relaxed);
    }

    fn read(&self) -> Times {
        let nanos = self.latest.iter().filter_map(|time| time.load(Ordering::Relaxed).checked_sub(1));
        let mut sorted: Vec<Duration> = nanos.map(Duration::from_nanos).collect();
        sorted.sort_unstable();
        // The smallest time that this many of a hundred do not exceed.
        let of = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        };
        let [count, longest] = [&self.count, &self.longest].map(|number| number.load(Ordering::Relaxed));
        let longest = Duration::from_nanos(longest);
        Times { count, median: of(50), p95: of(95), p99: of(99), longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_and_each_outcome_has_a_count_of_its_own() {
        let counts = Counts::default();
        let kinds =
            [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 2 }];
        let mut times = 0;
        for kind in kinds {
            for (outcome, _) in OUTCOMES {
                times += 1;
                (0..times).for_each(|_| counts.count(kind, outcome));
            }
        }
        let NotGrantedByKind { fair, plain, read_write, semaphore } = counts.read();
        let five = |of: NotGranted| [of.busy, of.timed_out, of.cancelled, of.unavailable, of.refused];
        assert_eq!([fair, plain].map(five), [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]);
        assert_eq!([read_write, semaphore].map(five), [[11, 12, 13, 14, 15], [16, 17, 18, 19, 20]]);
        assert_eq!(five(counts.read().total()), [34, 38, 42, 46, 50]);
        assert_eq!((fair.total(), counts.read().total().total()), (15, 210));
    }

    #[test]
    fn no_time_is_lost_among_threads_that_count_at_once() {
        let times = TimesKept::default();
        std::thread::scope(|threads| {
            for thread in 1..=4 {
                let times = &times;
                threads.spawn(move || (0..5_000).for_each(|_| times.add(Duration::from_millis(thread))));
            }
        });
        let Times { count, median, longest, .. } = times.read();
        assert_eq!((count, longest), (20_000, Duration::from_millis(4)));
        assert!((1..=4).contains(&median.as_millis()), "{median:?}");
    }

    /// Percentiles are of the latest times, and the longest time is of all.
    #[test]
    fn percentiles_are_of_the_latest_times_the_longest_of_all() {
        let times = TimesKept::default();
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

    #[test]
    fn a_time_of_more_than_580_years_counts_as_so_many() {
        let times = TimesKept::default();
        times.add(Duration::MAX);
        let longest = Duration::from_nanos(u64::MAX - 1);
        assert_eq!((times.read().longest, times.read().median), (longest, longest));
    }
}
