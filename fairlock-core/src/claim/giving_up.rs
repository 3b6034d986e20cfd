//! How a wait ends without the lock: the callers give up, the task's time is over, the server does not answer, or the client stops.

use super::{Claim, ClaimState, Contact, End, Failure, Leaving, Phase, Waiting};
use crate::backend::{BackendError, BackendErrorKind};

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

impl Claim {
    /// A request is dropped: one caller fewer wants the claim. None if the claim does not wait.
    pub(crate) fn give_up_request(&self) -> Option<GiveUp> {
        let state = &mut *self.lock_state();
        matches!(state.phase, Phase::Waiting(_)).then(|| self.give_up(state, true, false))
    }

    /// One caller of a waiting claim stops waiting; the last caller leaves the queue. `wanted`: the caller still takes a lock
    /// that was granted in this very moment.
    pub(super) fn give_up(&self, state: &mut ClaimState, cancelled: bool, wanted: bool) -> GiveUp {
        let mut given_up = GiveUp { cancelled, after: AfterGivingUp::OthersWait, error: None };
        if let Phase::Waiting(waiting) = &mut state.phase {
            waiting.callers -= 1;
            given_up.error.clone_from(&waiting.last_error);
            if waiting.callers == 0 {
                // From here on no push and no answer is believed: the answer to the withdrawal decides.
                let last_error = waiting.last_error.take();
                given_up.after = self.leave(state, Leaving { wanted, last_error, ..Leaving::default() });
            }
        }
        given_up
    }

    /// The server was silent for too long, or could not be asked.
    pub(super) fn give_up_asking(&self, state: &mut ClaimState) {
        let Phase::Waiting(waiting) = &mut state.phase else { return };
        let error = waiting.last_error.clone().unwrap_or_else(|| {
            let what = "the request had to wait too long to be sent";
            BackendError::new(BackendErrorKind::Unavailable, what)
        });
        let leaving = waiting.failed(&state.contact, Failure::Backend(error), false);
        self.leave(state, leaving);
    }

    /// The client is drained or shut down. None if the claim does not wait.
    pub(crate) fn fail_for_shutdown(&self) -> Option<AfterGivingUp> {
        debug_assert!(self.config.stop.is_closed(), "a grant after this would be believed");
        let state = &mut *self.lock_state();
        let Phase::Waiting(waiting) = &mut state.phase else { return None };
        let leaving = waiting.failed(&state.contact, Failure::Shutdown, false);
        Some(self.leave(state, leaving))
    }

    fn leave(&self, state: &mut ClaimState, leaving: Leaving) -> AfterGivingUp {
        let next = state.contact.leave(leaving);
        self.enter(state, next);
        if state.contact.may_be_known() { AfterGivingUp::Withdraw } else { AfterGivingUp::Nothing }
    }
}

impl Contact {
    /// The request ends, and the server has to be told if it may know of it.
    pub(super) fn leave(&self, leaving: Leaving) -> Phase {
        if self.may_be_known() { Phase::Leaving(leaving) } else { Phase::Over(leaving.end) }
    }
}

impl Waiting {
    /// Gives every caller this failure. `refused`: the only attempt was refused for the lock's name, or for a foreign key of this
    /// name: the server has nothing of this request.
    pub(super) fn failed(&mut self, contact: &Contact, failure: Failure, refused: bool) -> Leaving {
        let end = End { failure: Some(failure), refused, lost: None };
        let (failures, last_error) = (contact.ask.failures(), self.last_error.take());
        Leaving { failures, last_error, end, ..Leaving::default() }
    }
}
