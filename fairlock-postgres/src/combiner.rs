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
//!   of its questions and [`idle`](crate::net::Pool::idle), or never has effect. So a question has effect no later than in a step
//!   of its own caller. A question whose time is nearly over is taken by no leader that has more time: it would cut the
//!   step short. Leaders that have as little time take it: else steps would shrink to one question just when many wait.
//! - **The caller has left when its question is to wait again**: a question whose time is over fails instead, under the mutex under
//!   which leaving callers take their questions out.
//! - **Many rows are blocked**: at least one leader waits for no row, and serves the other locks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
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
    waiting: Vec<Question>,
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
        call: &Arc<Call>,
        questions: Vec<Question>,
        make: impl Fn(Vec<Question>, Option<u32>) -> Vec<Question>,
    ) {
        let mut state = self.state.lock();
        for mut question in questions {
            question.is_blocked = state.waiting.iter().any(|one| one.is_blocked && one.lock == question.lock);
            state.waiting.push(question);
        }
        loop {
            if let Some((questions, lead)) = self.work(&mut state, call) {
                drop(state);
                self.put_back(make(questions, lead.waits));
                drop(lead); // which calls others
                state = self.state.lock();
                continue;
            }
            self.call_others(&state); // others may have taken what it was called for
            call.begin_to_wait();
            drop(state);
            let is_over = call.is_answered_by(call.deadline.min(Instant::now() + self.silent()));
            state = self.state.lock();
            if is_over || Instant::now() >= call.deadline {
                break;
            }
        }
        self.give_up(&mut state, call);
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
            true => (call.deadline..enough).contains(&question.deadline()),
            false => question.deadline() >= enough,
        };
        let (mut locks, mut waiting) = (HashSet::from([lock]), std::mem::take(&mut state.waiting));
        let takes = |question: &mut Question| {
            (question.is_of(call) || ends_well(question))
                && (waits || !question.is_blocked)
                && (locks.contains(&question.lock)
                    || !waits
                        && locks.len() < MOST_LOCKS
                        && !state.is_in_step(&question.lock)
                        && locks.insert(question.lock.clone()))
        };
        let questions = waiting.extract_if(.., takes).collect();
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
            led.map(|question| &question.call).any(|call| call.calls());
        }
    }

    /// Takes the questions of a leaving caller out. Nothing that may still have an effect was sent for them.
    fn give_up(&self, state: &mut CombinerState, call: &Arc<Call>) {
        for question in state.waiting.extract_if(.., |question| question.is_of(call)) {
            question.give_up("all connections are in use");
        }
    }

    /// A step answers these questions next, and blocked ones with later ones about the same locks. A question whose caller has left fails.
    fn put_back(&self, questions: Vec<Question>) {
        let mut state = self.state.lock();
        let at = state.waiting.iter().take_while(|question| question.is_blocked).count();
        for question in questions.into_iter().rev() {
            if Instant::now() >= question.deadline() {
                question.give_up("no answer in time");
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

/// One question of a call. Its drop tells the caller the answer, so each caller gets exactly one.
pub(crate) struct Question {
    pub(crate) lock: LockName,
    pub(crate) command: Command,
    /// Whether a step for its lock alone has to answer the question, under the row lock: others have the row locked, or write it again and
    /// again, or this question may be why a step of many locks failed.
    pub(crate) is_blocked: bool,
    /// The answer, if the question was decided. Then anything with a possible effect may have been sent.
    decided: Option<Result<Answer, Failure>>,
    /// How the step has ended. None: its thread panicked.
    done: Option<Result<(), Failure>>,
    call: Arc<Call>,
    /// The question's number in its call.
    at: usize,
}

impl Question {
    /// Its caller waits no longer.
    pub(crate) fn deadline(&self) -> Instant {
        self.call.deadline
    }

    /// Decides the question, at most `late` after the time of the decision. Returns whether the answer is a promise. On another row, or
    /// after a failed step, the question is decided again.
    pub(crate) fn decide(
        &mut self,
        entry: &mut LockEntry,
        context: &mut OperationContext<'_>,
        late: Duration,
    ) -> bool {
        let answer = self.decided.insert(self.command.decide(entry, context, late));
        answer.as_ref().is_ok_and(Answer::is_promise)
    }

    /// Tells the caller that there is no answer: others had the row, or else this.
    fn give_up(self, why: &str) {
        let why = if self.is_blocked { Failure::blocked() } else { Failure::broken(why) };
        tell([self], &Err(why));
    }

    fn is_of(&self, call: &Arc<Call>) -> bool {
        Arc::ptr_eq(&self.call, call)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let failed = || Err(Failure::broken("the thread whose step this was has failed"));
        let done = self.done.take().unwrap_or_else(failed);
        let answer = match self.decided.take() {
            // If the reply is lost the request may have its hold. Core would leave that behind, were the request called unsent.
            Some(answer) => done.map_err(Failure::maybe_sent).and(answer),
            None => Err(done.err().unwrap_or_else(Failure::senseless).unsent()),
        };
        let mut state = self.call.state.lock();
        let former = state.answers[self.at].replace(answer);
        state.left -= usize::from(former.is_none());
        self.call.changed.notify_one();
    }
}

/// Tells the callers the answers to their questions, or why these do not count.
pub(crate) fn tell(questions: impl IntoIterator<Item = Question>, done: &Result<(), Failure>) {
    questions.into_iter().for_each(|mut question| question.done = Some(done.clone()));
}

/// A caller that waits for the answers to its questions, or for work.
pub(crate) struct Call {
    deadline: Instant,
    state: Mutex<CallState>,
    changed: Condvar,
}

struct CallState {
    /// The answers so far, in the order of the questions.
    answers: Vec<Option<Result<Answer, Failure>>>,
    /// How many are missing.
    left: usize,
    /// The caller can be called to work: it makes no step, waits, and was not called.
    waits: bool,
}

impl Call {
    /// A call that asks this about these locks.
    pub(crate) fn asking<'a>(
        asked: impl IntoIterator<Item = (&'a LockName, Command)>,
        deadline: Instant,
    ) -> (Arc<Call>, Vec<Question>) {
        let asked: Vec<_> = asked.into_iter().collect();
        let call = Call::new(asked.len(), deadline);
        let question = |(at, (lock, command))| call.question(at, lock, command);
        let questions = asked.into_iter().enumerate().map(question).collect();
        (call, questions)
    }

    fn new(questions: usize, deadline: Instant) -> Arc<Call> {
        let answers = (0..questions).map(|_| None).collect();
        let state = Mutex::new(CallState { answers, left: questions, waits: false });
        Arc::new(Call { deadline, state, changed: Condvar::new() })
    }

    fn question(self: &Arc<Call>, at: usize, lock: &LockName, command: Command) -> Question {
        let (lock, call) = (lock.clone(), Arc::clone(self));
        Question { lock, command, is_blocked: false, decided: None, done: None, call, at }
    }

    /// The answers, in the order of the questions, when the call is over.
    pub(crate) fn answers(&self) -> Vec<Result<Answer, Failure>> {
        let late = || Err(Failure::broken("no answer in time"));
        let mut state = self.state.lock();
        // Their places stay: a step of another caller may answer a question later.
        state.answers.iter_mut().map(|answer| answer.take().unwrap_or_else(late)).collect()
    }

    /// From now on the caller can be called to work.
    fn begin_to_wait(&self) {
        self.state.lock().waits = true;
    }

    /// Has the caller look for work, if it waits.
    fn calls(&self) -> bool {
        let mut state = self.state.lock();
        let comes = state.waits && state.left > 0;
        if comes {
            state.waits = false;
            self.changed.notify_one();
        }
        comes
    }

    /// Waits until the caller is called, all its questions are answered, or the time is over. Returns whether all are answered.
    fn is_answered_by(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_until(&mut state, |state| state.waits && state.left > 0, until);
        state.waits = false;
        state.left == 0
    }
}

#[cfg(test)]
mod lead_tests;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
