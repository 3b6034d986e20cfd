//! What is to be done next for a claim: by a caller who waits for it, and by the watchdog.

use std::time::{Duration, Instant};

use super::{Claim, Failure, Phase, State};
use crate::backend::{BackendError, Wait};
use crate::handle::Cancel;
use crate::{FencingToken, LostCause};

/// How long a caller waits.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) wait: Wait,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<Cancel>,
    /// A request keeps its place when the wait is over; a call gives it up.
    pub(crate) keeps_place: bool,
}

/// What a caller who waits for a claim does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The hold is his.
    Take { count: u32 },
    /// Ask the server; nobody else is asking.
    Ask,
    /// Sleep until the signal is raised, at the longest until then.
    Sleep(Option<Instant>),
    /// The wait is over, and the place is kept.
    NotYet,
    /// It was granted, and is over before he took it: he gives his hold back and asks anew.
    TooLate,
    /// It was not granted. He is no longer one of its callers.
    NotGranted,
    /// It came to nothing. He is no longer one of its callers.
    Failed(Failure),
    /// His time is over, or he was cancelled. He is no longer one of its callers.
    GiveUp(GiveUp),
}

/// How a caller stopped waiting.
#[derive(Debug)]
pub(crate) struct GiveUp {
    pub(crate) cancelled: bool,
    pub(crate) rest: Rest,
    /// The last word was not the server's.
    pub(crate) error: Option<BackendError>,
}

/// What a caller who gives up leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Others of the same owner still wait.
    Others,
    /// Nobody waits, and the server has to be told: the claim is `Leaving`.
    Withdraw,
    /// Nobody waits, and the server never heard of it: the claim is `Over`.
    Nothing,
}

/// What the watchdog has to do for a claim.
#[derive(Debug)]
pub(crate) enum Duty {
    /// Nothing until then.
    None(Option<Instant>),
    /// Its time is over.
    Lose(LostCause),
    /// Ask for it, since nobody waits on it.
    Ask,
    RenewPlace,
    RenewHold {
        token: FencingToken,
        count: u32,
        lease: Duration,
    },
}

impl Claim {
    /// A caller begins to wait. While one does, he asks; else the watchdog does.
    pub(crate) fn attend(&self) {
        self.lock_state().attended += 1;
    }

    /// He has stopped waiting. Returns when the watchdog has to look after the claim.
    pub(crate) fn stop_attending(&self) -> Option<Instant> {
        let mut state = self.lock_state();
        state.attended -= 1;
        state.due_at()
    }

    /// What a caller with this patience does next.
    pub(crate) fn next_step(&self, patience: &Patience, now: Instant, outage_limit: Duration) -> Step {
        let mut state = self.lock_state();
        if let Some(failure) = &state.failure {
            let failure = failure.clone();
            state.callers = state.callers.saturating_sub(1);
            return Step::Failed(failure);
        }
        match &state.phase {
            Phase::Held(held) if now < held.valid_until => return Step::Take { count: held.count },
            Phase::Held(_) | Phase::Lost(..) => return Step::TooLate,
            Phase::Leaving { .. } | Phase::Over => return Step::NotGranted,
            Phase::Waiting => {}
        }
        let cancelled = patience.cancel.as_ref().is_some_and(Cancel::is_cancelled);
        // A wait of zero joins a claim that waits longer only to look; otherwise it is asked for at least once.
        let only_looks = patience.wait == Wait::No && self.wait != Wait::No;
        let late = patience.deadline.is_some_and(|deadline| deadline <= now) && state.asked && !state.asking;
        if (only_looks || late) && patience.keeps_place && !cancelled {
            return Step::NotYet;
        }
        if cancelled || only_looks || late {
            return Step::GiveUp(state.give_up(cancelled, patience.wait != Wait::No && !cancelled));
        }
        if state.asking {
            return Step::Sleep(None); // bounded by the backend's response time-out: the asker raises the signal
        }
        if state.should_ask(now, outage_limit) {
            state.ask();
            return Step::Ask;
        }
        let looks = [state.look_at, state.silent_until(outage_limit), patience.deadline];
        Step::Sleep(looks.into_iter().flatten().min())
    }

