//! Who makes a step, and for which questions. A caller that may lead makes a step for its own questions and for the waiting ones, and then
//! calls others. A combiner needs no thread, and costs a lone caller nothing.
//!
//! | a question | moves to | by |
//! | --- | --- | --- |
//! | asked | waiting; blocked, behind a blocked question about its lock | its caller |
//! | waiting | in a step | a leader: up to [`MOST_LOCKS`] locks at once, of which none is in another step |
//! | in a step | answered | the commit, or a read; or the failure, even if the leader's thread panics |
//! | in a step | waiting, first of all | the leader: its connection still sends messages |
//! | in a step | blocked | others have its row locked, or write it again and again; or the step was refused, and this question may be at fault |
//! | blocked | in a step | a leader that waits for this row alone |
//! | waiting, blocked | given up | its caller, whose time is over |
//!
//! Interleavings that are closed here:
//!
//! - **A leader ends while a caller begins to wait**: the caller looks whether it may lead, and begins to wait, under the mutex under
//!   which leaders end and call others. So no caller waits beside a free lead.
//! - **The caller that was called leaves, or sleeps on**: before it leaves it calls others, and a free lead is free for all.
//! - **Two steps about one lock** would miss each other's row: the second waits for the first, and takes all that came meanwhile. If the
//!   connection of the first is silent for a quarter of the response time, another step is made: the two can only miss each other.
//! - **The thread of a step stands still**: its followers wait no longer than their calls last. A step ends by the first deadline
//!   of its questions and [`idle`](crate::net::pool::Pool::idle), or never has effect. So a question has effect no later than in a step
//!   of its own caller. A question whose time is nearly over is taken by no leader that has more time: it would cut the
//!   step short. Leaders that have as little time take it: else steps would shrink to one question just when many wait.
//! - **The caller has left when its question is to wait again**: a question whose time is over fails instead, under the mutex under
//!   which leaving callers take their questions out.
//! - **Many rows are blocked**: at least one leader waits for no row, and serves the other locks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::BackendError;
use fairlock_rules::{LockEntry, OperationContext};
use parking_lot::{Condvar, Mutex};

use crate::command::{Answer, Command};
use crate::net::Failure;

/// The most locks of one step: for each the server keeps up to four entries in its table of locks, until the step is over.
pub(crate) const MOST_LOCKS: usize = 64;
/// The most leaders: beyond that nothing waits.
const MOST_LEADERS: usize = 4;

pub(crate) struct Combiner {
    state: Mutex<CombinerState>,
    leaders: usize,
    /// A question with less time is late.
    enough: Duration,
}

#[derive(Default)]
struct CombinerState {
    /// The questions that wait; blocked ones first.
    waiting: VecDeque<Question>,
    /// The locks of the steps, and from when on each step counts as silent.
    in_steps: HashMap<LockName, Instant>,
    leading: usize,
    /// How many of the leaders wait for a row.
    waiting_for_rows: usize,
}

impl CombinerState {
    /// Whether another step about the lock has to be waited for.
    fn is_in_step(&self, lock: &LockName) -> bool {
        self.in_steps.get(lock).is_some_and(|silent_from| Instant::now() < *silent_from)
    }
}

/// The right to make a step about these locks. Its drop calls others.
struct Lead<'q> {
    combiner: &'q Combiner,
    locks: HashSet<LockName>,
    silent_from: Instant,
    /// The step waits for a row, and the call's time is divided among so many. None: it waits for none.
    waits: Option<u32>,
}

impl Combiner {
    pub(crate) fn new(connections: usize, enough: Duration) -> Combiner {
        let leaders = connections.saturating_sub(1).clamp(1, MOST_LEADERS);
        Combiner { state: Mutex::default(), leaders, enough }
    }

    /// Returns when all these questions of one call are answered, or the call's time is over. `make` makes a step, and returns the questions
    /// that are left.
    pub(crate) fn operation(
        &self,
        mut questions: Vec<Question>,
        deadline: Instant,
        make: impl Fn(Vec<Question>, Option<u32>) -> Vec<Question>,
    ) {
        let call = Call::new(questions.len(), deadline);
        let mut state = self.state.lock();
        for mut question in questions.drain(..) {
            question.call = Some(Arc::clone(&call));
            question.is_blocked = state.waiting.iter().any(|one| one.is_blocked && one.lock == question.lock);
            state.waiting.push_back(question);
        }
        loop {
            if let Some((questions, lead)) = self.work(&mut state, &call) {
                drop(state);
                self.put_back(make(questions, lead.waits));
                drop(lead); // which calls others
                state = self.state.lock();
                continue;
            }
            self.call_others(&state); // others may have taken what it was called for
            call.begin_to_wait();
            drop(state);
            let is_over = call.is_answered_by(deadline.min(Instant::now() + self.silent()));
            state = self.state.lock();
            if is_over || Instant::now() >= deadline {
                break;
            }
        }
        self.give_up(&mut state, &call);
        self.call_others(&state);
    }

