//! A step: decides by fairlock-rules on rows as they were seen last, or as free where none was seen, and writes each row if it is still
//! that: one round trip for many locks.
//!
//! ```text
//!  1  SWAP … READ … of each lock: written, if it is the row that was decided on; read       NOTIFY, in the same trip
//!  2  of those that were missed: decide on what was read, SWAP … NOTIFY
//! ```
//!
//! A lock that was missed three times, as in a crowd of processes, or whose row others have locked, gets a step of its own under the row
//! lock. There crowds wait in the server, in order:
//!
//! ```text
//!  1  BEGIN; SELECT … FOR UPDATE; read        decide
//!  2  SWAP; COMMIT        NOTIFY, in the same trip
//! ```
//!
//! | the client | the server | moves on by |
//! | --- | --- | --- |
//! | sent swaps | waits for no row, but for another insert of a new name | its answer; if that is lost they were done or not, and core repeats |
//! | sent BEGIN … | waits for the row lock | its holder's end; after `lock_timeout` it fails, nothing was done |
//! | decides under the row lock | has it | 2; else `idle_in_transaction_session_timeout`, or the end of the connection: rolled back |
//!
//! Interleavings that are closed here:
//!
//! - **The row is another one by now**: the swap finds another revision under the row lock, and writes nothing.
//! - **The time of the decision** is that of an earlier answer and what has passed since: never ahead of the server's clock, or the swap is
//!   not done. By as much as it may be too early, leases and TTLs of the questions are longer, and durations in answers shorter.
//! - **A period ends about then**: by an earlier time an ask of once in a period would be declined for the grant of the period before, though
//!   no other ask may come in this one. So such an ask is decided on a row that was read just now.
//! - **A swap arrives late**, after its repeat was answered and the hold released, or its client has gone: each swap has the end of its
//!   first call as its end, by the server's clock.
//! - **A repeat comes while the first attempt is on its way to its commit**, as behind a silent standby: a plain read does not see that. A
//!   swap does, since the row is locked. So answers are read only where the attempt can't be unseen: a withdrawal that finds nothing
//!   writes the row as it is.
//! - **The row is locked**, maybe for long, by the program's own transaction: no swap waits. A waiting one would go on in the server after
//!   its caller has gone, the withdrawal has found nothing, and the client has ended; then the lock would be taken for nobody.
//! - **Somebody else locks the row**: what was locked, and not written since, looks as if the program's own transaction had kept
//!   heartbeats out. So no step of ours leaves a row locked and not written.
//! - **A row can't be read**: its lock fails alone. **A step of several locks is refused**: each lock is asked about alone, so
//!   that only the lock at fault fails.
//! - **A message for a write that did not happen**: NOTIFY stands behind the commit, in its own Sync, and asks for a setting that the swap
//!   makes. Nothing is delivered in this process before the answer. If NOTIFY fails, or is stuck behind that of another program, the
//!   swap was done all the same.
//! - **The swap was done, and its answer is lost**: the repeat grants nothing, so it tells nothing. A waiter of this process that may
//!   have been granted the lock is told to look.
//! - **A client stops between two trips** and keeps the row lock: the server ends its session after [`idle`](crate::net::Pool::idle).
//!   So no attempt is older than the response time-out and `idle` together; request ids and withdrawals do the rest.
//! - **A role whose default is REPEATABLE READ**: a row that was changed since the swap began is an error, nothing was done, and the step
//!   under the row lock, which names its level, goes on.
//! - **The server crashed with `synchronous_commit = off`** and has forgotten grants: the server says until when it grants nothing, and no
//!   swap is done whose decision did not know. Revisions follow the clock, so no row that was seen before comes again.
//! - **A deposed primary tells of a grant that no standby has**: its own commit waits for the standby, for ever. But if somebody
//!   cancels this wait (for the connection: no answer), or the server starts again, a repeat finds the grant. So a promise is
//!   written even if nothing changes, and its commit waits for the standby too. NOTIFY writes nothing for a standby, and waits for
//!   none: with a standby, messages are sent after the answer, in a separate trip; also behind a pooler, whose sessions keep no setting.
//! - **Others have the row locked** for seconds, one transaction after the other, as by `still_held`. Waiters can't renew their
//!   places then, and each step that gets the row in between would find them nearer to absence. So a decision tells the queue since
//!   when steps of this process were kept from the row: this time makes nobody absent. A new process does not know of such a time, but
//!   the row tells: somebody has had the row locked since it was written. If that was longer ago than heartbeats wait for a row,
//!   none of this time counts.
//! - **The row of a new name is made meanwhile**, or deleted: there is nothing to lock, so the swap may miss, and all is tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, Renew, Renewal, only};
use fairlock_rules::{WakeUp, WakeUpKind, lock_of};

