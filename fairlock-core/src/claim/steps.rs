//! What a waiting caller and the watchdog do next for a claim.

use std::time::{Duration, Instant};

use super::agenda::{Pauses, Planned, earlier};
use super::{Claim, Failure, Phase, State};
use crate::backend::{BackendError, BackendErrorKind, Wait};
use crate::cancel::Cancel;
use crate::error::LostCause;
use crate::ids::FencingToken;

/// How long a caller waits.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) wait: Wait,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<Cancel>,
    /// A request keeps its place when the wait is over; a call leaves the line.
    pub(crate) keeps_place: bool,
}

/// What a caller that waits for a claim does next.
#[derive(Debug)]
pub(crate) enum CallerStep {
    /// The hold is the caller's.
    Take { token: FencingToken, count: u32 },
    /// Ask the server: no other thread is asking.
    Ask,
    /// Sleep until the signal is raised, or until then.
    Sleep(Option<Instant>),
    /// The wait is over, and the place is kept.
    NotYet,
    /// It was granted, and expired before the caller took it: the caller gives its hold up and asks anew.
    TooLate,
    /// It was not granted. The claim no longer counts this caller.
    NotGranted,
    /// It has failed. The claim no longer counts this caller.
    Failed(Failure),
    /// The caller's time is over, or it was cancelled. The claim no longer counts it.
    GiveUp(GiveUp),
}

/// How a caller stopped waiting.
#[derive(Debug)]
pub(crate) struct GiveUp {
    pub(crate) cancelled: bool,
    pub(crate) after: AfterGivingUp,
    /// The last attempt was not answered.
    pub(crate) error: Option<BackendError>,
}

/// What a caller that gives up leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterGivingUp {
    /// Other callers of the same owner still wait.
    OthersWait,
    /// No other caller waits, and the server has to be told: the claim is `Leaving`.
    Withdraw,
    /// No other caller waits, and the server was never asked: the claim is `Over`.
    Nothing,
}

/// How a claim stands at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    Waits,
}

/// What the watchdog does next for a claim.
#[derive(Debug)]
pub(crate) enum WatchdogStep {
    /// Nothing until then.
    Wait(Option<Instant>),
    /// The hold has expired.
    Lose(LostCause),
    /// Ask for it, since no caller waits on it. That has been due since then.
    Ask(Instant),
    /// The server was silent for too long, and the claim has failed; or its task's time is over. It is `Leaving` if the server may
    /// know of it.
    GivenUp,
    /// A task has waited long enough for the end of its release.
    Tell,
    RenewPlace {
        /// The hold's, if the renewal finds the lock free.
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
    /// How long this round may take: it takes along what comes due in that time.
    pub(crate) meanwhile: Duration,
    pub(crate) pauses: Pauses,
}

impl RoundTimes {
    fn renews(&self, planned: Planned) -> bool {
        let may = self.pauses.renewals.is_none_or(|pause| pause <= self.now);
        may && planned.at <= self.now + planned.early.max(self.meanwhile)
    }
}

impl Claim {
    /// A caller begins to wait. While one waits it asks; else the watchdog does.
    pub(crate) fn attend(&self) {
        self.lock_state().attended += 1;
    }

    /// The caller has stopped waiting. Returns when the claim is next due for the watchdog.
    pub(crate) fn stop_attending(&self) -> Option<Instant> {
        let mut state = self.lock_state();
        state.attended -= 1;
        self.due_at_of(&state)
    }

    /// When the claim is next due for the watchdog, which may have its own reasons to be later: see [`Pauses`].
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due_at_of(&self.lock_state())
    }

    pub(super) fn due_at_of(&self, state: &State) -> Option<Instant> {
        self.watchdogs_agenda(state, Pauses::default()).next()
    }

    /// What a caller with this patience does next.
    pub(crate) fn caller_step(&self, patience: &Patience, now: Instant) -> CallerStep {
        let mut state = self.lock_state();
        if let Some(failure) = &state.failure {
            let failure = failure.clone();
            state.callers = state.callers.saturating_sub(1);
            return CallerStep::Failed(failure);
        }
        if let Some(held) = state.certain(now) {
            return CallerStep::Take { token: held.token, count: held.count };
        }
        match &state.phase {
            Phase::Held(_) | Phase::Lost(..) => return CallerStep::TooLate,
            Phase::Leaving { .. } | Phase::Over => return CallerStep::NotGranted,
            Phase::Waiting => {}
        }
        let cancelled = patience.cancel.as_ref().is_some_and(Cancel::is_cancelled);
        // A wait of zero that joins a longer wait only checks it; any other call asks at least once.
        let only_checks = patience.wait == Wait::No && self.wait != Wait::No;
        let late = patience.deadline.is_some_and(|deadline| deadline <= now) && state.asked && !state.asking;
        if (only_checks || late) && patience.keeps_place && !cancelled {
            return CallerStep::NotYet;
        }
        if cancelled || only_checks || late {
            return CallerStep::GiveUp(state.give_up(cancelled, patience.wait != Wait::No && !cancelled));
        }
        if state.asking {
            return CallerStep::Sleep(None); // bounded by the backend's response time-out: the asker raises the signal
        }
        let asks_at = self.agenda(&state, Pauses::default()).ask;
        if asks_at.is_some_and(|at| at <= now) {
            state.ask();
            return CallerStep::Ask;
        }
        CallerStep::Sleep(earlier(asks_at, patience.deadline))
    }