    /// What this caller can do for its own questions, and for others by the way.
    fn work(&self, state: &mut CombinerState, call: &Arc<Call>) -> Option<(Vec<Question>, Lead<'_>)> {
        if state.leading >= self.leaders {
            return None;
        }
        let may_wait = self.may_wait(state);
        let is_own = |question: &&Question| question.is_of(call);
        let can_be_led =
            |question: &&Question| (may_wait || !question.is_blocked) && !state.is_in_step(&question.lock);
        let first = state.waiting.iter().filter(is_own).find(can_be_led)?;
        let (lock, waits) = (first.lock.clone(), first.is_blocked);
        let own = state.waiting.iter().filter(is_own);
        let rows: HashSet<_> = own.filter(|own| own.is_blocked).map(|own| &own.lock).collect();
        let rows = u32::try_from(rows.len()).unwrap_or(u32::MAX).max(1);
        let now = Instant::now();
        let (enough, is_late) = (now + self.enough, call.deadline < now + self.enough);
        // A step ends by the first deadline of its questions. So a late leader takes others that are late, and end no sooner.
        let ends_well = |question: &Question| match is_late {
            true => (call.deadline..enough).contains(&question.deadline),
            false => question.deadline >= enough,
        };
        let (mut locks, mut waiting) = (HashSet::from([lock]), std::mem::take(&mut state.waiting));
        let mut takes = |question: &mut Question| {
            (question.is_of(call) || ends_well(question))
                && (waits || !question.is_blocked)
                && (locks.contains(&question.lock)
                    || !waits
                        && locks.len() < MOST_LOCKS
                        && !state.is_in_step(&question.lock)
                        && locks.insert(question.lock.clone()))
        };
        let questions = take_if(&mut waiting, &mut takes);
        state.waiting = waiting;
        let silent_from = now + self.silent() + if waits { self.enough } else { Duration::ZERO };
        state.in_steps.extend(locks.iter().map(|lock| (lock.clone(), silent_from)));
        state.leading += 1;
        state.waiting_for_rows += usize::from(waits);
        Some((questions, Lead { combiner: self, locks, silent_from, waits: waits.then_some(rows) }))
    }

    /// After how long a step counts as silent; one that waits for its row, that much after the longest wait.
    fn silent(&self) -> Duration {
        self.enough / 2
    }

    /// Whether another leader may wait for a row.
    fn may_wait(&self, state: &CombinerState) -> bool {
        state.waiting_for_rows < (self.leaders - 1).max(1)
    }

    /// Calls callers that wait to free leads: one to a step that waits for no row, and one to a step that does. Nothing is kept for them:
    /// a caller that is awake may be first, and a caller that was called in vain calls others.
    fn call_others(&self, state: &CombinerState) {
        for waits in [false, true] {
            let may_lead = state.leading < self.leaders && (!waits || self.may_wait(state));
            let can_be_led =
                |question: &&Question| question.is_blocked == waits && !state.is_in_step(&question.lock);
            let led = state.waiting.iter().filter(|question| may_lead && can_be_led(question));
            led.filter_map(|question| question.call.as_ref()).any(|call| call.calls());
        }
    }

    /// Takes the questions of a leaving caller out. Nothing that may still have an effect was sent for them.
    fn give_up(&self, state: &mut CombinerState, call: &Arc<Call>) {
        for question in take_if(&mut state.waiting, &mut |question| question.is_of(call)) {
            let why = if question.is_blocked {
                Failure::blocked()
            } else {
                Failure::broken("all connections are in use")
            };
            question.tell(Err(why));
        }
    }

    /// A step answers these questions next, and blocked ones with later ones about the same locks. A question whose caller has left fails.
    fn put_back(&self, questions: Vec<Question>) {
        let mut state = self.state.lock();
        let at = state.waiting.iter().take_while(|question| question.is_blocked).count();
        for question in questions.into_iter().rev() {
            if Instant::now() >= question.deadline {
                let late = Failure::broken("no answer in time");
                let why = if question.is_blocked { Failure::blocked() } else { late };
                question.tell(Err(why));
                continue;
            }
            let same = |later: &&mut Question| later.lock == question.lock;
            state.waiting.iter_mut().filter(same).for_each(|later| later.is_blocked |= question.is_blocked);
            state.waiting.insert(at, question);
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.combiner.state.lock();
        state.leading -= 1;
        state.waiting_for_rows -= usize::from(self.waits.is_some());
        // Another step may be about a lock, if this one was silent.
        state
            .in_steps
            .retain(|lock, silent_from| *silent_from != self.silent_from || !self.locks.contains(lock));
        self.combiner.call_others(&state);
    }
}

fn take_if(from: &mut VecDeque<Question>, takes: &mut impl FnMut(&mut Question) -> bool) -> Vec<Question> {
    let (mut taken, mut left) = (Vec::new(), VecDeque::new());
    for mut question in from.drain(..) {
        if takes(&mut question) {
            taken.push(question);
        } else {
            left.push_back(question);
        }
    }
    *from = left;
    taken
}

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
    call: Option<Arc<Call>>,
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

    fn is_of(&self, call: &Arc<Call>) -> bool {
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
struct Call {
    state: Mutex<CallState>,
    changed: Condvar,
    deadline: Instant,
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
    fn new(questions: usize, deadline: Instant) -> Arc<Call> {
        let state = Mutex::new(CallState { left: questions, stage: Stage::Busy });
        Arc::new(Call { state, changed: Condvar::new(), deadline })
    }

    fn is_answered(&self) {
        self.state.lock().left -= 1;
        self.changed.notify_one();
    }

    /// From now on the caller can be called to work.
    fn begin_to_wait(&self) {
        self.state.lock().stage = Stage::Waits;
    }

    /// Has the caller look for work, if it waits.
    fn calls(&self) -> bool {
        let mut state = self.state.lock();
        let comes = state.stage == Stage::Waits && state.left > 0;
        if comes {
            state.stage = Stage::Called;
            self.changed.notify_one();
        }
        comes
    }

    /// Waits until the caller is called, all its questions are answered, or the time is over. Returns whether all are answered.
    fn is_answered_by(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.stage == Stage::Waits
            && state.left > 0
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.stage = Stage::Busy;
        state.left == 0
    }
}

#[cfg(test)]
mod lead_tests;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
