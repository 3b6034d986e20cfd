//! The interleavings of answers, pushes, renewals and callers that leave, one by one.

mod agenda;
mod asks;
mod callers;
mod holds;
mod leaks;
mod leaving;
mod phases;
mod pushes;
mod rounds;
mod stop;
mod story;
mod tasks;
mod tickets;
mod times;
mod units;

use std::time::{Duration, Instant};

use story::{claim, held, in_queue};

use super::*;
use crate::backend::{Acquired, BackendError, BackendErrorKind, Renewal};
use crate::losses::FirstLoss;
use crate::tests::names::{S, ms, ns};
use crate::tests::scene::*;
use crate::{Clock, LockKind, LockName};

const NOW: Duration = Duration::ZERO;
const LEASE: Duration = Duration::from_secs(30);
const OUTAGE: Duration = Duration::from_secs(10);
const TOKEN: FencingToken = FencingToken::new(7);

impl Claim {
    /// A request of this owner for a fair lock, for tests of what keeps claims.
    pub(crate) fn of_tests(lock: &LockName, owner: &str) -> Arc<Claim> {
        let config = Arc::new(Config::of_tests(Clock::system()));
        let (lock, terms) = (LockId::new(lock.clone(), LockKind::Fair), Terms::Renewed(LEASE));
        Arc::new(Claim::new(lock, OwnerId::new(owner), Wait::Forever, terms, 1, &config, Instant::now()))
    }
}

/// A claim, and the time of its story.
struct Case {
    claim: Claim,
    start: Instant,
    at: Duration,
    meanwhile: Duration,
    pauses: Pauses,
    /// Of the next callers, if it is not that of the request.
    patience: Option<Patience>,
    /// What the claim has said last.
    said: String,
}

impl Case {
    fn with(wait: Wait, terms: Terms) -> Case {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
        let (config, start) = (Arc::new(Config::of_tests(Clock::system())), Instant::now());
        let claim = Claim::new(lock, OwnerId::new("u:1"), wait, terms, 1, &config, start);
        Case {
            claim,
            start,
            at: NOW,
            meanwhile: NOW,
            pauses: Pauses::default(),
            patience: None,
            said: String::new(),
        }
    }

    fn new() -> Case {
        Case::with(Wait::Forever, Terms::Renewed(LEASE))
    }

    fn of_units(kind: LockKind, units: u32) -> Case {
        let mut case = Case::new();
        (case.claim.lock.kind, case.claim.units) = (kind, units);
        case
    }

    fn patience_of(&self, wait: Wait) -> Patience {
        let deadline = if let Wait::UpTo(time) = wait { Some(self.start + time) } else { None };
        let condition = Condition::default();
        Patience { wait, deadline, cancel: None, condition, keeps_place: false }
    }

    fn step(&self, at: Duration) -> CallerStep {
        let usual = self.patience_of(self.claim.wait);
        self.claim.caller_step(self.patience.as_ref().unwrap_or(&usual), self.start + at)
    }

    fn times(&self, at: Duration) -> RoundTimes {
        RoundTimes { now: self.start + at, meanwhile: self.meanwhile, pauses: self.pauses }
    }

    fn watchdog_step(&self, at: Duration) -> WatchdogStep {
        self.claim.watchdog_step(&self.times(at))
    }

    fn answer_at(&self, sent: Duration, answer: Result<Acquired, BackendError>) -> AfterAnswer {
        self.claim.answered(answer, self.start + sent, self.start + sent)
    }

    fn granted(&self, sent: Duration) -> AfterAnswer {
        self.answer_at(sent, Ok(Acquired::Granted { token: TOKEN, lease: LEASE }))
    }

    fn push_at(&self, at: Duration) -> bool {
        self.claim.pushed(TOKEN, self.start + at)
    }

    fn renewed(&self, sent: Duration, answer: Renewal) -> AfterRenewal {
        self.claim.renewed(Ok(answer), self.start + sent, LEASE, self.start + sent)
    }
}

fn silent_for(claim: &Claim, now: Instant) -> Option<Duration> {
    let contact = &claim.lock_state().contact;
    (contact.ask != Ask::Never).then(|| now.saturating_duration_since(claim.silent_since(contact)))
}

fn unavailable() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "down")
}