    /// What the watchdog does now. Renewals that may go early do, so that they share few round trips.
    pub(crate) fn watchdog_step(&self, times: &RoundTimes) -> WatchdogStep {
        let mut state = self.lock_state();
        let now = times.now;
        let agenda = self.watchdogs_agenda(&state, times.pauses);
        let is_due = |at: Option<Instant>| at.filter(|at| *at <= now);
        if is_due(agenda.end).is_some()
            && let Phase::Held(held) = &state.phase
        {
            return WatchdogStep::Lose(self.terms.cause_of_end(now, held.end));
        }
        if is_due(agenda.give_up).is_some() {
            let error = state.last_error.clone().unwrap_or_else(|| {
                BackendError::new(
                    BackendErrorKind::Unavailable,
                    "the request had to wait too long to be sent",
                )
            });
            self.fail(&mut state, Failure::Backend(error));
            return WatchdogStep::GivenUp;
        }
        if is_due(agenda.tell).is_some() {
            return self.end_wait_of_task(&mut state, now);
        }
        let asks = is_due(agenda.ask);
        // An ask renews the place as well, so only a renewal that can't wait goes before it.
        let renews = |planned: &Planned| times.renews(*planned) && (asks.is_none() || planned.at <= now);
        if agenda.renew.as_ref().is_some_and(renews) {
            state.renewing = true;
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
            Some(since) => WatchdogStep::Ask(since),
            None => WatchdogStep::Wait(agenda.next()),
        }
    }

    /// The watchdog asks for the request that [`watchdog_step`](Self::watchdog_step) named, unless a caller does by now.
    pub(crate) fn begin_to_ask(&self) -> bool {
        let mut state = self.lock_state();
        let may = matches!(state.phase, Phase::Waiting) && !state.asking;
        if may {
            state.ask();
        }
        may
    }

    /// The last attempt to ask was not answered.
    pub(crate) fn last_ask_failed(&self) -> bool {
        self.lock_state().failures > 0
    }

    /// Whether an outage concerns it that began at `since`: no command that was sent since then was answered. Where some servers
    /// answer (`since` is None), the last command has to have failed.
    pub(crate) fn is_concerned(&self, since: Option<Instant>) -> Option<Standing> {
        let state = self.lock_state();
        let (standing, failed) = match &state.phase {
            Phase::Held(_) => (Standing::Holds, state.unrenewed),
            Phase::Waiting => (Standing::Waits, state.unrenewed || state.failures > 0),
            Phase::Lost(..) | Phase::Leaving { .. } | Phase::Over => return None,
        };
        let is_unheard = |since: Instant| state.heard.is_none_or(|heard| heard < since);
        (failed || since.is_some_and(is_unheard)).then_some(standing)
    }

    /// A wake-up says that the lock may be free. Returns whether the watchdog has to be told, since no caller waits.
    pub(crate) fn wake(&self) -> bool {
        let mut state = self.lock_state();
        if !matches!(state.phase, Phase::Waiting) {
            return false;
        }
        state.ask_now = true;
        let unattended = state.attended == 0;
        drop(state);
        self.raise();
        unattended
    }

    /// After a gap in the wake-ups: the place or the hold is to be renewed at once.
    pub(crate) fn renew_at_once(&self, now: Instant) {
        let mut state = self.lock_state();
        state.renew = state.renew.map(|_| Planned::at_once(now));
    }

    /// Whether the server has ever answered for this request.
    pub(crate) fn was_heard(&self) -> bool {
        self.lock_state().heard.is_some()
    }

    /// The server has been silent about this request: at least one heartbeat was not answered.
    pub(crate) fn silence(&self, now: Instant) -> Option<BackendError> {
        self.silence_of(&self.lock_state(), now)
    }

    /// For how long the server has not answered about this request, if it was asked.
    pub(super) fn silent_for(&self, state: &State, now: Instant) -> Option<Duration> {
        state.asked.then(|| now.saturating_duration_since(self.silent_since(state)))
    }

    pub(super) fn silence_of(&self, state: &State, now: Instant) -> Option<BackendError> {
        let silent = self.silent_for(state, now)?;
        let is_long = self.wait != Wait::No && silent >= self.config.place_ttl * 2 / 3;
        is_long.then(|| {
            let what = format!("no word of this request for {} ms", silent.as_millis());
            BackendError::new(BackendErrorKind::Unavailable, what)
        })
    }

    /// A request is dropped: one caller fewer wants the claim. None if the claim does not wait.
    pub(crate) fn give_up_request(&self) -> Option<GiveUp> {
        let mut state = self.lock_state();
        if state.failure.is_some() {
            return None;
        }
        matches!(state.phase, Phase::Waiting).then(|| state.give_up(true, false))
    }
}

impl State {
    /// The reason to ask is used up *before* the request is sent: a wake-up that comes while the request is under way may be
    /// about a release that the server saw after it, and must lead to another ask.
    fn ask(&mut self) {
        self.asking = true;
        self.asked = true;
        self.polling = !std::mem::take(&mut self.ask_now);
        self.recheck_at = None;
    }

    /// One caller stops waiting. The last one leaves the line, `wanted` if it takes a lock that turns out to have been
    /// granted to it in this very moment.
    pub(super) fn give_up(&mut self, cancelled: bool, wanted: bool) -> GiveUp {
        self.callers -= 1;
        self.task_until = None;
        let error = self.last_error.clone();
        let after = if self.callers > 0 {
            AfterGivingUp::OthersWait
        } else if self.may_be_known() {
            self.failures = 0; // from here on those of the withdrawal
            // From here on no push and no answer is believed: the answer to the withdrawal decides.
            self.phase = Phase::Leaving { held: None, wanted, lost: None };
            AfterGivingUp::Withdraw
        } else {
            self.phase = Phase::Over;
            AfterGivingUp::Nothing
        };
        GiveUp { cancelled, after, error }
    }
}
