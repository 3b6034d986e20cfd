//! A step: loads the rows of some locks under row locks, decides by fairlock-rules, writes back, commits, and sends messages.
//!
//! A step is two round trips, and three if a name has no row:
//!
//! ```text
//!  1  BEGIN; SELECT … FOR UPDATE in the order of the names, the clock and who is gone
//!     decide
//!  2  UPDATE; COMMIT            3  NOTIFY, in the same trip
//! ```
//!
//! | the client | the server | moves on by |
//! | --- | --- | --- |
//! | sent 1, about one lock | waits for the row lock | its holder's end; after `lock_timeout` it fails, nothing was done |
//! | sent 1, about several | passes over locked rows: their locks are asked about one by one | |
//! | decides | has the row locks | 2; else `idle_in_transaction_session_timeout`, or the end of the connection: rolled back |
//! | sent 2 | commits | its answer; if that is lost the step was done or not, and core repeats |
//!
//! Interleavings that are closed here:
//!
//! - **A row can't be read**: its lock fails alone. **A step of several locks is refused**: each lock is asked about alone, so
//!   that only the lock at fault fails.
//! - **Two steps lock and insert rows of the same names**: both do so in the order of the names, and pass over rows that are locked.
//! - **A message for a write that did not happen**: NOTIFY stands behind COMMIT, in its own Sync, and nothing is delivered in this
//!   process before the COMMIT is answered. If NOTIFY fails, or is stuck behind that of another program, the step was done all the same.
//! - **The step was done, and its answer is lost**: the repeat grants nothing, so it tells nothing. A waiter of this process that may
//!   have been granted the lock is told to look.
//! - **A client stops between its two trips** and keeps the row lock: the server ends its session after [`idle`](crate::net::pool::Pool::idle).
//! - **The reply is lost, and the attempt is executed after its repeat**: an attempt has effect only by its second trip, within
//!   `idle` of the first: later there is no transaction. So no attempt is older than the response time-out and `idle` together;
//!   request ids and withdrawals do the rest.
//! - **The clock was read before the wait for the row**: it is read above the materialized row lock.
//! - **A role whose default is REPEATABLE READ** would see the row as it was before the wait: the level is named.
//! - **The server crashed with `synchronous_commit = off`** and has forgotten grants: the server says until when it grants nothing. A
//!   session asks once, since a crash ends the session.
//! - **A deposed primary tells of a grant that no standby has**: its own commit waits for the standby, for ever. But if somebody
//!   cancels this wait (for the connection: no answer), or the server starts again, a repeat finds the grant. So a promise is
//!   committed even if nothing changes: the row lock is a write, and the repeat's commit waits for the standby too. NOTIFY writes
//!   nothing for a standby, and waits for none: with a standby, messages are sent after the answer to COMMIT, in a separate trip.
//! - **Others have the row locked** for seconds, one transaction after the other, as by `still_held`. Waiters can't renew their
//!   places then, and each step that gets the row in between would find them nearer to absence. So a step tells the queue since
//!   when it, or earlier steps of this process, were kept from the row: this time makes nobody absent. A new step does not know
//!   of such a time, but the row tells: somebody has had the row locked since it was written. If that was longer ago than
//!   heartbeats wait for a row, none of this time counts.
//! - **The sweeper deletes the row between the insert and the load**: the load is tried again. Its numbers follow the clock, and
//!   the row was a day old.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{LockEntry, Moment, OperationContext, Presence, StoreContext, WakeUp, WakeUpKind};

use crate::clients::Clients;
use crate::combiner::Combiner;
use crate::net::pool::{Pool, SOON};
use crate::net::{BYTEA, Connection, Failure, Row, Statement, Value};
use crate::presence::{channel_of, key_of};
use crate::question::{Question, tell};
use crate::row::{AFTER, HEADS, Loaded, LockRow, STATE, moment};
use crate::sql::{INSERT, LOAD, LOAD_FREE, NOTIFY};
use crate::store::Store;

