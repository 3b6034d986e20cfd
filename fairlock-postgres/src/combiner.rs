//! Who makes a flight of fast parts or a step, and for which questions. A caller that may lead makes a flight or a step for its
//! own questions and for the waiting ones, and passes the lead on. A combiner needs no thread, and costs a lone caller nothing.
//!
//! | a question | moves to | by |
//! | --- | --- | --- |
//! | asked | in a step that loads its lock | its caller joins the step, unless the step may end later than the question |
//! | asked | waiting | its caller |
//! | waiting, with an attempt | in a flight | a leader: up to [`MOST_LOCKS`] locks at once; rows that others have locked are passed over |
//! | in a flight | answered | the commit; or the failure |
//! | in a flight | waiting, without an attempt, first of all | the leader: the attempt did not answer it |
//! | waiting | in a step | a leader: up to [`MOST_LOCKS`] locks at once, passing over locked rows; or one lock, waiting for its row |
//! | in a step | answered | the commit; or the failure, even if the leader's thread panics |
//! | in a step | blocked | another transaction has its row; or the step was refused, and this question may be at fault |
//! | blocked | in a step | a leader that waits for this row alone |
//! | waiting, blocked | given up | its caller, whose time is over |
//!
//! Interleavings that are closed here:
//!
//! - **A lead is passed on to a caller that leaves**: both happen under the caller's mutex, and a caller that has left refuses.
//! - **A leader ends while a caller begins to wait**: the caller looks whether it may lead, and begins to wait, under the mutex under
//!   which leaders end. So no caller waits beside a free lead.
//! - **The server's clock was read before a question joined**: the question is decided in the past, by no more than the step has
//!   lasted by then. So leases and TTLs in the question are lengthened by this delay, and durations in the answer are shortened:
//!   no lease and no place ends sooner than its client believes, since the client counts from the moment of its ask.
//! - **The thread of a step stands still**: its followers wait no longer than their calls last. A step ends by the first deadline
//!   of its questions and [`idle`](crate::net::pool::Pool::idle), or never has effect. So a question has effect no later than in a step
//!   of its own caller. A question whose time is nearly over is taken by no leader that has more time: it would cut the
//!   step short. Leaders that have as little time take it: else steps would shrink to one question just when many wait.
//! - **The caller has left when its question is to wait again**: a question whose time is over fails instead, under the mutex under
//!   which leaving callers take their questions out.
//! - **An attempt overtakes an earlier question** that is about the same lock and needs a step: then no attempt is made.
//! - **Many rows are blocked**: at least one leader waits for no row, and serves the other locks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use parking_lot::Mutex;

use crate::net::Failure;
use crate::question::{Call, Question};

/// The most locks of one step: for each the server keeps up to four entries in its table of locks, until the step is over.
pub(crate) const MOST_LOCKS: usize = 64;
/// The most leaders: beyond that nothing waits.
pub(crate) const MOST_LEADERS: usize = 4;

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
    /// The steps that can be joined, by their locks: when each ends, and what has joined it.
    loading: HashMap<LockName, (Instant, Vec<Question>)>,
    leading: usize,
    /// How many of the leaders wait for a row.
    waiting_for_rows: usize,
}

/// What a leader does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    /// By a flight of attempts.
    Fast,
    /// By a step. `waits`: the step waits for a row, and the call's time is divided among so many. None: the step passes over
    /// locked rows.
    Step { waits: Option<u32> },
}

/// The right to make a flight or a step. The drop passes it on.
struct Lead<'q> {
    combiner: &'q Combiner,
    part: Part,
}

impl Combiner {
    pub(crate) fn new(connections: usize, enough: Duration) -> Combiner {
        let leaders = connections.saturating_sub(1).clamp(1, MOST_LEADERS);
        Combiner { state: Mutex::default(), leaders, enough }
    }

