//! The numbers that a program reads, their text, and what counts them: for a client, and for each lock for which that was asked for.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::meters::Meters;
use super::{Event, OUTCOMES, Outcome};
use crate::backend::LockId;
use crate::claim::{GrantedBy, Punctuality, WaitingRequest};
use crate::ids::{KINDS, LockKind};

/// What has happened to the requests of a client since it was made, or to those for one lock. Its `Display` is a block of
/// lines to read. With feature `serde` it can be serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Grants at the first attempt: the lock was free.
    pub granted_at_once: u64,
    /// Grants by a wake-up.
    pub granted_by_wake_up: u64,
    /// Grants by asking again without a wake-up: its message was lost, or the holder died or lost its hold.
    pub granted_by_polling: u64,
    /// How long the granted requests waited.
    pub waits: Times,
    /// The calls that ended without the lock.
    pub not_granted: NotGrantedByKind,
    /// How long those calls waited, without attempts that do not wait.
    pub failed_waits: Times,
    /// How long the holds lasted that are over, from the grant to the outermost unlock or the loss.
    pub holds: Times,
    /// Renewals of holds that the server answered. Those of places are not counted.
    pub renewals: u64,
    /// Renewals of holds that took more than one attempt, or were sent when more than half of their time was over.
    pub late_renewals: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Places that the server had dropped and did not restore: these waiters went to the tail.
    pub places_lost: u64,
    /// Wake-ups that named no waiting request of this client. 0 for one lock.
    pub wake_ups_ignored: u64,
    /// Gaps in the wake-ups, one for each reconnect of the connection that carries them. 0 for one lock.
    pub gaps: u64,
    /// Reconnects to the same server after a connection was lost: of the connections for commands, for all clients of this
    /// backend; and of this client's connection for wake-ups (`gaps`). 0 for a single lock.
    pub reconnects: u64,
    /// How many holds there are now.
    pub holding: u64,
    /// For how long the server has not answered the watchdog, or a server of several. None if it answers, and for one lock.
    pub outage: Option<Duration>,
    /// The requests that wait now, and where in the queue, as in [`Client::waiting`](crate::Client::waiting).
    pub waiting: Vec<WaitingRequest>,
}

/// The calls for locks of each kind that ended without the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotGrantedByKind {
    /// Fair locks.
    pub fair: NotGranted,
    /// Plain locks.
    pub plain: NotGranted,
    /// Read-write locks, for reading and for writing.
    pub read_write: NotGranted,
    /// Semaphores.
    pub semaphore: NotGranted,
}

/// How calls ended without the lock. A request or a task's wait that is dropped is not counted, nor is a call that the end of the
/// client ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotGranted {
    /// An attempt that does not wait found the lock taken.
    pub busy: u64,
    /// The time of the wait was over.
    pub timed_out: u64,
    /// The wait was cancelled.
    pub cancelled: u64,
    /// The server gave no usable answer in time.
    pub unavailable: u64,
    /// The server refused the request: a missing right, or a name that is in use for something else.
    pub refused: u64,
}

/// How long waits or holds lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// The median of the latest 1,024.
    pub median: Duration,
    /// The 95th percentile of the latest 1,024.
    pub p95: Duration,
    /// The 99th percentile of the latest 1,024.
    pub p99: Duration,
    /// The longest of all.
    pub longest: Duration,
}

impl NotGrantedByKind {
    /// The numbers of all kinds together.
    pub fn total(&self) -> NotGranted {
        let NotGrantedByKind { fair, plain, read_write, semaphore } = self;
        let add = |one: NotGranted, other: &NotGranted| NotGranted {
            busy: one.busy + other.busy,
            timed_out: one.timed_out + other.timed_out,
            cancelled: one.cancelled + other.cancelled,
            unavailable: one.unavailable + other.unavailable,
            refused: one.refused + other.refused,
        };
        [fair, plain, read_write, semaphore].into_iter().fold(NotGranted::default(), add)
    }
}

impl NotGranted {
    /// All of them.
    pub fn total(&self) -> u64 {
        let NotGranted { busy, timed_out, cancelled, unavailable, refused } = self;
        busy + timed_out + cancelled + unavailable + refused
    }
}

