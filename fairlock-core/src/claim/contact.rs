//! What the client has sent to the server about a request, and what the server has answered. This belongs to no phase: a call that
//! is under way may outlast any phase, and an unanswered attempt may still begin something.

use std::time::Instant;

use super::{Claim, Phase, Waiting};
use crate::backend::{BackendError, BackendErrorKind, Wait};

#[derive(Default)]
pub(super) struct Contact {
    pub(super) ask: Ask,
    /// The watchdog is renewing the place or the hold now; meanwhile `unlock` does not return.
    pub(super) renewing: bool,
    /// An attempt was sent, or may have been: the server may know of the request.
    pub(super) sent: bool,
    /// When the latest answered command about this request was sent.
    pub(super) heard: Option<Instant>,
    /// The server's latest number at its last answer "in the queue", or the token of the hold. A grant with no greater token
    /// belongs to an earlier place.
    pub(super) latest: u64,
    /// Until when an unanswered attempt may still begin something at the server.
    late_until: Option<Instant>,
}

/// How asking for the request stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ask {
    #[default]
    Never,
    /// A thread is asking the server now, after so many failures. `woken`: a wake-up is the reason, or an attempt that failed.
    UnderWay { woken: bool, failures: u32 },
    /// The last ask was answered, or its answer changes nothing any more.
    Answered,
    /// So many asks in a row were not answered.
    Failed(u32),
}

impl Ask {
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Ask::UnderWay { .. })
    }

    pub(super) fn failures(self) -> u32 {
        match self {
            Ask::Never | Ask::Answered => 0,
            Ask::UnderWay { failures, .. } | Ask::Failed(failures) => failures,
        }
    }
}

impl Contact {
    /// Whether the server may know of the request: an attempt was sent, or is under way.
    pub(super) fn may_be_known(&self) -> bool {
        self.sent || self.ask.is_under_way()
    }

    /// No thread is asking any more.
    pub(super) fn end_ask(&mut self) {
        if self.ask.is_under_way() {
            self.ask = Ask::Answered;
        }
    }

    /// An answer to a command about a request that waits.
    pub(super) fn hear(&mut self, sent: Instant) {
        self.heard = self.heard.max(Some(sent));
        match &mut self.ask {
            Ask::UnderWay { failures, .. } => *failures = 0,
            ask @ Ask::Failed(_) => *ask = Ask::Answered,
            Ask::Never | Ask::Answered => {}
        }
    }
}

impl Waiting {
    /// The reason to ask is used up *before* the request is sent: a wake-up that comes while the request is under way may be
    /// about a release that the server saw after it, and must lead to another ask.
    pub(super) fn begin_to_ask(&mut self, contact: &mut Contact) {
        let woken = std::mem::take(&mut self.ask_now);
        contact.ask = Ask::UnderWay { woken, failures: contact.ask.failures() };
        self.recheck_at = None;
    }
}

impl Claim {
    /// The watchdog asks for the request that [`watchdog_step`](Self::watchdog_step) named, unless a caller does by now.
    pub(crate) fn begin_to_ask(&self) -> bool {
        let state = &mut *self.lock_state();
        match &mut state.phase {
            Phase::Waiting(waiting) if !state.contact.ask.is_under_way() => {
                waiting.begin_to_ask(&mut state.contact);
                true
            }
            _ => false,
        }
    }

    /// The renewal of [`Claim::watchdog_step`] was answered, or was not sent.
    pub(crate) fn renewal_done(&self) {
        self.lock_state().contact.renewing = false;
        self.raise();
    }

    pub(crate) fn is_renewing(&self) -> bool {
        self.lock_state().contact.renewing
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.lock_state().contact.ask.is_under_way()
    }

    /// Whether a call is under way that can make a place of this request, or restore it.
    pub(crate) fn may_make_a_place(&self) -> bool {
        let state = self.lock_state();
        state.contact.ask.is_under_way() || state.contact.renewing
    }

    /// Whether no server knows of the request or will: no attempt was sent, and none is under way.
    pub(crate) fn is_unsent(&self) -> bool {
        !self.lock_state().contact.may_be_known()
    }

    /// Whether the server has ever answered for this request.
    pub(crate) fn was_heard(&self) -> bool {
        self.lock_state().contact.heard.is_some()
    }

    /// Whether the last attempt to ask was not answered.
    pub(crate) fn last_ask_failed(&self) -> bool {
        self.lock_state().contact.ask.failures() > 0
    }

    /// Since when the server has not answered about this request.
    pub(super) fn silent_since(&self, contact: &Contact) -> Instant {
        contact.heard.unwrap_or(self.since)
    }

    /// An error if the server has been silent about this request for so long that a heartbeat was not answered.
    pub(crate) fn silence(&self, now: Instant) -> Option<BackendError> {
        self.silence_of(&self.lock_state().contact, now)
    }

    pub(super) fn silence_of(&self, contact: &Contact, now: Instant) -> Option<BackendError> {
        let silent = now.saturating_duration_since(self.silent_since(contact));
        let was_asked = contact.ask != Ask::Never && self.wait != Wait::No;
        (was_asked && silent >= self.config.place_ttl * 2 / 3).then(|| {
            let what = format!("no word of this request for {} ms", silent.as_millis());
            BackendError::new(BackendErrorKind::Unavailable, what)
        })
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