/// A step that has waited for a row at least so long says that nobody could be heard meanwhile. A shorter wait was for another step.
const DEAF: Duration = Duration::from_millis(50);
/// How often a row may vanish between insert and load.
const TRIES: usize = 3;
const SET_WAIT: &str = "select set_config('lock_timeout', $1, true)";

/// What `load.sql` reads behind the columns of a row, in this order.
const GONE: usize = AFTER;
const HAS_STANDBY: usize = AFTER + 1;
const IS_THERE: usize = AFTER + 2;
const BEGAN: usize = AFTER + 3;
const WAS_LOCKED: usize = AFTER + 4;

/// Makes a step. `waits`: the step waits for its only row, and the call's time is divided among so many; otherwise it passes over
/// locked rows. Returns the questions that have to be asked alone.
pub(crate) fn make(
    store: &Store,
    questions: Vec<Question>,
    waits: Option<u32>,
    is_watchdogs: bool,
) -> Vec<Question> {
    let Some(deadline) = questions.iter().map(|question| question.deadline).min() else {
        return Vec::new();
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let wait = waits.map(|rows| store.pool.wait().min(left / rows.saturating_mul(2)));
    let (mut step, mut plan) = (Step::new(&store.combiner, questions, wait, deadline), Plan::default());
    let done = store.pool.lend_to(is_watchdogs, deadline, |con| {
        let began = Instant::now();
        let rows = load(store, con, &mut step, began)?;
        let trip = began.elapsed();
        step.close(trip);
        for (lock, row) in rows {
            plan.decide(store, &mut step, lock, &row)?;
        }
        plan.send(&store.pool, con, trip, deadline)
    });
    let has_failed = done.is_err();
    let blocked = step.end(done);
    plan.tell_here(&store.clients, has_failed);
    blocked
}

/// Begins a transaction, and loads the rows, which are locked from here on. Rows that others have locked are left out.
fn load(
    store: &Store,
    con: &mut Connection,
    step: &mut Step<'_>,
    began: Instant,
) -> Result<Vec<(LockName, Row)>, Failure> {
    let shorter = step.wait.filter(|wait| *wait < store.pool.wait());
    let shorter = shorter.map(|wait| wait.as_millis().max(1).to_string());
    let mut flight = store.pool.begin(con);
    flight.extend(shorter.as_deref().map(|wait| Statement::new(SET_WAIT, [wait.into()])));
    let mut names: Vec<_> = step.asked.keys().cloned().collect();
    let mut loaded = Vec::new();
    for _ in 0..=TRIES {
        let load = if step.wait.is_some() { &LOAD } else { &LOAD_FREE };
        flight.push(Statement::new(load, [array_of(&names), con.grace_ends.into()]));
        let answers = con.flight(&flight, step.deadline).inspect_err(|failure| {
            if failure.is_of_blocked_row() {
                step.asked.keys().for_each(|lock| store.recent.is_blocked(lock, began));
            }
        });
        let mut missing = Vec::new();
        for (name, row) in names.into_iter().zip(answers?.pop().unwrap_or_default()) {
            if row.maybe_bytes(STATE).is_some() {
                loaded.push((name, row));
            } else if step.wait.is_some() || !row.flag(IS_THERE)? {
                missing.push(name);
            } else {
                store.recent.is_blocked(&name, Instant::now());
            }
        }
        if missing.is_empty() {
            return Ok(loaded);
        }
        flight = vec![Statement::new(&INSERT, [array_of(&missing)])];
        names = missing;
    }
    let failure = Failure::broken("the lock's row vanishes again and again");
    names.iter().for_each(|name| step.fail(name, &failure));
    Ok(loaded)
}

fn array_of(names: &[LockName]) -> Value {
    Value::array(BYTEA, names.iter().map(|name| name.as_str().as_bytes()))
}

/// What a step has decided, and has not sent.
#[derive(Default)]
struct Plan {
    write: Vec<(LockName, LockRow)>,
    /// Whether an answer is a promise: then the step commits even if it writes nothing.
    is_promise: bool,
    /// Whether the step's commit waits for a standby.
    has_standby: bool,
    /// The messages to clients of this process.
    local: Vec<WakeUp>,
    /// The messages to clients of other processes.
    remote: Vec<Statement>,
}

impl Plan {
    /// Decides the questions about this lock. A row that can't be read fails alone.
    fn decide(
        &mut self,
        store: &Store,
        step: &mut Step<'_>,
        lock: LockName,
        row: &Row,
    ) -> Result<(), Failure> {
        let loaded = Loaded::read(row).and_then(|loaded| Ok((loaded, row.numbers(HEADS)?)));
        let (Loaded { mut entry, last, now }, heads) = match loaded {
            Ok(loaded) => loaded,
            Err(failure) => {
                step.fail(&lock, &failure);
                return Ok(());
            }
        };
        store.recent.heard(now);
        excuse(store, &lock, row, &mut entry, now)?;
        let (clients, gone) = (&store.clients, row.numbers(GONE)?);
        let known: HashSet<_> = heads.into_iter().collect();
        let presence = |owner: &OwnerId| {
            let client = owner.client();
            Presence::if_listening(clients.is_present(client).is_some() || !gone.contains(&key_of(client)))
        };
        let shows_itself =
            |client: &str, key| clients.is_present(client).unwrap_or_else(|| known.contains(&key));
        let mut store_context = StoreContext::after(last);
        self.is_promise |=
            step.decide(&lock, &mut entry, &mut store_context.operation(&lock, now, &presence));
        self.has_standby = row.flag(HAS_STANDBY)?;
        let written = LockRow::of(entry, store_context.last_number(), store.pool.encoding(), shows_itself);
        if written.has_state() {
            store.recent.is_busy(&lock);
            store.recent.is_waited_for(&lock);
        }
        let wake_ups = store_context.take_wake_ups();
        if !wake_ups.is_empty() || !written.is_as_loaded(row)? {
            self.write.push((lock, written));
        }
        for wake_up in wake_ups {
            let client = wake_up.owner.client();
            if clients.is_present(client).is_some() {
                self.local.push(wake_up);
            } else {
                let message = [channel_of(client), wake_up.to_string()];
                self.remote.push(Statement::new(NOTIFY, message.map(|text| text.as_str().into())));
            }
        }
        Ok(())
    }

    /// Writes, commits, and sends the messages to other processes: after the answer to the commit, if the commit waits for a standby.
    fn send(
        &mut self,
        pool: &Pool,
        con: &mut Connection,
        trip: Duration,
        deadline: Instant,
    ) -> Result<(), Failure> {
        if self.write.is_empty() && !self.is_promise {
            return Ok(()); // the pool rolls back
        }
        let write = self.write.iter().map(|(lock, row)| row.write(lock));
        let commit = pool.sync(con).into_iter().chain([Statement::new("commit", [])]);
        let flight: Vec<_> = write.chain(commit).collect();
        let messages = std::mem::take(&mut self.remote);
        if !messages.is_empty() && !self.has_standby && !pool.is_telling() {
            return con.flight_and_tell(&flight, &messages, SOON, deadline);
        }
        con.flight(&flight, deadline)?;
        if !messages.is_empty() {
            pool.tell(con, messages, trip + SOON, deadline);
        }
        Ok(())
    }

    /// Tells clients of this process. After a failure, clients that may have been granted the lock have to look.
    fn tell_here(self, clients: &Clients, has_failed: bool) {
        for mut wake_up in self.local {
            if has_failed && wake_up.kind != WakeUpKind::RecheckAny {
                wake_up.kind = WakeUpKind::Recheck;
            }
            clients.deliver(&wake_up);
        }
    }
}

/// While others had the row locked nobody could be heard: that time makes no waiter absent.
fn excuse(
    store: &Store,
    lock: &LockName,
    row: &Row,
    entry: &mut LockEntry,
    now: Moment,
) -> Result<(), Failure> {
    let mut since = store.recent.blocked_since(lock, moment(row.number(BEGAN)?));
    if row.flag(WAS_LOCKED)? && entry.silent_for(now) >= store.pool.wait() {
        since = Duration::ZERO; // all the time, it may be
    }
    if now.saturating_sub(since) >= DEAF {
        entry.heard_nobody_since(since, now);
    }
    Ok(())
}

/// Questions on their way through a step.
struct Step<'q> {
    combiner: &'q Combiner,
    /// How long the step waits for its only row. None: it passes over locked rows.
    wait: Option<Duration>,
    deadline: Instant,
    /// The locks whose steps others can join.
    opened: Vec<LockName>,
    /// The questions by lock, until they are decided; each with how much later than the load it came, at most.
    asked: BTreeMap<LockName, Vec<(Question, Duration)>>,
    decided: Vec<Question>,
}

