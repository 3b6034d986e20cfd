//! Who makes a flight of fast parts or a step, and for which questions. A caller that may lead makes one for its own questions and for
//! those that wait, and passes the lead on. The queue needs no thread, and a lone caller pays nothing for it.
//!
//! | a question | moves to | by |
//! | --- | --- | --- |
//! | asked | in a step that loads its lock | its caller joins it, unless that step may end later than the question |
//! | asked | waiting | its caller |
//! | waiting, with an attempt | in a flight | a leader: up to [`MOST_LOCKS`] locks at once; rows that others have locked are passed over |
//! | in a flight | answered | the commit; or the failure |
//! | in a flight | waiting, without an attempt, first of all | the leader: the attempt did not do it |
//! | waiting | in a step | a leader: up to [`MOST_LOCKS`] locks at once, which pass over rows that others have locked; or one lock, for whose row it waits |
//! | in a step | answered | the commit; or the failure, also if the leader's thread panics |
//! | in a step | blocked | another transaction has its row; or the step was refused, and it may be this one's fault |
//! | blocked | in a step | a leader that waits for this row alone |
//! | waiting, blocked | given up | its caller, whose time is over |
//!
//! Interleavings that are closed here:
//!
//! - **A lead is passed on to a caller that leaves**: both happen under the caller's mutex, and one that has left refuses.
//! - **A leader ends while a caller begins to wait**: the caller looks whether it may lead, and begins to wait, under the mutex under
//!   which leaders end. So none waits beside a free lead.
//! - **The server's clock was read before a question joined**: it is decided in the past, by no more than the step has lasted by
//!   then. So each time that the question names is longer by this, and each time in its answer shorter: no lease and no place ends
//!   sooner than its client believes, which counts from when it asked.
//! - **The thread of a step stands still**: its followers wait no longer than their calls last. A step ends by the first deadline of
//!   its questions and [`IDLE`](crate::net::pool::IDLE), or never has effect. So a question has effect no later than if its caller had
//!   made the step, and one whose time is nearly over is taken by no other: it would cut theirs short.
//! - **The caller has left when its question is to wait again**: a question whose time is over is told so instead, under the mutex under
//!   which callers that leave take theirs out.
//! - **An attempt overtakes a question that came before** about the same lock and needs a step: then it is not made.
//! - **Many rows are blocked**: no more than all leaders but one wait for rows, so others' locks never wait for that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use parking_lot::Mutex;

use super::question::{Call, Question, Waited};
use crate::net::Failure;

/// The most locks of one step: for each the server keeps up to four entries in its table of locks, until the step is over.
pub(crate) const MOST_LOCKS: usize = 64;
/// The most leaders: beyond that nothing waits.
pub(super) const MOST_LEADERS: usize = 4;

pub(crate) struct Queue {
    state: Mutex<State>,
    leaders: usize,
    /// A question with less time is taken by no other caller than its own.
    enough: Duration,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Question>,
    blocked: VecDeque<Question>,
    /// The steps that can be joined, by their locks: when each ends, and what has joined it.
    loading: HashMap<LockName, (Instant, Vec<Question>)>,
    leading: usize,
    /// Those of them that wait for a row.
    waiting_for_rows: usize,
}

/// What a leader does.
struct Work<'q> {
    questions: Vec<Question>,
    part: Part,
    lead: Lead<'q>,
}

/// How it does that.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// By a flight of attempts.
    Fast,
    /// By a step that waits for a row, where the time that its call has is for so many; else it passes over rows that are locked.
    Step { waits: Option<u32> },
}

/// The right to make a flight or a step. When it is dropped it is passed on.
struct Lead<'q> {
    queue: &'q Queue,
    waits: bool,
}

impl Queue {
    pub(crate) fn new(connections: usize, enough: Duration) -> Queue {
        let leaders = connections.saturating_sub(1).clamp(1, MOST_LEADERS);
        Queue { state: Mutex::default(), leaders, enough }
    }

    /// Returns when all these questions of one call are answered, or the call's time is over. `make` makes a flight or a step, and returns
    /// the questions that are left.
    pub(super) fn turn(
        &self,
        mut questions: Vec<Question>,
        deadline: Instant,
        make: impl Fn(Vec<Question>, Part) -> Vec<Question>,
    ) {
        let call = Call::new(questions.len(), deadline);
        let mut state = self.state.lock();
        for mut question in questions.drain(..) {
            question.call = Some(Arc::clone(&call));
            match state.loading.get_mut(&question.lock) {
                Some((ends, joined)) if *ends <= question.deadline => joined.push(question),
                _ => {
                    let is_before = |one: &Question| one.lock == question.lock && one.attempt.is_none();
                    if state.blocked.iter().chain(&state.waiting).any(is_before) {
                        question.attempt = None;
                    }
                    state.waiting.push_back(question);
                }
            }
        }
        loop {
            if let Some(Work { questions, part, lead }) = self.work(&mut state, &call) {
                drop(state);
                let left = make(questions, part);
                match part {
                    Part::Fast => self.put_back(left),
                    Part::Step { .. } => self.block(left),
                }
                drop(lead); // which passes it on
                state = self.state.lock();
                continue;
            }
            self.pass_on(&mut state); // others may have taken what it was to lead for
            call.begin_to_wait();
            drop(state);
            let waited = call.wait(deadline);
            state = self.state.lock();
            if waited == Waited::Leads {
                state.leading -= 1; // or it takes the lead now
            }
            if waited == Waited::Answered || Instant::now() >= deadline {
                break;
            }
        }
        self.pass_on(&mut state);
        self.give_up(&mut state, &call);
    }

