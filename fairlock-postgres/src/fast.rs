//! The fast parts: a free lock is taken, a hold of a lock without a queue released, and a hold renewed, by one statement each (`sql/fast`).
//! Callers that ask at the same time share a flight: its round trip and its commit. For all else a fast part changes nothing, and the
//! general part (`step`) answers.
//!
//! The fast parts do what the general part would do to the same row, number by number:
//!
//! | the row | `acquire` by a new request for one unit | `release` | renewal |
//! | --- | --- | --- | --- |
//! | `state` is empty, and the hold is over, or there is none | grants | general part | general part |
//! | `state` is empty, and this hold lasts | general part: it may be a repeat | ends the hold | prolongs it |
//! | `state` is not empty: a queue, or what it remembers | general part | general part | prolongs it: a holder hands nothing on |
//! | `state` is of a later layout | general part, which refuses | general part | general part |
//! | another transaction has it locked, or has written it since the statement began | general part | general part | general part |
//! | there is none | general part | general part | general part |
//!
//! Interleavings that are closed here:
//!
//! - **A waiter joins between the look at the row and the write**: an attempt locks the row as it looks, and the write finds the
//!   row by its place in the table, where a version newer than the statement's snapshot is not found. So the clock was read after
//!   all changes of the row. Under REPEATABLE READ, which may be a role's default, such a row is an error: nothing was done, and
//!   the general part, which names its level, goes on.
//! - **A lock is released and asked for in one flight**: the release comes first. A second request for the lock, and one behind a
//!   question that only a step can answer, makes no attempt: it would overtake.
//! - **The row is locked**, maybe for long, by the program's own transaction: no attempt waits for a row. A waiting attempt would
//!   go on in the server after its caller has gone, the withdrawal has found nothing, and the client has ended. Then the row
//!   becomes free, and the lock is taken for nobody.
//! - **The attempt arrives late**, after its repeat was answered and the hold released, or its client has gone: each `acquire` has the
//!   end of its own call as its end, by the server's clock, whichever caller sends the flight. A release names its hold.
//! - **The statement is carried out and its answer lost**: no caller in the flight is told that nothing was sent. The repeat finds a
//!   hold, so the general part answers it. A release that is repeated finds none.
//! - **The clock was set forward**: attempts seem late, the general part does them, and its answer tells the time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{Acquire, Hold};

use crate::attempt::{Attempt, What};
use crate::net::pool::WARN;
use crate::net::{Connection, Failure, Statement};
use crate::question::{Question, tell};
use crate::row::{LONGEST, is_text, micros, moment};
use crate::store::Store;

/// The attempt for this question, if a fast part can make one.
pub(crate) fn acquire(store: &Store, ask: &Acquire<'_>, deadline: Instant) -> Option<Attempt> {
    let (place, lease) = (&ask.place, micros(ask.lease));
    let is_plain = !place.lock.kind.is_shared() && place.units == 1 && place.ticket == 0;
    let encoding = store.pool.encoding();
    let is_fit = lease <= LONGEST && is_text(place.owner, ask.label, encoding);
    if !is_plain || !is_fit || store.recent.was_busy(&place.lock.name) {
        return None;
    }
    let ends = store.recent.server_time(deadline)?;
    let more = [lease.into(), encoding.replaced(ask.label).as_ref().into(), micros(ends).into()];
    Some(Attempt::new(What::Acquire, place.lock, place.owner, place.request, more))
}

/// None for a value that can't stand in a column.
pub(crate) fn renew(store: &Store, hold: &Hold<'_>, holds: u32, lease: Duration) -> Option<Attempt> {
    let more = [i64::from(holds.cast_signed()), micros(lease).min(LONGEST)];
    is_in_columns(store, hold).then(|| Attempt::of_hold(What::Renew, hold, more))
}

pub(crate) fn release(store: &Store, hold: &Hold<'_>) -> Option<Attempt> {
    let is_plain = is_in_columns(store, hold) && !store.recent.was_waited_for(&hold.lock.name);
    is_plain.then(|| Attempt::of_hold(What::Release, hold, []))
}

fn is_in_columns(store: &Store, hold: &Hold<'_>) -> bool {
    !hold.lock.kind.is_shared() && is_text(hold.owner, "", store.pool.encoding())
}

/// Makes the attempts of these questions in one round trip, and sends the answers. Returns the questions that a step has to
/// answer.
pub(crate) fn make(store: &Store, mut questions: Vec<Question>, is_watchdogs: bool) -> Vec<Question> {
    let attempting = questions.iter().filter(|question| question.attempt.is_some());
    let Some(deadline) = attempting.map(|question| question.deadline).min() else { return questions };
    let fly = |con: &mut Connection| fly(store, con, &mut questions, deadline);
    match store.pool.lend_to(is_watchdogs, deadline, fly) {
        Ok(()) => {
            let (done, left): (Vec<_>, _) = questions.into_iter().partition(Question::is_decided);
            tell(done, &Ok(()));
            left
        }
        // Nothing was done, as when a row was written meanwhile under REPEATABLE READ. The step says what else is wrong.
        Err(failure) if failure.keeps_connection() => questions,
        Err(failure) => {
            tell(questions, &Err(failure));
            Vec::new()
        }
    }
}

/// Sends the attempts, and reads the answers to those that were done.
fn fly(
    store: &Store,
    con: &mut Connection,
    questions: &mut [Question],
    deadline: Instant,
) -> Result<(), Failure> {
    let (mut seen, mut made) = (HashSet::new(), Vec::new());
    for (at, question) in questions.iter_mut().enumerate() {
        let is_first = |lock: &LockName, what| seen.insert((what, lock.clone()));
        made.extend(question.take_attempt(is_first).map(|attempt| (attempt.what, at, attempt)));
    }
    made.sort_by_key(|(what, at, _)| (*what, *at));
    // One Sync makes one transaction. A pooler's session sends its warnings inside.
    let mut flight: Vec<_> = (!con.is_own_session()).then(|| Statement::new(WARN, [])).into_iter().collect();
    let (first, grace_ends) = (flight.len(), con.grace_ends);
    let mut attempts = Vec::new();
    for (what, at, attempt) in made {
        flight.push(attempt.statement(grace_ends));
        attempts.push((what, at));
    }
    flight.extend(store.pool.sync(con));
    let answers = con.flight(&flight, deadline)?;
    for ((what, at), rows) in attempts.into_iter().zip(answers.iter().skip(first)) {
        let Some(row) = rows.first() else { continue };
        let question = &mut questions[at];
        question.read(what, row)?;
        store.recent.heard(moment(row.number(0)?));
        if what == What::Renew && row.flag(1)? {
            store.recent.is_waited_for(&question.lock);
        }
    }
    Ok(())
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
