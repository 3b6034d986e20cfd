//! What the operations of a backend share: connections, clients, the questions that wait for a step; what answers have told ([`Recent`]);
//! how many locks a part of the renewals has ([`Pace`]); and when rows are swept ([`Sweeper`]).
//!
//! **Sweeping** deletes the rows of locks that nobody has used for a day. Every living client sweeps now and then, as it renews or releases: a
//! client with short holds renews nothing.
//!
//! A thread (`fairlock-pg-sweep`) looks at a window of the table's pages, deletes the unused rows there, and ends. No caller
//! waits for the thread, and a window costs the server the same however many rows there are. The next window follows after a
//! while: the whole table takes ten minutes, or a second a window if it is large. An index on `dead_at` would find unused rows at
//! once, but end HOT updates; by name these rows are all over the table.
//!
//! | measured, two million rows, PostgreSQL 15 | reads | takes |
//! | --- | --- | --- |
//! | the whole table | 57,000 pages | 0.3 s in memory |
//! | a window of 32 pages, 1,120 rows | 32 pages | 1.4 ms |

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::log_safely;
use fairlock_core::{ClientId, LockName};
use fairlock_rules::Moment;
use parking_lot::Mutex;

use crate::clients::{Clients, key_of};
use crate::combiner::Combiner;
use crate::net::statement::SWEEP;
use crate::net::{Failure, Pool, Row, Statement};

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
/// How many locks a part of the renewals has at most.
const MOST_RENEWED: usize = 200;
/// How long a look at the whole table takes at least, and a new client waits before its first window.
const EVERY: Duration = Duration::from_secs(600);
/// Between two windows at least.
const NEXT: Duration = Duration::from_secs(1);
/// A window, as `sweep` reads it: about 560 rows. So one process keeps up with many million names a day.
const PAGES: u64 = 16;

pub(crate) struct Store {
    pub(crate) pool: Pool,
    /// The clients of this process.
    pub(crate) clients: Clients,
    /// What recent answers have told.
    pub(crate) recent: Recent,
    /// The questions that wait for a step.
    pub(crate) combiner: Combiner,
    pub(crate) sweeper: Mutex<Sweeper>,
    pub(crate) pace: Pace,
}

impl Store {
    /// A store that has not connected.
    pub(crate) fn new(pool: Pool, clients: Clients) -> Store {
        let combiner = Combiner::new(pool.most, pool.timeouts.response / 2);
        let (sweeper, pace) = (Mutex::new(Sweeper::new()), Pace::new());
        Store { pool, clients, recent: Recent::default(), combiner, sweeper, pace }
    }

    /// Sweeps if it is time. A failure does not matter: another client sweeps, or this one later.
    pub(crate) fn sweep_if_due(self: &Arc<Store>) {
        let now = Instant::now();
        let mut sweeper = self.sweeper.lock();
        if now < sweeper.next {
            return;
        }
        sweeper.next = now + EVERY;
        drop(sweeper);
        let store = Arc::downgrade(self);
        let in_background = move || {
            let Some(store) = store.upgrade() else { return };
            match store.sweep() {
                Ok((_, pause)) => store.sweeper.lock().next = Instant::now() + pause,
                Err(failure) => log_safely(|| {
                    log::debug!(target: "fairlock::net", "rows of unused locks were not deleted: {failure:?}");
                }),
            }
        };
        // If there is no thread to be had, it is done later.
        let _ = thread::Builder::new().name("fairlock-pg-sweep".to_owned()).spawn(in_background);
    }

    /// Sweeps the next window. Returns how many rows were deleted, and when the next window is due.
    pub(crate) fn sweep(&self) -> Result<(i64, Duration), Failure> {
        let page = self.sweeper.lock().window(); // no lock is held while the server works
        // Once for the whole table, and in no caller's call.
        if page == 0 {
            self.pool.look_again(self.pool.deadline())?;
        }
        let sweep = Statement::new(&SWEEP, [page.cast_signed().into()]);
        let rows = self.pool.ask_committed(sweep, self.pool.deadline())?;
        let row = rows.first().ok_or_else(Failure::senseless)?;
        let pause = self.sweeper.lock().pause(row.number(1)?.cast_unsigned());
        Ok((row.number(0)?, pause))
    }
}

/// What recent answers have told: the server's clock, rows, and which rows others have locked.
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
}

/// How many locks a part of a client's renewals has, and where the next round begins. A part is one transaction, and a server may be too
/// slow for it: so after a part without an answer parts have half as many locks, and the next round begins behind that part. Parts that
/// are answered in good time grow again.
pub(crate) struct Pace(Mutex<(usize, Option<LockName>)>);

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace(Mutex::new((MOST_RENEWED, None)))
    }

    /// The lock with which this round begins; if none, with the first.
    pub(crate) fn begins_with(&self) -> Option<LockName> {
        self.0.lock().1.take()
    }

    /// How many locks the next part may have.
    pub(crate) fn most(&self) -> usize {
        self.0.lock().0
    }

    /// A part of so many locks was not answered.
    pub(crate) fn unanswered(&self, locks: usize, next: &LockName) {
        *self.0.lock() = ((locks / 2).max(1), Some(next.clone()));
    }

    pub(crate) fn answered_in_good_time(&self) {
        let most = &mut self.0.lock().0;
        *most = (*most * 2).min(MOST_RENEWED);
    }
}

/// Which pages of the table this process sweeps next, and when.
pub(crate) struct Sweeper {
    pub(crate) next: Instant,
    /// The number of the next window, in a table without end: of many processes each begins anywhere.
    window: u64,
    /// How many windows the table had.
    windows: u64,
}