use crate::clients::channel_of;
use crate::combiner::{Call, Question, tell};
use crate::command::{Answer, Command};
use crate::net::statement::{LOCK, NOTIFY, NOTIFY_IF};
use crate::net::{Connection, Failure, Row, SOON, Statement};
use crate::row::{Clock, Outcome, STATE, Swap, clock_of, hold_of, moment};
use crate::store::Store;

/// A row that was seen longer ago, and has no holder in this process, is likely another one by now.
const LATELY: Duration = Duration::from_millis(100);
/// How many swaps a step makes of one lock at most. In a crowd each miss means that another process got on.
const ROUNDS: usize = 3;
const SET_WAIT: &str = "select set_config('lock_timeout', $1, true)";

/// The answers to these commands about these locks, in their order.
pub(crate) fn ask<'a, T: TryFrom<Answer, Error = Failure>>(
    store: &Store,
    asked: impl IntoIterator<Item = (&'a LockName, Command)>,
    deadline: Instant,
) -> Vec<Result<T, BackendError>> {
    answers(store, asked, deadline).into_iter().map(|answer| Ok(T::try_from(answer?)?)).collect()
}

/// The answer to one command.
pub(crate) fn ask_one<T: TryFrom<Answer, Error = Failure>>(
    store: &Store,
    lock: &LockName,
    command: Command,
) -> Result<T, BackendError> {
    only(ask(store, [(lock, command)], store.pool.deadline()))
}

/// The answers to heartbeats, in the order of the items, by steps of many locks. After a part without any answer of the server, no other part
/// is asked.
///
/// A row that is locked by another transaction (a step of another client, or the program's own with `still_held`) is skipped: it
/// does not delay the other renewals. In the end steps wait for the rows that all parts have skipped, one by one.
///
/// Each part has the time of a call, and so have all waits for rows together: how many there are depends on the client, and no time left is
/// no outage.
///
/// A hold whose row stays locked by `still_held` is not renewed, since the row can't be written. When the lease is over by the
/// client's clock, the guard says lost, although no other owner gets the lock before the transaction ends. The guard must say so:
/// the transaction may end at any moment, and the client can't see when.
pub(crate) fn renew(store: &Store, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
    let mut by_lock = BTreeMap::<_, Vec<_>>::new();
    for (at, item) in items.iter().enumerate() {
        by_lock.entry(&lock_of(item).name).or_default().push((at, *item));
    }
    let mut all: Vec<_> = by_lock.into_iter().collect();
    all.sort_by_key(|(_, items)| matches!(items[..], [(_, Renew::Place { .. }), ..])); // holds first
    let next = store.pace.begins_with();
    let first = all.iter().position(|(lock, _)| Some(*lock) == next.as_ref());
    all.rotate_left(first.unwrap_or_default());
    let mut answers: Vec<_> = items.iter().map(|_| None).collect();
    let (mut blocked, mut silence) = (Vec::new(), None);
    let mut left = &all[..];
    while silence.is_none() && !left.is_empty() {
        let (part, rest) = left.split_at(store.pace.most().min(left.len()));
        let began = Instant::now();
        silence = renew_part(store, part, &mut answers, Some(&mut blocked));
        if silence.is_some() {
            store.pace.unanswered(part.len(), rest.first().unwrap_or(&all[0]).0);
        } else if began.elapsed() < store.pool.timeouts.response / 4 {
            store.pace.answered_in_good_time();
        }
        left = rest;
    }
    if !blocked.is_empty() {
        silence = silence.or_else(|| renew_part(store, &blocked, &mut answers, None));
    }
    let missing = silence.unwrap_or_else(|| Failure::senseless().into());
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing.clone()))).collect()
}

