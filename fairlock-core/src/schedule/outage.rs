//! The log of an outage: a line at its begin, one a minute, and one at its end, however many holds and places it concerns
//! and however often they are tried.

use std::time::{Duration, Instant};

use crate::backend::BackendError;
use crate::claim::Claim;
use crate::logging::{log_safely, ms};

/// The shortest time between two lines of the same kind.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// An outage that begins within a minute after another one is logged once it has lasted this long: a server that drops
/// one request in ten is not worth a line for each.
const LASTING: Duration = Duration::from_secs(5);

/// What a round of renewals left without an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unanswered {
    pub(crate) holds: usize,
    pub(crate) places: usize,
    /// The lock of the first of them, and its error.
    first: Option<(String, BackendError)>,
}

impl Unanswered {
    pub(crate) fn add(&mut self, claim: &Claim, is_hold: bool, error: BackendError) {
        *(if is_hold { &mut self.holds } else { &mut self.places }) += 1;
        self.first.get_or_insert_with(|| (claim.lock.name.to_string(), error));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// The outage that lasts, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    current: Option<Current>,
    /// When the last outage that was logged was logged first.
    last_begun: Option<Instant>,
}

#[derive(Debug)]
struct Current {
    since: Instant,
    /// When its last line was written.
    logged: Option<Instant>,
    unanswered: Unanswered,
}

/// A line that is to be written.
#[derive(Debug)]
pub(crate) enum Report {
    Begins(Unanswered),
    Lasts(Unanswered, Duration),
    Ends(Unanswered, Duration),
}

impl Outage {
    pub(crate) fn lasts(&self) -> bool {
        self.current.is_some()
    }

    /// A round had failures.
    pub(crate) fn failed(&mut self, now: Instant, unanswered: Unanswered) -> Option<Report> {
        let current = self.current.get_or_insert_with(|| Current {
            since: now,
            logged: None,
            unanswered: Unanswered::default(),
        });
        current.unanswered = unanswered.clone();
        let lasted = now.saturating_duration_since(current.since);
        let over =
            |last: Option<Instant>| last.is_none_or(|last| now.saturating_duration_since(last) >= MINUTE);
        let report = match current.logged {
            Some(_) if over(current.logged) => Report::Lasts(unanswered, lasted),
            None if lasted >= LASTING || over(self.last_begun) => {
                self.last_begun = Some(now);
                Report::Begins(unanswered)
            }
            _ => return None,
        };
        current.logged = Some(now);
        Some(report)
    }

    /// Everything was answered. The report has what was left unanswered last.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<Report> {
        let Current { since, logged, unanswered } = self.current.take()?;
        logged.map(|_| Report::Ends(unanswered, now.saturating_duration_since(since)))
    }
}

impl Report {
    pub(crate) fn write(&self) {
        let (event, unanswered, lasted) = match self {
            Report::Begins(unanswered) => ("not renewed", unanswered, Duration::ZERO),
            Report::Lasts(unanswered, lasted) => ("not renewed yet", unanswered, *lasted),
            Report::Ends(unanswered, lasted) => ("renewed again", unanswered, *lasted),
        };
        let Unanswered { holds, places, first } = unanswered;
        let Some((lock, error)) = first else { return };
        let counts = format!("holds: {holds}, places: {places}");
        let what = match self {
            Report::Begins(_) => format!("not renewed ({counts})"),
            Report::Lasts(..) => format!("not renewed for {lasted:.0?} ({counts})"),
            Report::Ends(..) => {
                format!("after {lasted:.1?} all is renewed again, or over (last not renewed: {counts})")
            }
        };
        log_safely(|| {
            log::warn!(
                target: "fairlock::watchdog",
                event = event, lock = lock.as_str(), holds = holds, places = places, lasted_ms = ms(lasted),
                error:% = error;
                "{what}; the first, of lock {lock}: {error}"
            );
        });
    }
}
