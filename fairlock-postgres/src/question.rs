//! A question about one lock, in a form that any thread can decide; and the caller's call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::BackendError;
use fairlock_rules::{LockEntry, OperationContext};
use parking_lot::{Condvar, Mutex};

use crate::answer::Answer;
use crate::command::Command;
use crate::net::Failure;

/// One question. Its caller gets exactly one answer: when the question is dropped, at the latest, as when the thread of a step panics.
pub(crate) struct Question {
    pub(crate) lock: LockName,
    /// Its caller waits no longer.
    pub(crate) deadline: Instant,
    /// Whether a step for its lock alone has to answer the question, under the row lock: others have the row locked, or write it again and
    /// again, or this question may be why a step of many locks failed.
    pub(crate) is_blocked: bool,
    /// Whether the question was decided, so that anything with a possible effect may have been sent.
    is_sent: bool,
    pub(crate) command: Command,
    answer: Option<Result<Answer, BackendError>>,
    /// The caller; none once it was told.
    tell: Option<Slot>,
    /// The caller's call; none until it is known.
    pub(crate) call: Option<Arc<Call>>,
}

/// Where the answer to a question arrives.
pub(crate) struct Reply(Slot);

type Slot = Arc<Mutex<Option<Result<Result<Answer, BackendError>, Failure>>>>;

impl Reply {
    /// The answer, once its call is over.
    pub(crate) fn get<T: TryFrom<Answer, Error = Failure>>(self) -> Result<Result<T, BackendError>, Failure> {
        match self.0.lock().take().unwrap_or_else(|| Err(Failure::broken("no answer in time")))? {
            Ok(answer) => Ok(Ok(T::try_from(answer)?)),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl Question {
    pub(crate) fn new(lock: &LockName, deadline: Instant, command: Command) -> (Question, Reply) {
        let (reply, lock) = (Slot::default(), lock.clone());
        let (is_blocked, is_sent, answer, call) = Default::default();
        let tell = Some(Arc::clone(&reply));
        (Question { lock, deadline, is_blocked, is_sent, command, answer, tell, call }, Reply(reply))
    }

    /// Decides the question, at most `late` after the time of the decision. Returns whether the answer is a promise. On another row, or
    /// after a failed step, the question is decided again.
    pub(crate) fn decide(
        &mut self,
        entry: &mut LockEntry,
        context: &mut OperationContext<'_>,
        late: Duration,
    ) -> bool {
        self.is_sent = true;
        let answer = self.answer.insert(self.command.decide(entry, context, late));
        answer.as_ref().is_ok_and(Answer::is_promise)
    }

    /// Tells the caller the answer, or why there is none.
    pub(crate) fn tell(mut self, done: Result<(), Failure>) {
        self.end(done);
    }

    fn end(&mut self, done: Result<(), Failure>) {
        let Some(tell) = self.tell.take() else { return };
        let answer = done.and_then(|()| self.answer.take().ok_or_else(Failure::senseless));
        // If the reply is lost the request may have its hold. Core would leave that behind, were the request called unsent.
        let sent = |failure: Failure| if self.is_sent { failure.maybe_sent() } else { failure.unsent() };
        *tell.lock() = Some(answer.map_err(sent));
        if let Some(call) = &self.call {
            call.is_answered();
        }
    }

    pub(crate) fn is_of(&self, call: &Arc<Call>) -> bool {
        self.call.as_ref().is_some_and(|own| Arc::ptr_eq(own, call))
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.end(Err(Failure::broken("the thread whose step this was has failed")));
    }
}

/// Tells the callers the end of their questions: done, or the failure.
pub(crate) fn tell(questions: impl IntoIterator<Item = Question>, done: &Result<(), Failure>) {
    questions.into_iter().for_each(|question| question.tell(done.clone()));
}

/// A caller that waits for the answers to its questions, or for work.
pub(crate) struct Call {
    state: Mutex<CallState>,
    changed: Condvar,
    pub(crate) deadline: Instant,
}

struct CallState {
    /// How many of its questions are not answered.
    left: usize,
    stage: Stage,
}

#[derive(PartialEq)]
enum Stage {
    /// The caller makes a step, or has not begun to wait, or has left.
    Busy,
    Waits,
    /// The caller has to look for work.
    Called,
}

impl Call {
    pub(crate) fn new(questions: usize, deadline: Instant) -> Arc<Call> {
        let state = Mutex::new(CallState { left: questions, stage: Stage::Busy });
        Arc::new(Call { state, changed: Condvar::new(), deadline })
    }

    fn is_answered(&self) {
        self.state.lock().left -= 1;
        self.changed.notify_one();
    }

    /// From now on the caller can be called to work.
    pub(crate) fn begin_to_wait(&self) {
        self.state.lock().stage = Stage::Waits;
    }

    /// Has the caller look for work, if it waits.
    pub(crate) fn calls(&self) -> bool {
        let mut state = self.state.lock();
        let comes = state.stage == Stage::Waits && state.left > 0;
        if comes {
            state.stage = Stage::Called;
            self.changed.notify_one();
        }
        comes
    }

    /// Waits until the caller is called, all its questions are answered, or the time is over. Returns whether all are answered.
    pub(crate) fn is_answered_by(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.stage == Stage::Waits
            && state.left > 0
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.stage = Stage::Busy;
        state.left == 0
    }
}
