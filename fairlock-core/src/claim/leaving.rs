//! The end of a claim: the server is told that the request or hold is over, and a late attempt is withdrawn once more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AnswerContext, Claim, Contact, Held, Phase, Terms};
use crate::backend::{BackendError, BackendErrorKind, Declined, Hold, RequestId, Wait};
use crate::config::Config;
use crate::error::LostCause;
use crate::ids::FencingToken;

#[derive(Default)]
pub(super) struct Leaving {
    /// The hold that is being released. None: a request is being withdrawn.
    pub(super) held: Option<Held>,
    /// The caller of a timed wait takes the lock if the withdrawal finds it granted.
    pub(super) wanted: bool,
    /// How many attempts to tell the server were not answered. A request that has failed counts its asks as well.
    pub(super) failures: u32,
    pub(super) last_error: Option<BackendError>,
    /// Until when its task waits for the end.
    pub(super) task_until: Option<Instant>,
    pub(super) end: End,
}

/// How a claim ends.
#[derive(Default)]
pub(super) struct End {
    /// Why the request failed; every caller gets this error.
    pub(super) failure: Option<Failure>,
    /// The one attempt was refused: the server has nothing of this request.
    pub(super) refused: bool,
    /// Why the hold that is being released was lost; the loss was reported.
    pub(super) lost: Option<LostCause>,
    /// The request was declined: which condition was not met.
    pub(super) declined: Option<Declined>,
    /// The token of the hold that was handed over: from then on this client neither renews nor releases it.
    pub(super) handed_over: Option<FencingToken>,
}

/// Why a claim failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Backend(BackendError),
    Shutdown,
}

impl Claim {
    /// A claim for the hold of a request that this client does not know any more: the hold is to be released.
    pub(crate) fn of_stray_grant(hold: &Hold<'_>, config: &Arc<Config>, now: Instant) -> Claim {
        let Hold { lock, owner, request, token, units } = *hold;
        let terms = Terms::Renewed(config.lease);
        let claim = Claim::new(lock.clone(), owner.clone(), Wait::No, terms, units, config, now);
        let context = AnswerContext { claim: &claim, contact: &mut Contact::default(), sent: now, now };
        let held = Held::new(&context, token, 0, Duration::ZERO);
        claim.that_leaves(request, Leaving { held: Some(held), ..Leaving::default() })
    }

    /// A second claim for the same request, to withdraw it: this claim has ended, and a late attempt may begin the request anew.
    pub(crate) fn once_more(&self, now: Instant) -> Arc<Claim> {
        let Claim { lock, owner, request, wait, terms, units, config, .. } = self;
        let claim = Claim::new(lock.clone(), owner.clone(), *wait, *terms, *units, config, now);
        let end = End { handed_over: self.handed_over(), ..End::default() };
        Arc::new(claim.that_leaves(*request, Leaving { end, ..Leaving::default() }))
    }

    fn that_leaves(self, request: RequestId, leaving: Leaving) -> Claim {
        let mut state = self.lock_state();
        state.contact.sent = true;
        self.enter(&mut state, Phase::Leaving(leaving));
        drop(state);
        Claim { request, ..self }
    }

    /// Which condition of the request was not met, if the request was declined.
    pub(crate) fn declined(&self) -> Option<Declined> {
        match &self.lock_state().phase {
            Phase::Over(end) => end.declined,
            _ => None,
        }
    }

    /// The token of the hold that was handed over.
    pub(crate) fn handed_over(&self) -> Option<FencingToken> {
        match &self.lock_state().phase {
            Phase::Leaving(Leaving { end, .. }) | Phase::Over(end) => end.handed_over,
            Phase::Waiting(_) | Phase::Held(_) | Phase::Lost(..) => None,
        }
    }

    /// Ends the claim: the server was told of the end, or never will be. A renewal may be under way; none begins from now on.
    pub(crate) fn retire(&self) {
        let mut state = self.lock_state();
        let end = match &mut state.phase {
            Phase::Leaving(Leaving { end, .. }) | Phase::Over(end) => std::mem::take(end),
            Phase::Waiting(_) | Phase::Held(_) | Phase::Lost(..) => End::default(),
        };
        let former = self.enter(&mut state, Phase::Over(end));
        state.contact.end_ask();
        self.task_is_due();
        drop(state);
        drop(former); // without the mutex: a channel may keep a waker
    }

    /// The withdrawal found that the lock had been granted. Returns whether a caller takes the hold; if not, it has to be
    /// released.
    pub(crate) fn granted_while_leaving(
        &self,
        token: FencingToken,
        sent: Instant,
        lease: Duration,
        now: Instant,
    ) -> bool {
        let state = &mut *self.lock_state();
        let Phase::Leaving(leaving) = &mut state.phase else { return false };
        let mut context = AnswerContext { claim: self, contact: &mut state.contact, sent, now };
        let held = Held::new(&context, token, 1, lease);
        if leaving.wanted && held.is_certain(now) && held.may_be(&mut context) {
            self.enter(state, Phase::Held(held));
            return true;
        }
        (leaving.held, leaving.wanted) = (Some(held), false);
        false
    }

