//! What a client does while the server does not answer: it pauses before it repeats, and says so in the log.
//!
//! An outage has a line at the beginning, one a minute, and one at the end, however many holds, waiters and attempts the outage
//! concerns. It begins with an unanswered renewal, release or withdrawal. It is over when the server has answered since, and nothing
//! that failed is left. Without an answer it goes on, even if all is lost or given up.
//!
//! Releases and withdrawals that the server *refuses* have one line a minute at most: a server without some right would else have a
//! line for each.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::BackendError;
use crate::backlog::{Backlog, Cleanup};
use crate::claim::{Pauses, Standing};
use crate::config::Config;
use crate::ids::LockName;
use crate::ledger::Registry;
use crate::logging::{LineLimit, MINUTE, log_line, ms};
use crate::time::{Retries, Signal};

pub(crate) struct Outage {
    config: Arc<Config>,
    /// Wakes the watchdog, which looks whether the outage is over.
    signal: Arc<Signal>,
    /// Whether the latest call was not answered.
    silent: AtomicBool,
    pub(crate) renewals: Retries,
    /// The pause of asks for requests without a waiting caller.
    pub(crate) asks: Retries,
    lines: Mutex<Lines>,
    pub(crate) refused: Refused,
    /// The lines about places that the server has lost.
    pub(crate) places_gone: LineLimit,
}

impl Outage {
    pub(crate) fn new(config: &Arc<Config>, signal: &Arc<Signal>) -> Outage {
        Outage {
            config: Arc::clone(config),
            signal: Arc::clone(signal),
            silent: AtomicBool::new(false),
            renewals: Retries::default(),
            asks: Retries::default(),
            lines: Mutex::default(),
            refused: Refused::default(),
            places_gone: LineLimit::new(),
        }
    }

    /// A call was answered. After the first answer in an outage the watchdog looks whether the outage is over.
    pub(crate) fn heard(&self) {
        if self.silent.load(Ordering::Acquire) {
            self.silent.store(false, Ordering::Release);
            self.signal.raise();
        }
    }

    /// A call that was sent at `sent` was not answered; `failed`: its lock and its error. `others_answer`: another server answered
    /// a call at the same time.
    pub(crate) fn heard_nothing(
        &self,
        registry: &Registry,
        backlog: &Backlog,
        sent: Instant,
        failed: (LockName, BackendError),
        others_answer: bool,
    ) {
        let now = self.config.now();
        self.silent.store(true, Ordering::Release);
        let line = self.lines.lock().failed(sent, now, failed);
        // Counted only if a line is to be logged: there may be many claims, and many calls fail.
        let Some(line) = line else { return };
        let concerned = concerned(registry, backlog, (!others_answer).then_some(line.since));
        self.lines.lock().concerns(concerned);
        line.write(&self.config.label, concerned);
    }

    /// The outage is over when the server has answered, and nothing that failed is left.
    pub(crate) fn end_if_over(&self, registry: &Registry, backlog: &Backlog) {
        if self.silent.load(Ordering::Acquire) || !self.lasts() {
            return;
        }
        if registry.has(|claim| claim.is_concerned(None).is_some()) || backlog.is_unanswered() {
            return;
        }
        self.renewals.answered();
        let ended = self.lines.lock().ended(self.config.now());
        if let Some((line, concerned)) = ended {
            line.write(&self.config.label, concerned);
        }
    }

    pub(crate) fn lasts(&self) -> bool {
        self.lines.lock().lasts()
    }

    /// For how long the outage has lasted.
    pub(crate) fn lasted(&self) -> Option<Duration> {
        self.lines.lock().lasted(self.config.now())
    }

    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { renewals: self.renewals.not_before(), asks: self.asks.not_before() }
    }

    /// A thread panicked in some request. Returns whether that is to be logged.
    pub(crate) fn panicked(&self, now: Instant) -> bool {
        for kind in [&self.renewals, &self.asks] {
            kind.failed(now, self.config.longest_pause());
        }
        self.lines.lock().panicked(now)
    }
}

fn concerned(registry: &Registry, backlog: &Backlog, since: Option<Instant>) -> Concerned {
    let mut concerned = Concerned { releases: backlog.len(), ..Concerned::default() };
    registry.for_each(|claim| match claim.is_concerned(since) {
        Some(Standing::Holds) => concerned.holds += 1,
        Some(Standing::Waits) => concerned.waiters += 1,
        None => {}
    });
    concerned
}

/// If an outage begins within a minute after another outage, it is logged only when it has lasted this long: a server that drops
/// one request in ten is not worth a line for each.
const LASTING: Duration = Duration::from_secs(5);

