//! When something is next due for a claim, and what. Only this module works that out: waiting callers, the watchdog, and
//! every thread that tells the watchdog of a change go by it.

use std::time::{Duration, Instant};

use super::{Claim, Phase, State};

/// A renewal of a hold or a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: Instant,
    /// It may be sent so much earlier, together with others.
    pub(super) early: Duration,
}

impl Planned {
    /// It may go with others in the last third of the time until then.
    pub(super) fn gathered(now: Instant, at: Instant) -> Planned {
        Planned { at, early: at.saturating_duration_since(now) / 3 }
    }

    /// Now, and not earlier: a retry, or the renewal after a gap.
    pub(super) fn at_once(now: Instant) -> Planned {
        Planned { at: now, early: Duration::ZERO }
    }

    /// The same, but no later than `latest`.
    fn by(self, latest: Instant) -> Planned {
        let sooner = self.at.saturating_duration_since(latest);
        Planned { at: self.at - sooner, early: self.early.saturating_sub(sooner) }
    }
}

/// What comes due for a claim if nothing happens before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agenda {
    /// To ask for the request, unless a thread is asking.
    pub(super) ask: Option<Instant>,
    /// To renew the place or the hold, unless a thread is renewing it.
    pub(super) renew: Option<Planned>,
    /// The hold expires.
    pub(super) end: Option<Instant>,
    /// To give up: the server was silent for too long, and there is an error that says so.
    pub(super) give_up: Option<Instant>,
    /// To tell the claim's task: that the time of its wait is over, or that its release has no answer.
    pub(super) tell: Option<Instant>,
}

/// Before these times the watchdog repeats nothing that was not answered. They are the same for all claims of a client, so that
/// their retries go together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// For renewals, also for first attempts: these have time, and would fail too.
    pub(crate) renewals: Option<Instant>,
    /// For asking again.
    pub(crate) asks: Option<Instant>,
}

impl Agenda {
    /// When the first of it is due.
    pub(super) fn next(self) -> Option<Instant> {
        let keeps = earlier(self.renew.map(|planned| planned.at), self.end);
        earlier(earlier(keeps, self.ask), earlier(self.give_up, self.tell))
    }
}

/// The earlier one of two times, if there is any.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Claim {
    /// `pauses`: the watchdog's. A caller that asks has its own pause, `recheck_at`, and needs none of these.
    pub(super) fn agenda(&self, state: &State, pauses: Pauses) -> Agenda {
        let not_before = |at: Instant, pause: Option<Instant>| pause.map_or(at, |pause| at.max(pause));
        let renew = state.renew.filter(|_| !state.renewing).map(|planned| {
            let planned = state.passed_recheck.map_or(planned, |by| planned.by(by));
            Planned { at: not_before(planned.at, pauses.renewals), ..planned }
        });
        match &state.phase {
            // A grant that no poll takes is renewed for one lease only: a task that is never polled again must not keep the lock.
            Phase::Held(held) => {
                let renew =
                    renew.filter(|planned| !state.untaken || planned.at < held.since + self.config.lease);
                Agenda { renew, end: Some(held.valid_until), ..Agenda::default() }
            }
            Phase::Waiting => {
                let silent_until = self.silent_since(state) + self.config.outage_limit;
                let ask = match state.failures {
                    _ if state.asking => None,
                    0 if !state.asked || state.ask_now => Some(self.since),
                    0 => Some(state.recheck_at.map_or(silent_until, |at| at.min(silent_until))),
                    // While attempts fail only the pause counts: a wake-up must not make a retry loop spin.
                    _ => state.recheck_at.map(|at| not_before(at, pauses.asks)),
                };
                // Of many tasks that ask at once some may not have had their turn by then.
                let has_reason = state.last_error.is_some() || self.is_tasks() && !state.asked;
                let give_up = (has_reason && !state.asking).then_some(silent_until);
                // A wait asks at least once, as a thread's does.
                let tell = state.task_until.filter(|_| state.asked && !state.asking);
                Agenda { ask, renew: renew.filter(|_| state.in_line), end: None, give_up, tell }
            }
            Phase::Leaving { .. } => Agenda { tell: state.task_until, ..Agenda::default() },
            Phase::Lost(..) | Phase::Over => Agenda::default(),
        }
    }

    /// The part of it that is the watchdog's. A thread that waits for the claim asks and gives up itself. A task does neither: the
    /// first attempt is made by the thread for tasks, which attends to the claim until then.
    pub(super) fn watchdogs_agenda(&self, state: &State, pauses: Pauses) -> Agenda {
        let agenda = self.agenda(state, pauses);
        match state.attended {
            0 => agenda,
            _ => Agenda { ask: None, give_up: agenda.give_up.filter(|_| self.is_tasks()), ..agenda },
        }
    }

    /// Since when the server has not answered about this request.
    pub(super) fn silent_since(&self, state: &State) -> Instant {
        state.heard.unwrap_or(self.since)
    }
}