    /// The caller that gave up no longer waits for the answer to its withdrawal: a grant that the withdrawal finds is released.
    /// False: the withdrawal was answered.
    pub(crate) fn decline_grant(&self) -> bool {
        match &mut self.lock_state().phase {
            Phase::Leaving(leaving) => {
                leaving.wanted = false;
                true
            }
            _ => false,
        }
    }

    /// An attempt to tell the server of the end was not answered.
    pub(crate) fn leaving_failed(&self, error: BackendError, now: Instant) {
        if let Phase::Leaving(leaving) = &mut self.lock_state().phase {
            leaving.failures += 1;
            // After a transient error the task waits on, up to its limit. At the limit the watchdog wakes the task. A shutdown has no
            // watchdog: there the first failure after the limit wakes the task.
            if !error.kind().is_transient() || leaving.task_until.is_some_and(|until| until <= now) {
                self.task_is_due();
            }
            leaving.last_error = Some(error);
        }
        self.raise();
    }

    /// While the server is being told of its end: how often that failed, and the last error.
    pub(crate) fn leaving(&self) -> Option<(u32, Option<BackendError>)> {
        match &self.lock_state().phase {
            Phase::Leaving(leaving) => Some((leaving.failures, leaving.last_error.clone())),
            _ => None,
        }
    }

    /// The token of the hold that is being released.
    pub(crate) fn leaving_token(&self) -> Option<FencingToken> {
        match &self.lock_state().phase {
            Phase::Leaving(Leaving { held: Some(held), .. }) => Some(held.token),
            _ => None,
        }
    }

    /// The hold that is being released; with the token 0, which no hold has, if the hold is over by now.
    pub(crate) fn leaving_hold(&self) -> Hold<'_> {
        self.hold(self.leaving_token().unwrap_or(FencingToken::new(0)))
    }

    /// Whether its last hold was unlocked.
    #[cfg(any(test, feature = "tracing"))]
    pub(crate) fn is_unlocked(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Leaving(_) | Phase::Over(_))
    }

    /// Whether the server can have nothing of this request, even if the server refuses to say so.
    pub(crate) fn was_refused(&self) -> bool {
        match &self.lock_state().phase {
            Phase::Leaving(Leaving { end, .. }) | Phase::Over(end) => end.refused,
            _ => false,
        }
    }

    /// A release has found no hold: the cause, if the hold was lost. The hold was certain when it was given up. So if its lease
    /// still lasts, somebody has taken the hold; if not, the hold may have ended while the release was under way. With
    /// `is_repeat` an earlier, unanswered attempt may have released the hold.
    pub(crate) fn loss_found_by_release(&self, is_repeat: bool, now: Instant) -> Option<LostCause> {
        match &self.lock_state().phase {
            Phase::Leaving(Leaving { end: End { lost: Some(cause), .. }, .. }) => Some(*cause), // that was told meanwhile
            Phase::Leaving(Leaving { held: Some(held), .. }) if !is_repeat && held.is_certain(now) => {
                Some(LostCause::Taken)
            }
            _ => None,
        }
    }

    /// An attempt of this request has failed with this error. Without an answer, the attempt may take effect until its end, one
    /// `attempt_ttl` from now at most. Returns whether the claim has ended by now: then nobody else withdraws the request.
    pub(crate) fn attempt_failed(&self, error: &BackendError, now: Instant) -> bool {
        let is_late = error.kind() == BackendErrorKind::Unavailable && !error.is_unsent();
        self.config.attempt_ttl.is_some_and(|ttl| is_late && self.may_begin_until(now + ttl, None))
    }

    /// An answer tells of a grant or a place of this request, with this number. If the number is greater than all that this claim
    /// knows, the server carried the attempt out after the hold or the request was over: then the request is withdrawn once more
    /// when the claim ends. Returns whether the claim has ended by now.
    pub(crate) fn told_of(&self, number: u64, now: Instant) -> bool {
        self.may_begin_until(now, Some(number))
    }

    /// Until `at` an attempt of the owner's former request may take effect, as if this request had made the attempt.
    /// Returns whether the claim has ended by now.
    pub(crate) fn withdraw_again_at(&self, at: Instant) -> bool {
        self.may_begin_until(at, None)
    }

    fn may_begin_until(&self, at: Instant, told: Option<u64>) -> bool {
        let state = &mut *self.lock_state();
        let is_waiting = matches!(state.phase, Phase::Waiting(_));
        if told.is_some_and(|number| is_waiting || number <= state.contact.latest) {
            return false;
        }
        state.contact.late_until = state.contact.late_until.max(Some(at));
        matches!(state.phase, Phase::Lost(..) | Phase::Over(_))
    }

    /// The claim ends. Takes the time until which an unanswered attempt may still begin something; `None` if all attempts were
    /// answered, or another thread has taken the time. The time may be past: the attempt may have taken effect after the server
    /// had carried out the release, whose answer came late.
    pub(crate) fn take_late_until(&self) -> Option<Instant> {
        self.lock_state().contact.late_until.take()
    }
}