/// How much of a client an outage concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Concerned {
    holds: usize,
    waiters: usize,
    /// Releases and withdrawals that are repeated.
    releases: usize,
}

/// The outage that lasts, if there is one, and what was written last.
#[derive(Debug, Default)]
struct Lines {
    current: Option<Current>,
    /// When the last outage that was logged was logged first.
    last_begun: Option<Instant>,
    /// When the last line about a panic was written.
    panic_logged: Option<Instant>,
}

#[derive(Debug)]
struct Current {
    /// When the first call was sent that was not answered.
    since: Instant,
    /// When its last line was written.
    logged: Option<Instant>,
    /// The most that a line has told of.
    concerned: Concerned,
    /// The last call that was not answered: its lock, and its error.
    failed: (LockName, BackendError),
}

/// A line that is to be written.
#[derive(Debug)]
struct Line {
    what: What,
    since: Instant,
    lasted: Duration,
    failed: (LockName, BackendError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Begins,
    Lasts,
    IsOver,
}

impl Lines {
    fn lasts(&self) -> bool {
        self.current.is_some()
    }

    /// For how long it has lasted.
    fn lasted(&self, now: Instant) -> Option<Duration> {
        self.current.as_ref().map(|current| now.saturating_duration_since(current.since))
    }

    /// A call that was sent at `sent` was not answered; `failed` is its lock and its error.
    fn failed(&mut self, sent: Instant, now: Instant, failed: (LockName, BackendError)) -> Option<Line> {
        let current = self.current.get_or_insert_with(|| Current {
            since: sent,
            logged: None,
            concerned: Concerned::default(),
            failed: failed.clone(),
        });
        current.failed = failed;
        let (since, lasted) = (current.since, now.saturating_duration_since(current.since));
        let over =
            |last: Option<Instant>| last.is_none_or(|last| now.saturating_duration_since(last) >= MINUTE);
        let what = match current.logged {
            Some(_) if over(current.logged) => What::Lasts,
            None if lasted >= LASTING || over(self.last_begun) => {
                self.last_begun = Some(now);
                What::Begins
            }
            _ => return None,
        };
        current.logged = Some(now);
        Some(Line { what, since, lasted, failed: current.failed.clone() })
    }

    /// What the last line tells of.
    fn concerns(&mut self, now: Concerned) {
        if let Some(Current { concerned, .. }) = &mut self.current {
            concerned.holds = concerned.holds.max(now.holds);
            concerned.waiters = concerned.waiters.max(now.waiters);
            concerned.releases = concerned.releases.max(now.releases);
        }
    }

    /// A thread panicked. Returns whether it is to be logged.
    fn panicked(&mut self, now: Instant) -> bool {
        let is_due = self.panic_logged.is_none_or(|logged| now.saturating_duration_since(logged) >= MINUTE);
        if is_due {
            self.panic_logged = Some(now);
        }
        is_due
    }

    /// The server answers, and nothing that failed is left. The line tells of this.
    fn ended(&mut self, now: Instant) -> Option<(Line, Concerned)> {
        let Current { since, logged, concerned, failed } = self.current.take()?;
        let lasted = now.saturating_duration_since(since);
        logged.map(|_| (Line { what: What::IsOver, since, lasted, failed }, concerned))
    }
}

impl Line {
    fn write(&self, label: &str, concerned: Concerned) {
        let Line { what, lasted, failed: (lock, error), .. } = self;
        let whom = format!("{concerned} of {label}");
        let (event, text) = match what {
            What::Begins => {
                ("outage begins", format!("an outage has begun, affecting {whom}; lock {lock}: {error}"))
            }
            What::Lasts => (
                "outage lasts",
                format!("the outage has lasted {lasted:.0?}, affecting {whom}; lock {lock}: {error}"),
            ),
            What::IsOver => {
                ("outage over", format!("the outage is over after {lasted:.1?}; it affected {whom}"))
            }
        };
        let Concerned { holds, waiters, releases } = concerned;
        log_line!(warn, "fairlock::watchdog",
            event = event, label = label, holds = holds, waiters = waiters, releases = releases,
            lasted_ms = ms(*lasted), lock = lock.as_str(), error:% = error;
            "{text}"
        );
    }
}

impl fmt::Display for Concerned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Concerned { holds, waiters, releases } = *self;
        let s = |count: usize| if count == 1 { "" } else { "s" };
        write!(f, "{holds} hold{} and {waiters} waiter{}", s(holds), s(waiters))?;
        if releases > 0 {
            write!(f, " ({releases} unanswered release{} or withdrawal{0})", s(releases))?;
        }
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Refused {
    limit: LineLimit,
    /// The first of those that stand in no line yet.
    first: Mutex<Option<First>>,
}

pub(crate) struct First {
    pub(crate) lock: LockName,
    pub(crate) cleanup: Cleanup,
    pub(crate) error: BackendError,
}

impl Refused {
    /// So many more cleanups were refused. Writes the line, if it is due. Returns when the line is due, if that is later.
    pub(crate) fn tell(&self, count: usize, first: First, now: Instant) -> Option<Instant> {
        self.write(Some(first), || self.limit.count(count as u64, now));
        self.limit.due_at()
    }

