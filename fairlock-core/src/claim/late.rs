//! Attempts that were not answered: the server may carry one out long after its repeat was answered.

use std::sync::Arc;
use std::time::Instant;

use super::{Claim, Phase};
use crate::backend::{BackendError, BackendErrorKind};

impl Claim {
    /// An attempt that asks for this request, or may put its place back, has failed like this. It may begin that until a time
    /// from now, since it was sent before now. Returns whether the claim has ended by now, so that nobody else will look.
    pub(crate) fn attempt_failed(&self, error: &BackendError, now: Instant) -> bool {
        let (BackendErrorKind::Unavailable, Some(ttl)) = (error.kind(), self.config.attempt_ttl) else {
            return false;
        };
        let mut state = self.lock_state();
        state.late_until = state.late_until.max(Some(now + ttl));
        matches!(state.phase, Phase::Lost(..) | Phase::Over)
    }

    /// An answer tells of a grant or a place of this request, which has this number. If it came after all that is known here, the
    /// hold was over when the attempt was carried out, or the request was withdrawn: then the request is withdrawn once more when
    /// the claim ends. Returns whether it has ended by now.
    pub(crate) fn told_of(&self, number: u64, now: Instant) -> bool {
        let mut state = self.lock_state();
        if matches!(state.phase, Phase::Waiting) || number <= state.latest {
            return false;
        }
        state.late_until = state.late_until.max(Some(now));
        matches!(state.phase, Phase::Lost(..) | Phase::Over)
    }

    /// The claim ends. Until then an attempt may begin what it asked for; none if all were answered, or another thread has taken
    /// it. The time may have passed: the attempt may have begun it before, after the server had carried out the release, and
    /// only the answer to that came late.
    pub(crate) fn take_late_until(&self) -> Option<Instant> {
        self.lock_state().late_until.take()
    }

    /// The same request once more, to be withdrawn: this claim has ended, and an attempt of it may begin anew.
    pub(crate) fn once_more(&self, now: Instant) -> Arc<Claim> {
        let Claim { lock, owner, request, wait, terms, takes, config, .. } = self;
        let claim = Claim::new(lock.clone(), owner.clone(), *wait, *terms, *takes, config, now);
        claim.lock_state().phase = Phase::Leaving { held: None, wanted: false, lost: None };
        Arc::new(Claim { request: *request, ..claim })
    }
}