    /// Returns when all these questions of one call are answered, or the call's time is over. `make` makes a flight or a step, and returns
    /// the questions that are left.
    pub(crate) fn operation(
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
                    if state.waiting.iter().any(is_before) {
                        question.attempt = None;
                    }
                    state.waiting.push_back(question);
                }
            }
        }
        loop {
            if let Some((questions, lead)) = self.work(&mut state, &call) {
                drop(state);
                let left = make(questions, lead.part);
                self.put_back(left, matches!(lead.part, Part::Step { .. }));
                drop(lead); // which passes it on
                state = self.state.lock();
                continue;
            }
            self.pass_on(&mut state); // others may have taken what it was to lead for
            call.begin_to_wait();
            drop(state);
            let leads = call.leads_by(deadline);
            state = self.state.lock();
            state.leading -= usize::from(leads); // or it takes the lead now
            if !leads || Instant::now() >= deadline {
                break;
            }
        }
        self.pass_on(&mut state);
        self.give_up(&mut state, &call);
    }

    /// What this caller can do for its own questions, and for others by the way.
    fn work(&self, state: &mut CombinerState, call: &Arc<Call>) -> Option<(Vec<Question>, Lead<'_>)> {
        if state.leading >= self.leaders {
            return None;
        }
        let may_wait = self.may_wait(state);
        let is_own = |question: &&Question| question.is_of(call);
        let first = state.waiting.iter().filter(is_own).find(|question| may_wait || !question.is_blocked)?;
        let (lock, is_fast) = (first.lock.clone(), first.attempt.is_some());
        let is_other_step =
            |question: &Question| !question.is_blocked && question.attempt.is_none() && question.lock != lock;
        let waits = first.is_blocked || !is_fast && may_wait && !state.waiting.iter().any(is_other_step);
        let own = state.waiting.iter().filter(is_own);
        let rows: HashSet<_> = own.filter(|own| own.is_blocked).map(|own| &own.lock).collect();
        let rows = u32::try_from(rows.len()).unwrap_or(u32::MAX).max(1);
        let enough = Instant::now() + self.enough;
        let is_late = call.deadline < enough;
        let mut locks = HashSet::from([lock]);
        // A step ends by the first deadline of its questions. So a late leader takes others that are late, and end no sooner.
        let ends_well = |question: &Question| match is_late {
            true => (call.deadline..enough).contains(&question.deadline),
            false => question.deadline >= enough,
        };
        let mut takes = |question: &mut Question| {
            let is_meant = question.attempt.is_some() == is_fast;
            (question.is_of(call) || ends_well(question))
                && (is_meant || !is_fast)
                && (waits || !question.is_blocked)
                && (locks.contains(&question.lock)
                    || is_meant && !waits && locks.len() < MOST_LOCKS && locks.insert(question.lock.clone()))
        };
        let questions = take_if(&mut state.waiting, &mut takes);
        state.leading += 1;
        state.waiting_for_rows += usize::from(waits);
        let part = if is_fast { Part::Fast } else { Part::Step { waits: waits.then_some(rows) } };
        Some((questions, Lead { combiner: self, part }))
    }

    /// Whether another leader may wait for a row.
    fn may_wait(&self, state: &CombinerState) -> bool {
        state.waiting_for_rows < (self.leaders - 1).max(1)
    }

    /// Passes free leads on to callers that wait: one for a flight, and one for a step.
    fn pass_on(&self, state: &mut CombinerState) {
        let may_wait = self.may_wait(state);
        for is_fast in [false, true] {
            let can_be_led = |question: &&Question| {
                question.attempt.is_some() == is_fast && (may_wait || !question.is_blocked)
            };
            let led = state.waiting.iter().filter(can_be_led);
            let mut calls = led.filter_map(|question| question.call.as_ref());
            if state.leading < self.leaders && calls.any(|call| call.offer()) {
                state.leading += 1; // until it takes it
            }
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

    /// From now on the steps of these locks can be joined, except for locks that other steps load. Returns the joinable locks.
    pub(crate) fn open<'a>(&self, locks: impl Iterator<Item = &'a LockName>, ends: Instant) -> Vec<LockName> {
        let mut state = self.state.lock();
        let is_new = |lock: &&LockName| !state.loading.contains_key(*lock);
        let opened: Vec<_> = locks.filter(is_new).cloned().collect();
        state.loading.extend(opened.iter().map(|lock| (lock.clone(), (ends, Vec::new()))));
        opened
    }

    /// From now on the steps of these locks can't be joined. Returns what has joined them.
    pub(crate) fn close(&self, opened: &mut Vec<LockName>) -> Vec<Question> {
        let mut state = self.state.lock();
        let joined = opened.drain(..).filter_map(|lock| state.loading.remove(&lock));
        joined.flat_map(|(_, joined)| joined).collect()
    }

    /// A step answers these questions next, with later ones about the same locks; blocked questions get a step for each lock alone. A
    /// question whose caller has left fails.
    fn put_back(&self, questions: Vec<Question>, are_blocked: bool) {
        let mut state = self.state.lock();
        let at = state.waiting.iter().take_while(|question| question.is_blocked).count();
        for mut question in questions.into_iter().rev() {
            if Instant::now() >= question.deadline {
                let late = Failure::broken("no answer in time");
                question.tell(Err(if are_blocked { Failure::blocked() } else { late }));
                continue;
            }
            let same = |later: &&mut Question| later.lock == question.lock;
            state.waiting.iter_mut().filter(same).for_each(|later| later.attempt = None);
            (question.attempt, question.is_blocked) = (None, are_blocked);
            state.waiting.insert(at, question);
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
        let mut state = self.combiner.state.lock();
        state.leading -= 1;
        state.waiting_for_rows -= usize::from(matches!(self.part, Part::Step { waits: Some(_) }));
        self.combiner.pass_on(&mut state);
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

#[cfg(test)]
mod leads;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