impl Sweeper {
    fn new() -> Sweeper {
        let anywhere = key_of(&ClientId::random().to_string());
        Sweeper { next: Instant::now() + EVERY, window: anywhere.cast_unsigned() >> 16, windows: 1 }
    }

    /// Takes the next window, and returns its first page.
    fn window(&mut self) -> u64 {
        let window = self.window % self.windows;
        self.window += 1;
        window * PAGES
    }

    /// Takes note of the table's number of pages. Returns how long it is until the next window.
    fn pause(&mut self, pages: u64) -> Duration {
        self.windows = pages.div_ceil(PAGES).max(1);
        (EVERY / u32::try_from(self.windows).unwrap_or(u32::MAX)).max(NEXT)
    }
}

#[cfg(test)]
mod tests {
    use fairlock_net::Timeouts;

    use super::*;
    use crate::WakeUps;
    use crate::net::address::{Address, TlsConfig};
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
        recent.heard(NOW, now - SECOND);
        let late = || recent.clock(Instant::now()).unwrap().1;
        assert!(late() >= SECOND);
        recent.heard(NOW + SECOND / 2, Instant::now());
        assert!(late() < SECOND, "a better one that agrees");
        recent.heard(NOW + SECOND / 2, Instant::now() - SECOND * 2);
        assert!(late() < SECOND, "a worse one that agrees");
        for away in [NOW + SECOND * 60, NOW] {
            recent.heard(away, Instant::now() - SECOND / 10);
            let (then, late) = recent.clock(Instant::now()).unwrap();
            assert!(away <= then && then <= away + SECOND && late >= SECOND / 10, "{then:?} {late:?}");
        }
        let (then, late) = recent.clock(now + OLDEST / 2).unwrap();
        assert!(then < NOW + OLDEST / 2 && then + late > NOW + OLDEST / 2, "the clocks may drift");
        assert!(late < SECOND * 10, "by half a second");
        assert!(recent.clock(now + OLDEST * 2).is_none());
    }

    /// A row that is found locked again within a second was locked in between, if nobody has written it. What is too much is not known.
    #[test]
    fn a_row_is_known_to_be_locked_since_the_first_look() {
        let (recent, x) = (Recent::default(), lock("x").name);
        recent.stands.store(true, std::sync::atomic::Ordering::Relaxed);
        let look = |lock: &LockName, seconds: u32, waits: u32| {
            recent.heard(NOW + SECOND * seconds, Instant::now());
            recent.is_blocked(lock, Instant::now().checked_sub(SECOND * waits).unwrap());
        };
        let since = |lock: &LockName, seconds: u32| {
            let known = recent.blocked_since(lock, NOW + SECOND * seconds);
            (known + SECOND / 2 - NOW).as_secs() // rounded
        };
        assert_eq!(since(&x, 20), 20);
        look(&x, 20, 5);
        assert_eq!([20, 21, 22].map(|now| since(&x, now)), [15, 15, 22]);
        look(&x, 21, 0);
        assert_eq!([21, 22, 23].map(|now| since(&x, now)), [15, 15, 23]);
        look(&x, 30, 2);
        assert_eq!(since(&x, 30), 28, "a later time");
        recent.is_written(&x);
        assert_eq!(since(&x, 30), 30);
        let many: Vec<_> = (0..=MOST_BLOCKED).map(|n| lock(&n.to_string()).name).collect();
        many.iter().for_each(|lock| look(lock, 40, 5));
        let last = &many[MOST_BLOCKED];
        assert_eq!([&many[0], &many[MOST_BLOCKED - 1], last].map(|lock| since(lock, 40)), [35, 35, 40]);
        look(last, 50, 5);
        assert_eq!(
            [&many[0], last].map(|lock| since(lock, 50)),
            [50, 45],
            "in place of those of former times"
        );
        assert_eq!(recent.blocked.lock().len(), 1);
    }

    /// No server is there. The next attempt is not due at once.
    #[test]
    fn a_sweep_that_fails_is_made_later() {
        let address = Address::parse("postgres://x@127.0.0.1:1/x", &TlsConfig::default()).unwrap();
        let timeouts = Timeouts { connect: SECOND / 50, response: SECOND / 50 };
        let clients = Clients::new(address.clone(), WakeUps::default());
        let store = Arc::new(Store::new(Pool::new(address, timeouts, 2), clients));
        let now = Instant::now();
        store.sweeper.lock().next = now;
        store.sweep_if_due();
        assert!(store.sweeper.lock().next >= now + EVERY);
    }

    #[test]
    fn parts_get_smaller_when_unanswered_and_grow_again() {
        let (pace, next) = (Pace::new(), lock("x").name);
        assert_eq!((pace.most(), pace.begins_with()), (MOST_RENEWED, None));
        for (locks, most, grown) in [(9, 4, 8), (1, 1, 2), (2 * MOST_RENEWED, MOST_RENEWED, MOST_RENEWED)] {
            pace.unanswered(locks, &next);
            assert_eq!(
                (pace.most(), pace.begins_with(), pace.begins_with()),
                (most, Some(next.clone()), None)
            );
            pace.answered_in_good_time();
            assert_eq!(pace.most(), grown);
        }
    }

    #[test]
    fn the_whole_table_is_seen_in_ten_minutes_or_a_window_a_second() {
        let mut sweeper = Sweeper::new();
        for (pages, pause) in [(0, 600), (16, 600), (17, 300), (160, 60), (57_143, 1)] {
            assert_eq!(sweeper.pause(pages), Duration::from_secs(pause), "{pages}");
        }
        let mut seen = vec![false; 57_143];
        for _ in 0..3572 {
            let page = usize::try_from(sweeper.window()).unwrap();
            seen.iter_mut().skip(page).take(16).for_each(|seen| *seen = true);
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
