//! What is to be done next for a claim: by a caller who waits for it, and by the watchdog.

use std::time::{Duration, Instant};

use super::agenda::{Pauses, Planned};
use super::{Claim, Failure, Phase, State};
use crate::backend::{BackendError, Wait};
use crate::cancel::Cancel;
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
    /// The hold is the caller's.
    Take { token: FencingToken, count: u32 },
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
    /// Ask for it, since nobody waits on it; that is due since then.
    Ask(Instant),
    /// The server was silent for too long: the claim has failed, and is `Leaving`.
    GivenUp,
    RenewPlace {
        /// Of the hold, if the lock is granted with it.
        lease: Duration,
    },
    RenewHold {
        token: FencingToken,
        count: u32,
        lease: Duration,
    },
}

/// What the watchdog goes by when it looks at its claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) now: Instant,
    /// How long this round may take: what would come due in that time is taken along.
    pub(crate) meanwhile: Duration,
    pub(crate) pauses: Pauses,
}

impl Look {
    fn renews(&self, planned: Planned) -> bool {
        let may = self.pauses.renewals.is_none_or(|pause| pause <= self.now);
        may && planned.at <= self.now + planned.early.max(self.meanwhile)
    }
}

impl Claim {
    /// A caller begins to wait. While one does, he asks; else the watchdog does.
    pub(crate) fn attend(&self) {
        self.lock_state().attended += 1;
    }

    /// He has stopped waiting. Returns when the watchdog has to look after the claim.
    pub(crate) fn stop_attending(&self) -> Option<Instant> {
        self.lock_state().attended -= 1;
        self.due_at()
    }

    /// When the watchdog has to look after the claim. It may have reasons of its own to look later, see [`Pauses`].
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let state = self.lock_state();
        state.agenda(self.outage_limit, Pauses::default()).for_watchdog(state.attended > 0)
    }

    /// What a caller with this patience does next.
    pub(crate) fn next_step(&self, patience: &Patience, now: Instant) -> Step {
        let mut state = self.lock_state();
        if let Some(failure) = &state.failure {
            let failure = failure.clone();
            state.callers = state.callers.saturating_sub(1);
            return Step::Failed(failure);
        }
        match &state.phase {
            Phase::Held(held) if now < held.valid_until => {
                return Step::Take { token: held.token, count: held.count };
            }
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
        let asks_at = state.agenda(self.outage_limit, Pauses::default()).ask;
        if asks_at.is_some_and(|at| at <= now) {
            state.ask();
            return Step::Ask;
        }
        Step::Sleep([asks_at, patience.deadline].into_iter().flatten().min())
    }

    /// What the watchdog has to do now. Renewals that may go early do, so that they gather in few round trips.
    pub(crate) fn duty(&self, look: &Look) -> Duty {
        let mut state = self.lock_state();
        let now = look.now;
        let is_attended = state.attended > 0;
        let agenda = state.agenda(self.outage_limit, look.pauses);
        let is_due = |at: Option<Instant>| at.filter(|at| *at <= now);
        if is_due(agenda.end).is_some()
            && let Phase::Held(held) = &state.phase
        {
            return Duty::Lose(self.terms.cause_of_end(now, held.end));
        }
        if !is_attended
            && is_due(agenda.give_up).is_some()
            && let Some(error) = state.last_error.clone()
        {
            state.fail(Failure::Backend(error));
            return Duty::GivenUp;
        }
        let asks = is_due(agenda.ask).filter(|_| !is_attended);
        // An ask is a sign of life of the place as well, so only a renewal that can't wait goes before it.
        let renews = |planned: &Planned| look.renews(*planned) && (asks.is_none() || planned.at <= now);
        if agenda.renew.as_ref().is_some_and(renews) {
            state.renewing = true;
            return match &state.phase {
                Phase::Held(held) => Duty::RenewHold {
                    token: held.token,
                    count: held.count,
                    lease: self.terms.next_lease(now, held.end),
                },
                _ => Duty::RenewPlace { lease: self.terms.first_lease() },
            };
        }
        match asks {
            Some(since) => Duty::Ask(since),
            None => Duty::None(agenda.for_watchdog(is_attended)),
        }
    }

    /// The watchdog asks for the request that [`duty`](Self::duty) named, unless somebody does so by now.
    pub(crate) fn begin_to_ask(&self) -> bool {
        let mut state = self.lock_state();
        let may = matches!(state.phase, Phase::Waiting) && !state.asking;
        if may {
            state.ask();
        }
        may
    }

    /// The last attempt to ask was not answered.
    pub(crate) fn asked_in_vain(&self) -> bool {
        self.lock_state().failures > 0
    }

    /// The last renewal of the place or the hold was not answered.
    pub(crate) fn is_unrenewed(&self) -> bool {
        let state = self.lock_state();
        state.unrenewed && matches!(state.phase, Phase::Waiting | Phase::Held(_))
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
        state.renew = state.renew.map(|_| Planned::at_once(now));
    }

    /// Whether the server has ever answered for this request.
    pub(crate) fn was_heard(&self) -> bool {
        self.lock_state().heard.is_some()
    }

    /// How long the server has said nothing of this request, if it was asked.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Duration> {
        let state = self.lock_state();
        state.asked.then(|| now.saturating_duration_since(state.silent_since()))
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