/// How many waiting requests `Display` lists.
const LISTED: usize = 10;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { granted_at_once, granted_by_wake_up, granted_by_polling, waits, holds, waiting, .. } =
            self;
        let granted = granted_at_once + granted_by_wake_up + granted_by_polling;
        writeln!(
            f,
            "granted   {granted}: {granted_at_once} at once, {granted_by_wake_up} by a wake-up, \
             {granted_by_polling} by polling"
        )?;
        writeln!(f, "waits     {waits}")?;
        let failed = self.not_granted.total();
        let NotGranted { busy, timed_out, cancelled, unavailable, refused } = failed;
        writeln!(
            f,
            "failed    {}: {busy} busy, {timed_out} timed out, {cancelled} cancelled, \
             {unavailable} unavailable, {refused} refused",
            failed.total()
        )?;
        writeln!(f, "  waits   {}", self.failed_waits)?;
        writeln!(f, "holds     {holds}")?;
        writeln!(f, "renewals  {}, {} of them late", self.renewals, self.late_renewals)?;
        writeln!(f, "lost      holds: {}, places: {}", self.lost, self.places_lost)?;
        writeln!(
            f,
            "wake-ups  ignored: {}, gaps: {}, reconnects: {}",
            self.wake_ups_ignored, self.gaps, self.reconnects
        )?;
        writeln!(f, "holding   {}", self.holding)?;
        if let Some(outage) = self.outage {
            writeln!(f, "outage    for {outage:.1?}")?;
        }
        write!(f, "waiting   {}", waiting.len())?;
        for WaitingRequest { lock, owner, rank, waiting_for, .. } in waiting.iter().take(LISTED) {
            write!(f, "\n          lock {lock} for {waiting_for:.1?}")?;
            match rank {
                Some(0) => f.write_str(", next")?,
                Some(rank) => write!(f, ", behind {rank}")?,
                None => {}
            }
            write!(f, " ({owner})")?;
        }
        match waiting.len().checked_sub(LISTED) {
            Some(more) if more > 0 => write!(f, "\n          and {more} more"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { count, median, p95, p99, longest } = self;
        if *count == 0 {
            return f.write_str("none");
        }
        write!(
            f,
            "{count}: median {median:.1?}, 95 % within {p95:.1?}, 99 % within {p99:.1?}, longest {longest:.1?}"
        )
    }
}

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
    use crate::ids::{LockName, OwnerId};

    #[test]
    fn each_count_has_its_place_in_the_text() {
        let (granted_at_once, granted_by_wake_up, granted_by_polling) = (1, 2, 4);
        let (renewals, late_renewals, lost, places_lost) = (8, 3, 5, 6);
        let (wake_ups_ignored, gaps, reconnects) = (9, 10, 11);
        let times = |count, ms| {
            let [median, p95, p99, longest] = [1, 2, 3, 4].map(|n| n * Duration::from_millis(ms));
            Times { count, median, p95, p99, longest }
        };
        let (waits, holds, waiting) = (times(7, 10), times(6, 100), Vec::new());
        let (failed_waits, holding, outage) = (times(12, 20), 13, Some(Duration::from_secs(14)));
        let fair = NotGranted { busy: 1, timed_out: 2, cancelled: 3, unavailable: 4, refused: 5 };
        let not_granted = NotGrantedByKind { fair, semaphore: fair, ..NotGrantedByKind::default() };
        let stats = Stats {
            not_granted,
            failed_waits,
            holding,
            outage,
            granted_at_once,
            granted_by_wake_up,
            granted_by_polling,
            waits,
            holds,
            renewals,
            late_renewals,
            lost,
            places_lost,
            wake_ups_ignored,
            gaps,
            reconnects,
            waiting,
        };
        assert_eq!(
            stats.to_string(),
            "granted   7: 1 at once, 2 by a wake-up, 4 by polling\n\
             waits     7: median 10.0ms, 95 % within 20.0ms, 99 % within 30.0ms, longest 40.0ms\n\
             failed    30: 2 busy, 4 timed out, 6 cancelled, 8 unavailable, 10 refused\n\
             \x20 waits   12: median 20.0ms, 95 % within 40.0ms, 99 % within 60.0ms, longest 80.0ms\n\
             holds     6: median 100.0ms, 95 % within 200.0ms, 99 % within 300.0ms, longest 400.0ms\n\
             renewals  8, 3 of them late\n\
             lost      holds: 5, places: 6\n\
             wake-ups  ignored: 9, gaps: 10, reconnects: 11\n\
             holding   13\n\
             outage    for 14.0s\n\
             waiting   0"
        );
    }

    /// The text lists the first ten requests that wait, and how many more there are.
    #[test]
    fn the_text_lists_ten_that_wait_and_counts_the_others() {
        let owner = OwnerId::new("c:1");
        let waits = |n: u64| WaitingRequest {
            lock: LockName::new(&format!("n:{n}")).unwrap(),
            kind: LockKind::Fair,
            owner: owner.clone(),
            units: 1,
            rank: [Some(0), Some(2), None].get(n as usize).copied().flatten(),
            waiting_for: Duration::from_millis(1500),
        };
        let listed =
            |count| Stats { waiting: (0..count).map(waits).collect(), ..Stats::default() }.to_string();
        let text = listed(10);
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("waiting")).collect();
        assert_eq!((lines.len(), lines[0]), (11, "waiting   10"));
        let first = [1, 2, 3].map(|at: usize| lines[at].trim_start());
        let all = ["`n:0` for 1.5s, next", "`n:1` for 1.5s, behind 2", "`n:2` for 1.5s"];
        assert_eq!(first, all.map(|line| format!("lock {line} (c:1)")));
        let more = listed(13);
        let after = more.lines().skip_while(|line| !line.contains("`n:9`")).skip(1);
        assert_eq!(after.collect::<Vec<_>>(), ["          and 3 more"]);
    }

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
