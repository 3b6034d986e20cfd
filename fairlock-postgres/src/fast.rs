//! The fast parts: a free lock is taken, a hold of a lock without a line released, and a hold renewed, by one statement. Callers that ask
//! at the same time share the statement, its round trip and its commit. What is not so plain changes nothing here and is the general
//! part's: `step`.
//!
//! They do what the general part would do to the same row, number by number:
//!
//! | the row | `acquire` by a new request for one unit | `release` | renewal |
//! | --- | --- | --- | --- |
//! | `state` is empty, and the hold is over, or there is none | grants | general part | general part |
//! | `state` is empty, and this hold lasts | general part: it may be a repeat | ends the hold | prolongs it |
//! | `state` is not empty: a line, or what it remembers | general part | general part | prolongs it: a holder hands nothing on |
//! | another transaction has it locked, or has written it since the statement began | general part | general part | general part |
//! | there is none | general part | general part | general part |
//!
//! Interleavings that are closed here:
//!
//! - **A waiter joins between the look at the row and the write**: an attempt locks the row as it looks at it, and the write finds it
//!   by its place in the table, where a version that is newer than the statement's snapshot is not found. So the clock was read after
//!   all that the row tells. Under REPEATABLE READ, which a role may have as its default, such a row is an error. Then nothing was
//!   done, and the general part, which names its level, goes on. So this one need not.
//! - **A lock is released and asked for in one flight**: the release comes first. A second request for the lock, and one behind a
//!   question that only a step can answer, makes no attempt: it would overtake.
//! - **The row is locked**, maybe for long, by the program's own transaction: no attempt waits for a row. An attempt that waits in the
//!   server goes on after its caller has gone, had its request withdrawn, which finds nothing, and ended its client. Then the row
//!   is free, and the lock is taken for nobody.
//! - **The attempt arrives late**, after its repeat was answered and the hold released, or its client has gone: each `acquire` has the
//!   end of its own call as its end, by the server's clock, whichever caller sends the flight. A release names its hold.
//! - **The statement is carried out and its answer lost**: no caller in the flight is told that nothing was sent. The repeat finds a
//!   hold, so the general part answers it. A release that is repeated finds none.
//! - **The clock was set forward**: attempts seem late, the general part does them, and its answer tells the time.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{Acquire, Acquired, BackendError, Hold, Released};

use crate::attempt::{Attempt, What, statement};
use crate::net::pool::warnings;
use crate::net::{Connection, Failure, INT8, Statement, TEXT};
use crate::owned;
use crate::row::{LONGEST, is_text, micros, moment};
use crate::step::{Question, Store};