    /// Writes the line about all that was refused since the last line, if it is due. Returns when the line is due, if that is later.
    pub(crate) fn tell_rest(&self, now: Instant) -> Option<Instant> {
        if self.limit.due_at().is_some_and(|at| at <= now) {
            self.write(None, || self.limit.count(0, now));
        }
        self.limit.due_at()
    }

    /// Writes that line at the end of the client, due or not.
    pub(crate) fn tell_at_the_end(&self) {
        self.write(None, || self.limit.rest());
    }

    fn write(&self, latest: Option<First>, count: impl FnOnce() -> Option<u64>) {
        // Counted under the mutex: another thread must not take the first of what is counted here.
        let mut first = self.first.lock();
        *first = first.take().or(latest);
        let told = count().and_then(|count| Some((count, first.take()?)));
        drop(first);
        let Some((count, First { lock, cleanup, error })) = told else { return };
        log_line!(warn, "fairlock::release",
            event = "refused", lock = lock.as_str(), task:? = cleanup, count = count, error:% = error;
            "{count} releases or withdrawals refused, and repeated; the first is {cleanup:?} for lock {lock}: {error}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;
    use crate::time::Clock;

    #[test]
    fn the_first_answer_in_an_outage_wakes_the_watchdog() {
        let clock = Clock::system();
        let signal = Arc::new(Signal::new(&clock));
        let outage = Outage::new(&Arc::new(Config::of_tests(clock)), &signal);
        let heard = || {
            let seen = signal.generation();
            outage.heard();
            signal.generation() != seen
        };
        assert!(!heard());
        let failed = (LockName::new("x").unwrap(), BackendError::new(BackendErrorKind::Unavailable, "down"));
        outage.heard_nothing(&Registry::default(), &Backlog::default(), Instant::now(), failed, false);
        assert_eq!([heard(), heard()], [true, false]);
    }

    const S: Duration = Duration::from_secs(1);

    struct Case {
        lines: Lines,
        start: Instant,
    }

    impl Case {
        fn new() -> Case {
            Case { lines: Lines::default(), start: Instant::now() }
        }

        /// What the log says of a call that failed this many seconds after the start.
        fn failed(&mut self, at: u32) -> Option<What> {
            let (lock, now) = (LockName::new("x").unwrap(), self.start + at * S);
            let error = BackendError::new(BackendErrorKind::Unavailable, format!("down {at}"));
            let line = self.lines.failed(now, now, (lock, error.clone()))?;
            assert_eq!(line.failed.1.message(), error.message(), "the last failure");
            Some(line.what)
        }

        fn ended(&mut self, at: u32) -> Option<(What, Duration, Concerned)> {
            let (line, concerned) = self.lines.ended(self.start + at * S)?;
            Some((line.what, line.lasted, concerned))
        }
    }

    /// An outage has a line when it begins, a line each minute, and a line when it is over.
    #[test]
    fn an_outage_has_a_first_line_one_a_minute_and_a_last() {
        let mut case = Case::new();
        assert_eq!([0, 1, 59, 60, 61, 119, 120].map(|at| case.failed(at)), {
            let (begins, lasts) = (Some(What::Begins), Some(What::Lasts));
            [begins, None, None, lasts, None, None, lasts]
        });
        case.lines.concerns(Concerned { holds: 3, waiters: 1, releases: 5 });
        case.lines.concerns(Concerned { holds: 2, waiters: 4, releases: 1 });
        let most = Concerned { holds: 3, waiters: 4, releases: 5 };
        assert_eq!(case.ended(121), Some((What::IsOver, 121 * S, most)));
        assert!(!case.lines.lasts() && case.ended(122).is_none());
    }

    #[test]
    fn an_outage_soon_after_another_one_is_logged_once_it_lasts() {
        let mut case = Case::new();
        assert_eq!((case.failed(0), case.ended(1).is_some()), (Some(What::Begins), true));
        // Too short for a line.
        assert_eq!((case.failed(10), case.failed(14), case.ended(15)), (None, None, None));
        assert_eq!((case.failed(20), case.failed(25)), (None, Some(What::Begins)));
        assert!(case.ended(30).is_some());
        // A minute after the last one began.
        assert_eq!((case.failed(84), case.failed(85)), (None, Some(What::Begins)));
    }
}