/// The items to renew of one lock, each with its number.
type Asked<'a> = (&'a LockName, Vec<(usize, Renew<'a>)>);

/// Renews the items of these locks. Waits for locked rows, or returns their locks. The error, if the server has answered nothing
/// at all.
fn renew_part<'a>(
    store: &Store,
    part: &[Asked<'a>],
    renewed: &mut [Option<Result<Renewal, BackendError>>],
    mut blocked: Option<&mut Vec<Asked<'a>>>,
) -> Option<BackendError> {
    let asked = part.iter().map(|(lock, items)| (*lock, Command::renew(items.iter().map(|(_, item)| item))));
    let given = match blocked {
        Some(_) => answers_where_free(store, asked),
        None => answers(store, asked, store.pool.deadline()),
    };
    let (mut is_heard, mut unheard) = (false, None);
    for ((lock, items), answer) in part.iter().zip(given) {
        let renewals = match answer.and_then(Vec::try_from) {
            // What the table kept is gone for certain, also if another table comes.
            Err(failure) if failure.is_of_dropped_table() => Ok(vec![Renewal::Lost; items.len()]),
            renewals => renewals,
        };
        is_heard |= renewals.as_ref().err().is_none_or(Failure::is_answer);
        let is_blocked = renewals.as_ref().is_err_and(Failure::is_of_blocked_row);
        if let Some(blocked) = blocked.as_mut().filter(|_| is_blocked) {
            blocked.push((*lock, items.clone()));
            continue;
        }
        match renewals.map_err(BackendError::from) {
            Ok(renewals) => {
                items.iter().zip(renewals).for_each(|((at, _), one)| renewed[*at] = Some(Ok(one)))
            }
            Err(error) => {
                items.iter().for_each(|(at, _)| renewed[*at] = Some(Err(error.clone())));
                unheard = Some(error);
            }
        }
    }
    unheard.filter(|_| !is_heard)
}

/// The answers to these commands, with failures that renewals tell apart.
fn answers<'a>(
    store: &Store,
    asked: impl IntoIterator<Item = (&'a LockName, Command)>,
    deadline: Instant,
) -> Vec<Result<Answer, Failure>> {
    let (call, questions) = Call::asking(asked, deadline);
    store.combiner.operation(&call, questions, |questions, waits| make(store, questions, waits, false));
    call.answers()
}

/// The answers to the watchdog, whose step is made on its own connection, and waits neither for a turn nor for a row. A command whose row
/// others have locked, or write again and again, gets that as its answer.
fn answers_where_free<'a>(
    store: &Store,
    asked: impl IntoIterator<Item = (&'a LockName, Command)>,
) -> Vec<Result<Answer, Failure>> {
    let (call, questions) = Call::asking(asked, store.pool.deadline());
    tell(make(store, questions, None, true), &Err(Failure::blocked()));
    call.answers()
}

/// Makes a step. `waits`: the step waits for its only row, and the call's time is divided among so many; otherwise it waits for none.
/// Returns the questions that have to be asked again.
pub(crate) fn make(
    store: &Store,
    questions: Vec<Question>,
    waits: Option<u32>,
    is_watchdogs: bool,
) -> Vec<Question> {
    let Some(deadline) = questions.iter().map(Question::deadline).min() else {
        return Vec::new();
    };
    let (asked, left, under_way, messages, trip) = Default::default();
    let mut step = Step { store, deadline, asked, left, under_way, messages, trip };
    for question in questions {
        step.asked.entry(question.lock.clone()).or_default().push(question);
    }
    let done = store.pool.lend_to(is_watchdogs, deadline, |con| {
        match waits {
            Some(rows) => step.wait(con, rows)?,
            None => step.swap(con, is_watchdogs)?,
        }
        let messages = std::mem::take(&mut step.messages);
        if !messages.is_empty() {
            store.pool.tell(con, messages, step.trip + SOON, deadline);
        }
        Ok(())
    });
    step.end(done, waits.is_some())
}

struct Step<'s> {
    store: &'s Store,
    deadline: Instant,
    /// The questions that are not answered, by lock.
    asked: BTreeMap<LockName, Vec<Question>>,
    /// Those that have to be asked again.
    left: Vec<Question>,
    /// Messages to clients of this process about swaps that are sent and not answered.
    under_way: Vec<WakeUp>,
    /// Messages to other processes that follow in their own trip, and how long the last trip has taken.
    messages: Vec<Statement>,
    trip: Duration,
}