    /// What the watchdog has to do now; what comes due within a ninth of its period counts as due, so that
    /// renewals gather in few round trips, and so does what would come due `meanwhile`, in the time that this round
    /// may take. `may_ask`: it has time to ask for one request.
    pub(crate) fn duty(
        &self,
        now: Instant,
        meanwhile: Duration,
        outage_limit: Duration,
        may_ask: bool,
    ) -> Duty {
        let mut state = self.lock_state();
        let renew_at = state.renew_at;
        let due = |slack: Duration| renew_at.is_some_and(|at| at <= now + slack.max(meanwhile));
        match &state.phase {
            Phase::Held(held) if held.valid_until <= now => {
                Duty::Lose(self.terms.cause_of_end(now, held.end))
            }
            Phase::Held(held) => {
                let lease = self.terms.next_lease(now, held.end);
                // A ninth of the lease, but no more than a sixth of what is left, which is the same when a full lease
                // is due. What was handed over has only what was left of its place: measured by the full lease it
                // would be due at once, and a look at a busy line would renew one new hold after the other.
                let left = held.valid_until - now;
                if due((lease / 9).min(left / 6)) && !state.renewing {
                    let (token, count) = (held.token, held.count);
                    state.renewing = true;
                    return Duty::RenewHold { token, count, lease };
                }
                Duty::None(Some(renew_at.map_or(held.valid_until, |at| at.min(held.valid_until))))
            }
            Phase::Waiting => {
                let unattended = state.attended == 0 && state.callers > 0 && !state.asking;
                let asks = unattended && state.should_ask(now, outage_limit);
                if asks && may_ask {
                    state.ask();
                    return Duty::Ask;
                }
                if state.in_line && due(self.place_ttl / 9) && !state.renewing {
                    state.renewing = true;
                    return Duty::RenewPlace;
                }
                let look_at = state.look_at.filter(|_| unattended);
                let silent_until = state.silent_until(outage_limit).filter(|_| unattended);
                let renew_at = renew_at.filter(|_| state.in_line);
                let asks_at = asks.then_some(now);
                Duty::None([renew_at, look_at, silent_until, asks_at].into_iter().flatten().min())
            }
            Phase::Lost(..) | Phase::Leaving { .. } | Phase::Over => Duty::None(None),
        }
    }

    /// The release of an earlier hold asks for this request.
    pub(crate) fn asked_by_release(&self) {
        self.lock_state().ask();
    }

    /// A wake-up says that the lock may be free. Returns whether the watchdog has to be told, because nobody waits.
    pub(crate) fn wake(&self) -> bool {
        let mut state = self.lock_state();
        if !matches!(state.phase, Phase::Waiting) {
            return false;
        }
        state.look = true;
        let unattended = state.attended == 0;
        drop(state);
        self.signal.raise();
        unattended
    }

    /// After a gap in the wake-ups: the place is to be renewed, or the hold looked after, at once.
    pub(crate) fn look_after(&self, now: Instant) {
        let mut state = self.lock_state();
        if state.renew_at.is_some() {
            state.renew_at = Some(now);
        }
    }

    /// Ends a wait of a claim that no caller wants any more, whatever it was waiting for.
    pub(crate) fn give_up_request(&self) -> Option<GiveUp> {
        let mut state = self.lock_state();
        if state.failure.is_some() {
            return None;
        }
        matches!(state.phase, Phase::Waiting).then(|| state.give_up(true, false))
    }
}

impl State {
    /// Since when the server has said nothing about this request.
    pub(super) fn silent_since(&self) -> Instant {
        self.heard.unwrap_or(self.since)
    }

    /// When a silence is to be broken; while the server fails, `look_at` alone says when to ask.
    fn silent_until(&self, outage_limit: Duration) -> Option<Instant> {
        (self.failures == 0).then(|| self.silent_since() + outage_limit)
    }

    fn should_ask(&self, now: Instant, outage_limit: Duration) -> bool {
        let due = self.look_at.is_some_and(|at| at <= now);
        // While the server fails, only the pause counts: a wake-up must not make a retry loop spin.
        if self.failures > 0 {
            return due;
        }
        !self.asked || self.look || due || self.silent_since() + outage_limit <= now
    }

    /// The reason to ask is used up *before* the request is sent: a wake-up that comes while it is under way may
    /// speak of a release that the server saw after it, and must lead to another look.
    fn ask(&mut self) {
        self.asking = true;
        self.asked = true;
        self.polling = !std::mem::take(&mut self.look);
        self.look_at = None;
    }

    /// One caller stops waiting. The last one leaves the line behind him: `wanted` if he takes a lock that turns
    /// out to have been granted to him in this very moment.
    fn give_up(&mut self, cancelled: bool, wanted: bool) -> GiveUp {
        self.callers -= 1;
        let error = self.last_error.clone();
        let rest = if self.callers > 0 {
            Rest::Others
        } else if self.asked {
            // From here on no push and no answer is believed: what the server says to the withdrawal decides.
            self.phase = Phase::Leaving { held: None, wanted, lost: None };
            Rest::Withdraw
        } else {
            self.phase = Phase::Over;
            Rest::Nothing
        };
        GiveUp { cancelled, rest, error }
    }
}
