//! What a waiting caller and the watchdog do next for a claim.

use std::time::{Duration, Instant};

use super::agenda::{Due, Pauses, What, earlier};
use super::{Ask, Claim, End, Failure, GiveUp, Leaving, Phase};
use crate::backend::Wait;
use crate::cancel::Cancel;
use crate::error::LostCause;
use crate::ids::FencingToken;

/// How long a caller waits.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) wait: Wait,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<Cancel>,
    /// A request keeps its place when the wait is over; a call leaves the queue.
    pub(crate) keeps_place: bool,
}

/// What a caller that waits for a claim does next.
#[derive(Debug)]
pub(crate) enum CallerStep {
    /// The hold is the caller's.
    Take { token: FencingToken },
    /// Ask the server: no other thread is asking.
    Ask,
    /// Sleep until the signal is raised, or until this time.
    Sleep(Option<Instant>),
    /// The wait is over, and the place is kept.
    NotYet,
    /// The hold was granted, and expired before the caller took it: the caller gives the hold up and asks anew.
    TooLate,
    /// The lock was not granted.
    NotGranted,
    /// The claim has failed.
    Failed(Failure),
    /// The caller's time is over, or its wait was cancelled. The claim no longer counts this caller.
    GiveUp(GiveUp),
}

/// What a claim has at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    Waits,
}

/// What the watchdog does next for a claim.
#[derive(Debug)]
pub(crate) enum WatchdogStep {
    /// Nothing until this time.
    Wait(Option<Instant>),
    /// The hold has expired.
    Lose(LostCause),
    /// Ask, since no caller waits for the claim. The ask has been due since this time.
    Ask(Instant),
    /// The server was silent for too long, and the claim has failed; or the task's time is over. The claim is `Leaving` if the
    /// server may know of the request.
    GivenUp,
    /// A task has waited long enough for the end of its release.
    Tell,
    RenewPlace {
        /// The lease of the hold, if the renewal finds the lock free.
        lease: Duration,
    },
    RenewHold {
        token: FencingToken,
        count: u32,
        lease: Duration,
    },
}

/// The times that a round of the watchdog goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTimes {
    pub(crate) now: Instant,
    /// How long this round may take: what comes due in that time is done as well.
    pub(crate) meanwhile: Duration,
    pub(crate) pauses: Pauses,
}

impl RoundTimes {
    fn renews(&self, due: Due) -> bool {
        let may = self.pauses.renewals.is_none_or(|pause| pause <= self.now);
        may && due.at <= self.now + due.early.max(self.meanwhile)
    }
}

impl Claim {
    /// What a caller with this patience does next.
    pub(crate) fn caller_step(&self, patience: &Patience, now: Instant) -> CallerStep {
        let state = &mut *self.lock_state();
        let ask = state.contact.ask;
        match &state.phase {
            Phase::Held(held) if held.is_certain(now) => {
                return CallerStep::Take { token: held.token };
            }
            Phase::Held(_) | Phase::Lost(..) => return CallerStep::TooLate,
            Phase::Leaving(Leaving { end: End { failure, .. }, .. }) | Phase::Over(End { failure, .. }) => {
                return failure.clone().map_or(CallerStep::NotGranted, CallerStep::Failed);
            }
            Phase::Waiting(_) => {}
        }
        let cancelled = patience.cancel.as_ref().is_some_and(Cancel::is_cancelled);
        // A wait of zero that joins a longer wait only checks the claim; any other call asks at least once.
        let only_checks = patience.wait == Wait::No && self.wait != Wait::No;
        let is_over = patience.deadline.is_some_and(|deadline| deadline <= now);
        let late = is_over && ask != Ask::Never && !ask.is_under_way();
        if (only_checks || late) && patience.keeps_place && !cancelled {
            return CallerStep::NotYet;
        }
        if cancelled || only_checks || late {
            let wanted = patience.wait != Wait::No && !cancelled;
            return CallerStep::GiveUp(self.give_up(state, cancelled, wanted));
        }
        if ask.is_under_way() {
            return CallerStep::Sleep(None); // bounded by the backend's response time-out: the asker raises the signal
        }
        let asks_at = self.agenda(state, Pauses::default()).get(What::Ask).map(|due| due.at);
        match &mut state.phase {
            Phase::Waiting(waiting) if asks_at.is_some_and(|at| at <= now) => {
                waiting.begin_to_ask(&mut state.contact);
                CallerStep::Ask
            }
            _ => CallerStep::Sleep(earlier(asks_at, patience.deadline)),
        }
    }

    /// What the watchdog does now. Renewals that may go early do so: then many share a round trip.
    pub(crate) fn watchdog_step(&self, times: &RoundTimes) -> WatchdogStep {
        let state = &mut *self.lock_state();
        let now = times.now;
        let agenda = self.agenda(state, times.pauses);
        let due = |what| agenda.of_watchdog(what).filter(|due| due.at <= now);
        if due(What::End).is_some()
            && let Phase::Held(held) = &state.phase
        {
            return WatchdogStep::Lose(self.terms.cause_of_end(now, held.end));
        }
        if due(What::GiveUp).is_some() {
            self.give_up_asking(state);
            return WatchdogStep::GivenUp;
        }
        if due(What::Tell).is_some() {
            return self.end_wait_of_task(state, now);
        }
        let asks = due(What::Ask);
        // An ask renews the place as well, so only a renewal that can't wait goes before it.
        let renews = |due: &Due| times.renews(*due) && (asks.is_none() || due.at <= now);
        if agenda.of_watchdog(What::Renew).as_ref().is_some_and(renews) {
            state.contact.renewing = true;
            return match &state.phase {
                Phase::Held(held) => WatchdogStep::RenewHold {
                    token: held.token,
                    count: held.count,
                    lease: self.terms.next_lease(now, held.end),
                },
                _ => WatchdogStep::RenewPlace { lease: self.terms.first_lease() },
            };
        }
        match asks {
            Some(due) => WatchdogStep::Ask(due.at),
            None => WatchdogStep::Wait(agenda.next_of_watchdog()),
        }
    }

    /// Whether an outage that began at `since` concerns this claim: no command that was sent since then was answered. While some
    /// servers answer (`since` is None): whether the claim's last command failed.
    pub(crate) fn is_concerned(&self, since: Option<Instant>) -> Option<Standing> {
        let state = self.lock_state();
        let (standing, failed) = match &state.phase {
            Phase::Held(held) => (Standing::Holds, held.renewal.failed),
            Phase::Waiting(waiting) => {
                let failed = waiting.place.renewal.failed || state.contact.ask.failures() > 0;
                (Standing::Waits, failed)
            }
            Phase::Lost(..) | Phase::Leaving(_) | Phase::Over(_) => return None,
        };
        let is_unheard = |since: Instant| state.contact.heard.is_none_or(|heard| heard < since);
        (failed || since.is_some_and(is_unheard)).then_some(standing)
    }
}
