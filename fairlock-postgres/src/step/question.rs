//! A question about one lock, as any thread can decide it for its caller; and the call that it belongs to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_line::{LockEntry, Turn};
use parking_lot::{Condvar, Mutex};

use crate::answer::Answer;
use crate::attempt::{Attempt, What};
use crate::net::{Failure, Row};

/// One question. Its caller has one answer in any case: when it is dropped, at the latest, as when the thread of a step panics.
pub(crate) struct Question {
    pub(crate) lock: LockName,
    /// Its caller waits no longer.
    pub(crate) deadline: Instant,
    /// What a fast part may do for it, until that was tried.
    pub(crate) attempt: Option<Attempt>,
    /// Whether an attempt was sent for it, which has effect without a second trip.
    is_sent: bool,
    asked: Option<Box<dyn Asked + Send>>,
    /// None until its call is known.
    pub(super) call: Option<Arc<Call>>,
}

trait Asked {
    /// Decides, this long after the clock was read at most. Whether the answer is a promise. A step that fails decides again.
    fn decide(&mut self, entry: &mut LockEntry, turn: &mut Turn<'_>, late: Duration) -> bool;
    /// An attempt has decided, as this row says.
    fn read(&mut self, row: &Row) -> Result<(), Failure>;
    /// Tells the caller the answer, or why there is none.
    fn tell(self: Box<Self>, done: Result<(), Failure>, is_sent: bool);
}

struct Pending<T, F> {
    decide: F,
    decided: Option<T>,
    tell: Slot<T>,
}

impl<T: Answer, F: Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> T> Asked for Pending<T, F> {
    fn decide(&mut self, entry: &mut LockEntry, turn: &mut Turn<'_>, late: Duration) -> bool {
        self.decided.insert((self.decide)(entry, turn, late)).is_promise()
    }

    fn read(&mut self, row: &Row) -> Result<(), Failure> {
        self.decided = Some(T::of_row(row)?);
        Ok(())
    }

    fn tell(self: Box<Self>, done: Result<(), Failure>, is_sent: bool) {
        let answer = match (done, self.decided) {
            (Ok(()), Some(answer)) => Ok(answer),
            (done, decided) => {
                let failure = done.err().unwrap_or_else(Failure::senseless);
                // What a step is asked goes out only with what it writes. But an earlier try of it may have been sent, and the flight
                // of an attempt is all of it: if the reply is lost the request may have its hold. Core would leave that behind, were
                // the request called unsent.
                Err(if is_sent || decided.is_some() { failure.maybe_sent() } else { failure.unsent() })
            }
        };
        *self.tell.lock() = Some(answer);
    }
}

/// Where the answer to a question arrives.
pub(crate) struct Reply<T>(Slot<T>);

type Slot<T> = Arc<Mutex<Option<Result<T, Failure>>>>;

impl<T> Reply<T> {
    /// The answer, once its call is over.
    pub(crate) fn get(self) -> Result<T, Failure> {
        self.0.lock().take().unwrap_or_else(|| Err(Failure::broken("no answer in time")))
    }
}

impl Question {
    pub(crate) fn new<T: Answer + Send + 'static>(
        lock: &LockName,
        deadline: Instant,
        attempt: Option<Attempt>,
        decide: impl Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> T + Send + 'static,
    ) -> (Question, Reply<T>) {
        let tell = Slot::default();
        let reply = Reply(Arc::clone(&tell));
        let asked = Some(Box::new(Pending { decide, decided: None, tell }) as _);
        (Question { lock: lock.clone(), deadline, attempt, is_sent: false, asked, call: None }, reply)
    }

    pub(super) fn decide(&mut self, entry: &mut LockEntry, turn: &mut Turn<'_>, late: Duration) -> bool {
        self.asked.as_mut().is_some_and(|asked| asked.decide(entry, turn, late))
    }

    /// What a fast part may do for it, which is sent now, or never.
    pub(crate) fn take_attempt(&mut self, is_sent: impl FnOnce(&LockName, What) -> bool) -> Option<Attempt> {
        let attempt = self.attempt.take().filter(|attempt| is_sent(&self.lock, attempt.what));
        self.is_sent |= attempt.is_some();
        attempt
    }

    pub(crate) fn read(&mut self, row: &Row) -> Result<(), Failure> {
        self.asked.as_mut().ok_or_else(Failure::senseless)?.read(row)
    }

    pub(crate) fn tell(mut self, done: Result<(), Failure>) {
        self.end(done);
    }

    pub(super) fn is_of(&self, call: &Arc<Call>) -> bool {
        self.call.as_ref().is_some_and(|own| Arc::ptr_eq(own, call))
    }

    fn end(&mut self, done: Result<(), Failure>) {
        let Some(asked) = self.asked.take() else { return };
        asked.tell(done, self.is_sent);
        if let Some(call) = &self.call {
            call.is_answered();
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.end(Err(Failure::broken("the thread whose step this was has failed")));
    }
}

/// A caller that waits for the answers to its questions, or for its turn to lead a step.
pub(super) struct Call {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) deadline: Instant,
}

struct State {
    /// How many of its questions are not answered.
    left: usize,
    stage: Stage,
}

#[derive(PartialEq)]
enum Stage {
    /// It leads a step, or has not begun to wait, or has left.
    Busy,
    Waits,
    /// A leader has passed the lead on to it.
    Leads,
}

/// How a wait has ended.
#[derive(PartialEq)]
pub(super) enum Waited {
    Leads,
    Answered,
    TimedOut,
}

impl Call {
    pub(super) fn new(questions: usize, deadline: Instant) -> Arc<Call> {
        let state = Mutex::new(State { left: questions, stage: Stage::Busy });
        Arc::new(Call { state, changed: Condvar::new(), deadline })
    }

    fn is_answered(&self) {
        self.state.lock().left -= 1;
        self.changed.notify_one();
    }

    /// From now on the lead can be passed on to it.
    pub(super) fn begin_to_wait(&self) {
        self.state.lock().stage = Stage::Waits;
    }

    /// Passes the lead on to it, if it waits.
    pub(super) fn offer(&self) -> bool {
        let mut state = self.state.lock();
        let takes_it = state.stage == Stage::Waits && state.left > 0;
        if takes_it {
            state.stage = Stage::Leads;
            self.changed.notify_one();
        }
        takes_it
    }

    /// Each decision is made under the same mutex: a lead that is passed on is found here, and never lost to a caller that leaves.
    pub(super) fn wait(&self, until: Instant) -> Waited {
        let mut state = self.state.lock();
        while state.stage != Stage::Leads
            && state.left > 0
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        match std::mem::replace(&mut state.stage, Stage::Busy) {
            Stage::Leads => Waited::Leads,
            _ if state.left == 0 => Waited::Answered,
            _ => Waited::TimedOut,
        }
    }
}