    /// What this caller can do for its own questions, and for others by the way.
    fn work(&self, state: &mut State, call: &Arc<Call>) -> Option<Work<'_>> {
        if state.leading >= self.leaders {
            return None;
        }
        let may_wait = state.waiting_for_rows < (self.leaders - 1).max(1);
        let is_own = |question: &&Question| question.is_of(call);
        let blocked = state.blocked.iter().find(is_own).filter(|_| may_wait);
        let first = blocked.or_else(|| state.waiting.iter().find(is_own))?;
        let (lock, is_fast) = (first.lock.clone(), blocked.is_none() && first.attempt.is_some());
        let is_alone =
            state.waiting.iter().all(|question| question.attempt.is_some() || question.lock == lock);
        let waits = blocked.is_some() || !is_fast && is_alone && may_wait;
        let rows: HashSet<_> = state.blocked.iter().filter(is_own).map(|question| &question.lock).collect();
        let rows = u32::try_from(rows.len()).unwrap_or(u32::MAX).max(1);
        let enough = Instant::now() + self.enough;
        let is_late = call.deadline < enough;
        let mut locks = HashSet::from([lock]);
        let mut takes = |question: &mut Question| {
            let is_meant = question.attempt.is_some() == is_fast;
            (question.is_of(call) || !is_late && question.deadline >= enough)
                && (is_meant || !is_fast)
                && (locks.contains(&question.lock)
                    || is_meant && !waits && locks.len() < MOST_LOCKS && locks.insert(question.lock.clone()))
        };
        let mut questions = Vec::new();
        if waits {
            questions.extend(take_if(&mut state.blocked, &mut takes));
        }
        questions.extend(take_if(&mut state.waiting, &mut takes));
        state.leading += 1;
        state.waiting_for_rows += usize::from(waits);
        let part = if is_fast { Part::Fast } else { Part::Step { waits: waits.then_some(rows) } };
        Some(Work { questions, part, lead: Lead { queue: self, waits } })
    }

    /// Passes free leads on to callers that wait: one for a flight, and one for a step.
    fn pass_on(&self, state: &mut State) {
        let may_wait = state.waiting_for_rows < (self.leaders - 1).max(1);
        let State { waiting, blocked, leading, .. } = state;
        let blocked = blocked.iter().filter(|_| may_wait);
        for is_fast in [false, true] {
            let waiting = waiting.iter().filter(|question| question.attempt.is_some() == is_fast);
            let blocked = blocked.clone().filter(|_| !is_fast);
            let mut calls = blocked.chain(waiting).filter_map(|question| question.call.as_ref());
            if *leading < self.leaders && calls.any(|call| call.offer()) {
                *leading += 1; // until it takes it
            }
        }
    }

    /// Takes the questions of a caller out that leaves. Nothing was sent of them that may still have an effect.
    fn give_up(&self, state: &mut State, call: &Arc<Call>) {
        let mut is_own = |question: &mut Question| question.is_of(call);
        for question in take_if(&mut state.blocked, &mut is_own) {
            question.tell(Err(Failure::blocked()));
        }
        for question in take_if(&mut state.waiting, &mut is_own) {
            question.tell(Err(Failure::broken("all connections are in use")));
        }
    }

    /// From now on the steps of these locks can be joined, but for those that others load. Those of which this is so.
    pub(super) fn open<'a>(&self, locks: impl Iterator<Item = &'a LockName>, ends: Instant) -> Vec<LockName> {
        let mut state = self.state.lock();
        let is_new = |lock: &&LockName| !state.loading.contains_key(*lock);
        let opened: Vec<_> = locks.filter(is_new).cloned().collect();
        state.loading.extend(opened.iter().map(|lock| (lock.clone(), (ends, Vec::new()))));
        opened
    }

    /// From now on they can't. What has joined them.
    pub(super) fn close(&self, opened: &mut Vec<LockName>) -> Vec<Question> {
        let mut state = self.state.lock();
        let joined = opened.drain(..).filter_map(|lock| state.loading.remove(&lock));
        joined.flat_map(|(_, joined)| joined).collect()
    }

    /// Their rows are waited for one by one.
    fn block(&self, questions: Vec<Question>) {
        let mut state = self.state.lock();
        let in_time = questions.into_iter().filter_map(|question| in_time(question, Failure::blocked));
        state.blocked.extend(in_time);
    }

    /// Their attempts did not do it: a step answers them next, and what came later about the same locks.
    fn put_back(&self, questions: Vec<Question>) {
        let mut state = self.state.lock();
        let late = || Failure::broken("no answer in time");
        for question in questions.into_iter().rev().filter_map(|question| in_time(question, late)) {
            let same = |later: &&mut Question| later.lock == question.lock;
            state.waiting.iter_mut().filter(same).for_each(|later| later.attempt = None);
            state.waiting.push_front(question);
        }
    }

    /// For tests: how many have joined each step.
    #[cfg(test)]
    pub(crate) fn joined(&self) -> Vec<usize> {
        self.state.lock().loading.values().map(|(_, joined)| joined.len()).collect()
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.leading -= 1;
        state.waiting_for_rows -= usize::from(self.waits);
        self.queue.pass_on(&mut state);
    }
}

/// The question, if its caller still waits; one that does not is told why.
fn in_time(question: Question, late: impl Fn() -> Failure) -> Option<Question> {
    if Instant::now() < question.deadline {
        return Some(question);
    }
    question.tell(Err(late()));
    None
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

#[cfg(test)]
mod tests;