impl Step<'_> {
    /// Swaps rows, and again those that were missed.
    fn swap(&mut self, con: &mut Connection, is_watchdogs: bool) -> Result<(), Failure> {
        let mut swaps = BTreeMap::new();
        let is_lone = self.asked.len() == 1 && !is_watchdogs;
        for lock in self.asked.keys().cloned().collect::<Vec<_>>() {
            match self.guess(&lock) {
                Some(swap) => _ = swaps.insert(lock, swap),
                // To read the row first would take as long, and the row might change meanwhile.
                None if is_lone && !self.is_of_requests(&lock) => self.leave(&lock, true),
                None => _ = swaps.insert(lock, Swap::read()),
            }
        }
        for _ in 0..ROUNDS {
            let mut missed = BTreeMap::new();
            for (lock, swap, row) in self.send(con, swaps, false)? {
                match swap.outcome(&row)? {
                    Outcome::Done => self.is_done(&lock, swap),
                    Outcome::Missed => {
                        if let Some(swap) = self.decide_on(&lock, &row, None) {
                            missed.insert(lock, swap);
                        }
                    }
                    Outcome::Locked => {
                        self.store.recent.is_blocked(&lock, Instant::now());
                        self.leave(&lock, true);
                    }
                }
            }
            swaps = missed;
            if con.is_busy() {
                break;
            }
        }
        swaps.keys().for_each(|lock| self.leave(lock, !con.is_busy()));
        Ok(())
    }

    fn is_of_requests(&self, lock: &LockName) -> bool {
        let is_request = |question: &Question| matches!(question.command, Command::Acquire { .. });
        self.asked.get(lock).is_some_and(|asked| asked.iter().all(is_request))
    }

    /// Decides on the row as it was seen last. If that row is of no use to the requests, or has likely changed since, the requests take the
    /// lock for free; but not a request that names a ticket. None: the row has to be read first.
    fn guess(&mut self, lock: &LockName) -> Option<Swap> {
        let (store, is_of_requests) = (self.store, self.is_of_requests(lock));
        let questions = self.asked.get_mut(lock)?;
        if questions.iter().any(|question| question.command.needs_the_time()) {
            return None;
        }
        let names_a_ticket = questions.iter().any(|question| question.command.names_a_ticket());
        let (now, late) = store.recent.clock(Instant::now())?;
        let mut decide = |row: Option<&Row>, now| {
            Swap::decide(store, lock, questions, row, Clock { now, late, waited: None }).ok()?
        };
        if let Some((row, age)) = store.recent.row(lock) {
            let now = now.max(clock_of(&row).ok()?);
            let holder = hold_of(&row).ok()?.filter(|hold| hold.ends > now).map(|hold| hold.owner);
            let is_ours = holder.as_ref().map(|owner| store.clients.is_present(owner.client()).is_some());
            let is_in_use = is_ours.is_some() || !row.bytes(STATE).ok()?.is_empty();
            if !is_of_requests || is_in_use && (age <= LATELY || is_ours == Some(true)) {
                let swap = decide(Some(&row), now);
                if swap.is_some() || !is_of_requests {
                    return swap;
                }
            }
        }
        if is_of_requests && !names_a_ticket { decide(None, now) } else { None }
    }

    /// Decides on what was read just now, maybe under the row lock. Returns what is to be written.
    fn decide_on(&mut self, lock: &LockName, row: &Row, waited: Option<(Duration, bool)>) -> Option<Swap> {
        let questions = self.asked.get_mut(lock)?;
        let there = Some(row).filter(|row| row.maybe_bytes(STATE).is_some());
        let decided = clock_of(row).and_then(|now| {
            Swap::decide(self.store, lock, questions, there, Clock { now, late: Duration::ZERO, waited })
        });
        match decided {
            Ok(Some(swap)) => return Some(swap),
            Ok(None) => self.answer(lock, &Ok(())),
            Err(failure) => self.answer(lock, &Err(failure)),
        }
        None
    }

    /// Decides under the lock of the only row, or on the lock that has none.
    fn wait(&mut self, con: &mut Connection, rows: u32) -> Result<(), Failure> {
        let (store, deadline, began) = (self.store, self.deadline, Instant::now());
        let Some(lock) = self.asked.keys().next().cloned() else { return Ok(()) };
        let wait = store.pool.wait().min(deadline.saturating_duration_since(began) / rows.saturating_mul(2));
        let shorter = (wait < store.pool.wait()).then(|| wait.as_millis().max(1).to_string());
        for _ in 0..ROUNDS {
            let mut flight = store.pool.begin(con);
            flight.extend(shorter.as_deref().map(|wait| Statement::new(SET_WAIT, [wait.into()])));
            flight.push(Statement::new(&LOCK, [lock.as_str().as_bytes().into()]));
            flight.extend(Swap::read().statements(&lock, con.grace_ends).into_iter().flatten());
            let note = |failure: &Failure| {
                if failure.is_of_blocked_row() {
                    store.recent.is_blocked(&lock, began);
                }
            };
            let mut answers = con.flight(&flight, deadline).inspect_err(note)?.into_iter().rev();
            let mut row =
                || answers.next().and_then(|rows| rows.into_iter().next()).ok_or_else(Failure::senseless);
            let (row, locked) = (row()?, row()?);
            let waited = (moment(locked.number(1)?), locked.flag(0)?);
            let Some(swap) = self.decide_on(&lock, &row, Some(waited)) else { return Ok(()) }; // the pool rolls back
            let swaps = BTreeMap::from([(lock.clone(), swap)]);
            for (lock, swap, row) in self.send(con, swaps, true).inspect_err(note)? {
                if swap.outcome(&row)? == Outcome::Done {
                    self.is_done(&lock, swap);
                    return Ok(());
                }
            }
        }
        Err(Failure::broken("the lock's row changes again and again"))
    }

    /// Sends these swaps, and their messages to other processes in the same trip, if these need not wait for the answer. Returns the swaps
    /// with the rows that were written or read.
    fn send(
        &mut self,
        con: &mut Connection,
        mut swaps: BTreeMap<LockName, Swap>,
        is_under_lock: bool,
    ) -> Result<Vec<(LockName, Swap, Arc<Row>)>, Failure> {
        if swaps.is_empty() {
            return Ok(Vec::new());
        }
        let (store, asked) = (self.store, Instant::now());
        let limits = (!is_under_lock && !con.is_own_session()).then(|| store.pool.limits(true));
        let mut flight: Vec<_> = limits.into_iter().collect();
        let (first, tells) = (flight.len(), con.is_own_session() && !store.pool.is_telling());
        let mut messages = Vec::new();
        let mut statements: [Vec<_>; 3] = Default::default();
        for (at, (lock, swap)) in swaps.iter_mut().enumerate() {
            let (local, remote): (Vec<_>, Vec<_>) = std::mem::take(&mut swap.wake_ups)
                .into_iter()
                .partition(|wake_up| store.clients.is_present(wake_up.owner.client()).is_some());
            self.under_way.extend(local.iter().cloned());
            swap.wake_ups = local;
            if tells && !swap.has_standby && !remote.is_empty() {
                let tag = [format!("fairlock.done{at}"), con.trips.to_string()];
                messages.extend(remote.iter().map(|wake_up| message(NOTIFY_IF, wake_up, &tag)));
                swap.tag = Some(tag);
            } else {
                swap.wake_ups.extend(remote);
            }
            let parts = swap.statements(lock, con.grace_ends);
            statements.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        }
        flight.extend(statements.into_iter().flatten());
        flight.extend(store.pool.sync(con));
        if is_under_lock {
            flight.push(Statement::new("commit", []));
        }
        let answers = match messages.is_empty() {
            true => con.flight(&flight, self.deadline)?,
            false => con.flight_and_tell(&flight, &messages, SOON, self.deadline)?,
        };
        self.under_way.clear();
        self.trip = asked.elapsed();
        let mut rows = answers.into_iter().skip(first);
        for at in 0..2 {
            for swap in swaps.values_mut().filter(|swap| swap.writes()[at]) {
                swap.is_done |= !rows.next().ok_or_else(Failure::senseless)?.is_empty();
            }
        }
        let mut answered = Vec::new();
        for (lock, swap) in swaps {
            let row = rows.next().and_then(|rows| rows.into_iter().next()).ok_or_else(Failure::senseless)?;
            let row = Arc::new(row);
            store.recent.heard(clock_of(&row)?, asked);
            store.recent.saw(&lock, Some(&row).filter(|row| row.maybe_bytes(STATE).is_some()));
            answered.push((lock, swap, row));
        }
        Ok(answered)
    }

    /// Answers the questions, and tells those who have been granted the lock.
    fn is_done(&mut self, lock: &LockName, swap: Swap) {
        let clients = &self.store.clients;
        self.store.recent.is_written(lock);
        self.answer(lock, &Ok(()));
        for wake_up in &swap.wake_ups {
            if clients.is_present(wake_up.owner.client()).is_some() {
                clients.deliver(wake_up);
            } else {
                self.messages.push(message(NOTIFY, wake_up, &[]));
            }
        }
    }

    fn answer(&mut self, lock: &LockName, done: &Result<(), Failure>) {
        tell(self.asked.remove(lock).unwrap_or_default(), done);
    }

    /// Leaves the questions about this lock to another step: one that waits for the row, if they are blocked.
    fn leave(&mut self, lock: &LockName, is_blocked: bool) {
        for mut question in self.asked.remove(lock).unwrap_or_default() {
            question.is_blocked |= is_blocked;
            self.left.push(question);
        }
    }

    /// Tells all callers how the step ended. Returns the questions that have to be asked again.
    fn end(mut self, done: Result<(), Failure>, has_waited: bool) -> Vec<Question> {
        // Clients that may have been granted the lock have to look.
        for mut wake_up in std::mem::take(&mut self.under_way) {
            if wake_up.kind != WakeUpKind::RecheckAny {
                wake_up.kind = WakeUpKind::Recheck;
            }
            self.store.clients.deliver(&wake_up);
        }
        let done = done.and(Err(Failure::senseless()));
        for lock in self.asked.keys().cloned().collect::<Vec<_>>() {
            match &done {
                Err(failure) if !has_waited && failure.may_be_of_one_row() => self.leave(&lock, true),
                done => self.answer(&lock, done),
            }
        }
        self.left
    }
}

/// The message for this wake-up, and what its condition needs.
fn message(sql: &'static str, wake_up: &WakeUp, tag: &[String]) -> Statement {
    let message = [channel_of(wake_up.owner.client()), wake_up.to_string()];
    let values = message.iter().chain(tag).map(|text| text.as_str().into());
    Statement::new(sql, values.collect::<Vec<_>>())
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