impl Store {
    pub(crate) fn acquire(self: &Arc<Store>, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let deadline = self.pool.deadline();
        let question = |ask: &Acquire<'_>| {
            let attempt = self.fast_acquire(ask, deadline);
            Question::new(&ask.place.lock.name, deadline, attempt, owned::acquire(ask))
        };
        let places: Vec<_> = asks.iter().map(|ask| ask.place).collect();
        let answers = self.ask_and_hear(&places, deadline, |these| {
            let answers = self.ask(these.iter().map(|at| question(&asks[*at])), deadline);
            answers.into_iter().map(|answer| answer?).collect()
        });
        for (place, answer) in places.iter().zip(&answers) {
            if let Ok(Acquired::Busy { .. }) = answer {
                self.recent.is_busy(&place.lock.name); // by a hold alone, so the step does not see it
            }
        }
        answers
    }

    pub(crate) fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        let deadline = self.pool.deadline();
        let question = |hold: &Hold<'_>| {
            let release = owned::about(hold, |entry, turn, hold, _| entry.release(turn, hold));
            Question::new(&hold.lock.name, deadline, self.fast_release(hold), release)
        };
        self.ask(holds.iter().map(question), deadline)
    }

    /// Makes the attempts of these questions in one round trip, and tells those that were done. The others, which a step has to answer.
    pub(crate) fn attempt(&self, mut questions: Vec<Question>, is_watchdogs: bool) -> Vec<Question> {
        let attempting = questions.iter().filter(|question| question.attempt.is_some());
        let Some(deadline) = attempting.map(|question| question.deadline).min() else { return questions };
        let make = |con: &mut Connection| self.attempt_on(con, &mut questions, deadline);
        let made = self.pool.lend_to(is_watchdogs, deadline, make);
        let is_answered = match made {
            Ok(is_answered) => is_answered,
            // Nothing was done, as when a row was written meanwhile under REPEATABLE READ. The step says what else is wrong.
            Err(failure) if failure.is_answer() && failure.keeps_connection() => return questions,
            Err(failure) => {
                questions.into_iter().for_each(|question| question.tell(Err(failure.clone())));
                return Vec::new();
            }
        };
        let mut left = Vec::new();
        for (at, question) in questions.into_iter().enumerate() {
            if is_answered.contains(&at) {
                question.tell(Ok(()));
            } else {
                left.push(question);
            }
        }
        left
    }

    /// Which of the questions were answered.
    fn attempt_on(
        &self,
        con: &mut Connection,
        questions: &mut [Question],
        deadline: Instant,
    ) -> Result<HashSet<usize>, Failure> {
        let (mut seen, mut made) = (HashSet::new(), BTreeMap::<_, (Vec<_>, Vec<_>)>::new());
        for (at, question) in questions.iter_mut().enumerate() {
            let is_first = |lock: &LockName, what| seen.insert((what, lock.clone()));
            if let Some(attempt) = question.take_attempt(is_first) {
                let (numbers, attempts) = made.entry(attempt.what).or_default();
                numbers.push(at);
                attempts.push(attempt);
            }
        }
        // One Sync, so it is one transaction, and in a pooler's session warnings are told in it.
        let warned =
            (!con.is_own_session()).then(|| Statement::made_up(format!("select {}", warnings(true))));
        let attempts = made.iter().map(|(what, (_, attempts))| statement(*what, attempts, con.grace_ends));
        let flight: Vec<_> = warned.into_iter().chain(attempts).collect();
        let (answers, mut is_answered) = (con.flight(&flight, deadline)?, HashSet::new());
        for ((what, (numbers, _)), rows) in made.iter().rev().zip(answers.iter().rev()) {
            for row in rows {
                let nth = usize::try_from(row.number(0)? - 1).ok().and_then(|nth| numbers.get(nth));
                let at = *nth.ok_or_else(Failure::senseless)?;
                questions[at].read(row)?;
                is_answered.insert(at);
                self.recent.heard(moment(row.number(1)?));
                if *what == What::Renew && row.flag(2)? {
                    self.recent.is_waited_for(&questions[at].lock);
                }
            }
        }
        Ok(is_answered)
    }

    /// The attempt, if it can be one.
    fn fast_acquire(&self, ask: &Acquire<'_>, deadline: Instant) -> Option<Attempt> {
        let (place, lease) = (&ask.place, micros(ask.lease));
        let is_plain = !place.lock.kind.is_shared() && place.takes == 1 && place.ticket == 0;
        let encoding = self.pool.encoding();
        let is_fit = lease <= LONGEST && is_text(place.owner, ask.label, encoding);
        if !is_plain || !is_fit || self.recent.was_busy(&place.lock.name) {
            return None;
        }
        let ends = self.recent.server_time(deadline)?;
        let label = encoding.replaced(ask.label).as_ref().into();
        let more = [(INT8, lease.into()), (TEXT, label), (INT8, micros(ends).into())];
        Some(Attempt::new(What::Acquire, place.lock, place.owner, place.request, more))
    }

    /// None for what can't stand in columns.
    pub(crate) fn fast_renewal(&self, hold: &Hold<'_>, holds: u32, lease: Duration) -> Option<Attempt> {
        let more =
            [hold.token.get().cast_signed(), i64::from(holds.cast_signed()), micros(lease).min(LONGEST)];
        self.is_in_columns(hold).then(|| Attempt::of_hold(What::Renew, hold, more))
    }

    fn fast_release(&self, hold: &Hold<'_>) -> Option<Attempt> {
        let is_plain = self.is_in_columns(hold) && !self.recent.was_waited_for(&hold.lock.name);
        is_plain.then(|| Attempt::of_hold(What::Release, hold, [hold.token.get().cast_signed()]))
    }

    fn is_in_columns(&self, hold: &Hold<'_>) -> bool {
        !hold.lock.kind.is_shared() && is_text(hold.owner, "", self.pool.encoding())
    }
}

#[cfg(test)]
mod tests;
