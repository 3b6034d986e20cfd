//! The log of an outage: a line at the beginning, one a minute, and one at the end, however many holds, waiters and attempts the
//! outage concerns.
//!
//! An outage begins with an unanswered renewal, release or withdrawal. It is over when the server has answered since, and nothing that
//! failed is left. Without an answer it goes on, even if all is lost or given up.

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::BackendError;
use crate::ids::LockName;
use crate::logging::{MINUTE, log_line, ms};

/// If an outage begins within a minute after another outage, it is logged only when it has lasted this long: a server that drops
/// one request in ten is not worth a line for each.
const LASTING: Duration = Duration::from_secs(5);

/// How much of a client an outage concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Concerned {
    pub(super) holds: usize,
    pub(super) waiters: usize,
    /// Releases and withdrawals that are repeated.
    pub(super) releases: usize,
}

/// The outage that lasts, if there is one, and what was written last.
#[derive(Debug, Default)]
pub(super) struct Lines {
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
pub(super) struct Line {
    what: What,
    pub(super) since: Instant,
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
    pub(super) fn lasts(&self) -> bool {
        self.current.is_some()
    }

    /// For how long it has lasted.
    pub(super) fn lasted(&self, now: Instant) -> Option<Duration> {
        self.current.as_ref().map(|current| now.saturating_duration_since(current.since))
    }

    /// A call that was sent at `sent` was not answered; `failed` is its lock and its error.
    pub(super) fn failed(
        &mut self,
        sent: Instant,
        now: Instant,
        failed: (LockName, BackendError),
    ) -> Option<Line> {
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
    pub(super) fn concerns(&mut self, now: Concerned) {
        if let Some(Current { concerned, .. }) = &mut self.current {
            concerned.holds = concerned.holds.max(now.holds);
            concerned.waiters = concerned.waiters.max(now.waiters);
            concerned.releases = concerned.releases.max(now.releases);
        }
    }

    /// A thread panicked. Returns whether it is to be logged.
    pub(super) fn panicked(&mut self, now: Instant) -> bool {
        let is_due = self.panic_logged.is_none_or(|logged| now.saturating_duration_since(logged) >= MINUTE);
        if is_due {
            self.panic_logged = Some(now);
        }
        is_due
    }

    /// The server answers, and nothing that failed is left. The line tells of this.
    pub(super) fn ended(&mut self, now: Instant) -> Option<(Line, Concerned)> {
        let Current { since, logged, concerned, failed } = self.current.take()?;
        let lasted = now.saturating_duration_since(since);
        logged.map(|_| (Line { what: What::IsOver, since, lasted, failed }, concerned))
    }
}

impl Line {
    pub(super) fn write(&self, label: &str, concerned: Concerned) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

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
