//! What a task does with its claim: it is polled, takes the hold, gives it up, and hears how the release ends. It never blocks.
//!
//! A task's claim has one caller, who never asks: a thread for tasks makes the first attempt, and attends to the claim until
//! then. Afterwards the watchdog asks. What ends the task's wait sets the flag of the task's slot under the claim's mutex, and
//! [`Claim::raise`] wakes the task without that mutex.

use std::task::Waker;
use std::time::Instant;

use super::steps::WatchdogStep;
use super::{Claim, ClaimState, End, Failure, Leaving, Phase};
use crate::backend::BackendError;
use crate::error::LostCause;
use crate::ids::FencingToken;

/// What a task finds when it looks at its claim.
#[derive(Debug)]
pub(crate) enum TaskStep {
    /// The hold is the task's. The watchdog has to look at the claim by this time.
    Take {
        token: FencingToken,
        due_at: Option<Instant>,
    },
    Pending,
    /// The hold was granted, and ended before the task was polled: the task gives the hold up and asks anew.
    TooLate,
    NotGranted,
    Failed(Failure),
}

/// How a release stands.
#[derive(Debug)]
pub(crate) enum ReleaseStep {
    /// Under way; with the error of the last attempt, if it has failed.
    UnderWay(Option<BackendError>),
    Released,
    /// The server says that the hold was over.
    Lost(LostCause),
    /// The server was not told, and is not going to be.
    Failed(Failure),
}

impl Claim {
    /// The claim of a task whose wait is over at this time.
    pub(crate) fn of_task(self, until: Option<Instant>) -> Claim {
        if let Phase::Waiting(waiting) = &mut self.lock_state().phase {
            waiting.task_until = until;
        }
        Claim { task: Some(Box::default()), ..self }
    }

    pub(crate) fn is_tasks(&self) -> bool {
        self.task.is_some()
    }

    /// Each poll does this before it looks at the claim: what happens after that look wakes the task.
    pub(crate) fn register(&self, waker: &Waker) {
        if let Some(task) = &self.task {
            task.register(waker);
        }
    }

    /// See [`TaskSlot::take`](crate::time::TaskSlot::take).
    #[must_use]
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        self.task.as_ref().and_then(|task| task.take())
    }

    /// Under the claim's mutex, or where no state is changed.
    pub(super) fn task_is_due(&self) {
        if let Some(task) = &self.task {
            task.is_due();
        }
    }

    /// What a task that waits for the lock does next.
    pub(crate) fn task_step(&self, now: Instant) -> TaskStep {
        let state = &mut *self.lock_state();
        match &mut state.phase {
            Phase::Waiting(_) => TaskStep::Pending,
            Phase::Held(held) if held.is_certain(now) => {
                held.untaken = false;
                TaskStep::Take { token: held.token, due_at: self.due_at_of(state) }
            }
            Phase::Held(_) | Phase::Lost(..) => TaskStep::TooLate,
            Phase::Leaving(Leaving { end: End { failure, .. }, .. }) | Phase::Over(End { failure, .. }) => {
                failure.clone().map_or(TaskStep::NotGranted, TaskStep::Failed)
            }
        }
    }

    /// The task's time is over: a wait gives up, and a grant that crosses this is passed on.
    pub(super) fn end_wait_of_task(&self, state: &mut ClaimState, now: Instant) -> WatchdogStep {
        self.task_is_due();
        if let Phase::Leaving(leaving) = &mut state.phase {
            leaving.task_until = None;
            return WatchdogStep::Tell;
        }
        let silence = self.silence_of(&state.contact, now);
        let error = self.give_up(state, false, false).error;
        let failure = error.or(silence).map(Failure::Backend);
        if let Phase::Leaving(Leaving { end, .. }) | Phase::Over(end) = &mut state.phase {
            end.failure = failure;
        }
        WatchdogStep::GivenUp
    }

    /// A task waits for the end of its release, until this time.
    pub(crate) fn tell_by(&self, at: Instant) {
        if let Phase::Leaving(leaving) = &mut self.lock_state().phase {
            leaving.task_until = Some(at);
        }
    }

    /// For a task that has given up its hold.
    pub(crate) fn release_step(&self) -> ReleaseStep {
        match &self.lock_state().phase {
            Phase::Leaving(leaving) => ReleaseStep::UnderWay(leaving.last_error.clone()),
            Phase::Over(End { failure: Some(failure), .. }) => ReleaseStep::Failed(failure.clone()),
            Phase::Over(End { lost: Some(cause), .. }) => ReleaseStep::Lost(*cause),
            _ => ReleaseStep::Released,
        }
    }

    /// The server is not told of the end any more. A task that waits for its release gets the reason once the claim is retired.
    pub(crate) fn abandon_end(&self, failure: Failure) {
        if let Phase::Leaving(leaving) = &mut self.lock_state().phase
            && self.is_tasks()
        {
            leaving.end.failure = Some(failure);
        }
    }
}