impl<'q> Step<'q> {
    fn new(
        combiner: &'q Combiner,
        questions: Vec<Question>,
        wait: Option<Duration>,
        deadline: Instant,
    ) -> Step<'q> {
        let mut asked = BTreeMap::<_, Vec<_>>::new();
        for question in questions {
            asked.entry(question.lock.clone()).or_default().push((question, Duration::ZERO));
        }
        let opened = combiner.open(asked.keys(), deadline);
        Step { combiner, wait, deadline, opened, asked, decided: Vec::new() }
    }

    /// From now on the step can't be joined. Takes what has joined it, at most this much later than its load.
    fn close(&mut self, late: Duration) {
        for question in self.combiner.close(&mut self.opened) {
            self.asked.entry(question.lock.clone()).or_default().push((question, late));
        }
    }

    /// Whether an answer is a promise.
    fn decide(&mut self, lock: &LockName, entry: &mut LockEntry, context: &mut OperationContext<'_>) -> bool {
        let mut is_promise = false;
        for (mut question, late) in self.asked.remove(lock).unwrap_or_default() {
            is_promise |= question.decide(entry, context, late);
            self.decided.push(question);
        }
        is_promise
    }

    fn fail(&mut self, lock: &LockName, failure: &Failure) {
        let questions = self.asked.remove(lock).unwrap_or_default();
        tell(questions.into_iter().map(|(question, _)| question), &Err(failure.clone()));
    }

    /// Tells all callers how the step ended. Returns the questions that have to be asked alone.
    fn end(mut self, done: Result<(), Failure>) -> Vec<Question> {
        self.close(Duration::ZERO);
        let asked = std::mem::take(&mut self.asked).into_values().flatten().map(|(question, _)| question);
        let decided = std::mem::take(&mut self.decided);
        match done {
            Ok(()) => {
                tell(decided, &done);
                asked.collect()
            }
            Err(failure) if self.wait.is_none() && failure.may_be_of_one_row() => {
                decided.into_iter().chain(asked).collect()
            }
            Err(_) => {
                tell(decided.into_iter().chain(asked), &done);
                Vec::new()
            }
        }
    }
}

/// If the step's thread panics, its questions are told.
impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.combiner.close(&mut self.opened);
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::ForceReleased;

    use super::*;
    use crate::command::Command;
    use crate::test_values::{lock, soon};

    /// As when its thread panics.
    #[test]
    fn a_step_that_is_dropped_fails_and_is_joined_no_more() {
        let (combiner, lock) = (Combiner::new(1, Duration::ZERO), lock("x"));
        let (question, reply) = Question::new(&lock.name, soon(), None, Command::ForceRelease(lock.clone()));
        drop(Step::new(&combiner, vec![question], None, soon()));
        assert!(combiner.joined().is_empty());
        reply.get::<ForceReleased>().unwrap_err();
    }
}
