//! A step: loads the rows of some locks under row locks, decides by fairlock-line, writes back, commits, and sends messages.
//!
//! It is two round trips, and three if a name has no row:
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
//! | sent 1, about several | passes over rows that are locked: they are asked about one by one | |
//! | decides | has the row locks | 2; else `idle_in_transaction_session_timeout`, or the end of the connection: rolled back |
//! | sent 2 | commits | its answer; if that is lost the step was done or not, and core repeats |
//!
//! Interleavings that are closed here:
//!
//! - **A row can't be read, or a step of several locks is refused**: the former fails alone; after the latter each lock is asked about
//!   alone, so that only the one at fault fails.
//! - **Two steps lock and insert rows of the same names**: both do so in the order of the names, and pass over rows that are locked.
//! - **A message for a write that did not happen**: NOTIFY stands behind COMMIT, in its own Sync, and nothing is delivered in this
//!   process before the COMMIT is answered. If NOTIFY fails, or is stuck behind that of another program, the step was done all the same.
//! - **The step was done, and its answer is lost**: the repeat grants nothing, so it tells nothing. A waiter of this process that may
//!   have been granted the lock is told to look.
//! - **A client stops between its two trips** and keeps the row lock: the server ends its session after [`IDLE`](crate::net::pool::IDLE).
//! - **The reply is lost, and the attempt is executed after its repeat**: it has effect only by its second trip, which comes within
//!   `IDLE` of its first, or finds no transaction. So no attempt is older than the response time-out and `IDLE` together; request ids
//!   and withdrawals do the rest.
//! - **The clock was read before the wait for the row**: it is read above the materialized row lock.
//! - **A role whose default is REPEATABLE READ** would see the row as it was before the wait: the level is named.
//! - **The server crashed with `synchronous_commit = off`** and has forgotten grants: the server tells until when none is made. A session
//!   asks once, since a crash ends it.
//! - **A deposed primary tells of a grant that no standby has**: its own commit waits for the standby, for ever. But somebody cancels
//!   that wait, which the connection takes for no answer; or the server starts again, and a repeat finds the grant. So what is a promise
//!   is committed also where nothing is changed: the row lock is a write, and this commit waits too. NOTIFY writes nothing that a
//!   standby has, so it waits for none: where there is one, messages are sent once COMMIT was answered, in a separate trip.
//! - **Others have the row locked** for seconds, one transaction after the other, as by `still_held`. Waiters can't renew their places
//!   then, and each step that gets the row between them would find them nearer to absence. So a step says to the line since when it, or
//!   the steps of this process before it, were kept from the row: that time makes nobody absent. A step that comes just then knows of none:
//!   the row tells it that somebody has had it locked since it was written. If that was longer ago than heartbeats wait for a row, none of
//!   it counts.
//! - **The sweeper deletes the row between the insert and the load**: the load is tried again. Its numbers follow the clock, and
//!   the row was a day old.

use std::collections::{BTreeMap, HashSet};
use std::iter;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, only};
use fairlock_core::{LockName, OwnerId};
use fairlock_line::{Desk, LockEntry, News, Turn, WakeUp};
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::clients::Clients;
use crate::net::pool::{BEGIN, Pool, SOON};
use crate::net::{BYTEA, Connection, Failure, Row, Statement, Value};
use crate::presence::{channel_of, key_of};
use crate::recent::Recent;
use crate::row::{AFTER, COLUMNS, HEADS, Loaded, LockRow, NOW, STATE, moment};
use crate::window::Sweeper;

mod question;
mod queue;

pub(crate) use question::{Question, Reply};
use queue::Part;
pub(crate) use queue::{MOST_LOCKS, Queue};

/// How many clients at the head are looked at, whether they are still there.
const ASKED_ABOUT: usize = 4;
/// A step that has waited for a row for so long says that nobody could be heard meanwhile. Less is a step of somebody else.
const DEAF: Duration = Duration::from_millis(50);
/// How often a row may vanish between insert and load.
const TRIES: usize = 3;

const SET_WAIT: &str = "select set_config('lock_timeout', $1, true)";
const INSERT: &str = "insert into fairlock.lock (name) select unnest($1::bytea[]) on conflict do nothing";
/// Whether commits wait for a standby.
pub(crate) const HAS_STANDBY: &str = "current_setting('synchronous_standby_names') <> ''";
/// Locks the rows, and waits for them or passes over those that are locked. Behind the columns are the keys of those of the first
/// waiters that are gone, whether commits wait for a standby, of rows that were not loaded whether they are there, when it began, and
/// whether a transaction has locked the row since the one that wrote it.
static LOAD: LazyLock<[String; 2]> = LazyLock::new(|| {
    let columns = COLUMNS.replace("fairlock.grace_ends()", "coalesce($2::bigint, fairlock.grace_ends())");
    ["", "skip locked"].map(|skip| {
        format!(
            "select {columns}, array(select k from unnest(l.heads[1:{ASKED_ABOUT}]) k where pg_try_advisory_xact_lock_shared(k)), \
             {HAS_STANDBY}, l.name is null and exists(select from fairlock.lock there where there.name = a.name), \
             (date_part('epoch', statement_timestamp()) * 1000000)::bigint, l.was_locked \
             from (select unnest($1::bytea[]) as name) a \
             left join lateral (select *, xmax <> 0 and xmax <> xmin as was_locked from fairlock.lock l where l.name = a.name \
               for update {skip}) l on true"
        )
    })
});
static LOOK: LazyLock<String> = LazyLock::new(|| {
    format!("select {COLUMNS} from (select 1) one left join fairlock.lock l on l.name = $1")
});
pub(crate) const NOTIFY: &str = "select pg_notify($1, $2)";

/// What a step needs.
pub(crate) struct Store {
    pub(crate) pool: Pool,
    pub(crate) clients: Clients,
    pub(crate) recent: Recent,
    pub(crate) queue: Queue,
    pub(crate) sweeper: Mutex<Sweeper>,
}

/// Questions on their way through a step.
struct Step<'q> {
    queue: &'q Queue,
    /// How long it waits for the only row; it passes over rows that are locked if there is none.
    wait: Option<Duration>,
    deadline: Instant,
    /// The locks whose steps others can join.
    opened: Vec<LockName>,
    /// By their locks, until they are decided. Each came later than the load by this at most.
    asked: BTreeMap<LockName, Vec<(Question, Duration)>>,
    decided: Vec<Question>,
    /// The messages to clients of this process.
    local: Vec<WakeUp>,
}

impl Store {
    /// A step for one question.
    pub(crate) fn step<T: Answer + Send + 'static>(
        &self,
        lock: &LockName,
        decide: impl Fn(&mut LockEntry, &mut Turn<'_>, Duration) -> T + Send + 'static,
    ) -> Result<T, BackendError> {
        let deadline = self.pool.deadline();
        only(self.ask(iter::once(Question::new(lock, deadline, None, decide)), deadline))
    }

    /// Asks these questions, by flights and steps that callers share. The answers, in their order.
    pub(crate) fn ask<T>(
        &self,
        questions: impl Iterator<Item = (Question, Reply<T>)>,
        deadline: Instant,
    ) -> Vec<Result<T, BackendError>> {
        let (questions, replies): (Vec<_>, Vec<_>) = questions.unzip();
        self.answer(questions, deadline);
        replies.into_iter().map(|reply| Ok(reply.get()?)).collect()
    }

    /// Sees to it that these questions of one call are answered.
    pub(crate) fn answer(&self, questions: Vec<Question>, deadline: Instant) {
        self.queue.turn(questions, deadline, |questions, part| match part {
            Part::Fast => self.attempt(questions, false),
            Part::Step { waits } => self.make(questions, waits, false),
        });
    }

    /// The watchdog's: answers these questions on its own connection, and waits neither for its turn nor for a row. One whose row others
    /// have locked is told so.
    pub(crate) fn answer_what_is_free(&self, questions: Vec<Question>) {
        let mut left = self.attempt(questions, true);
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(MOST_LOCKS));
            let blocked = self.make(left, None, true);
            blocked.into_iter().for_each(|question| question.tell(Err(Failure::blocked())));
            left = rest;
        }
    }

    /// Makes a step. The questions that have to be asked alone.
    fn make(&self, questions: Vec<Question>, waits: Option<u32>, is_watchdogs: bool) -> Vec<Question> {
        let Some(deadline) = questions.iter().map(|question| question.deadline).min() else {
            return Vec::new();
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = waits.map(|rows| self.pool.wait().min(left / rows.saturating_mul(2)));
        let mut step = Step::new(&self.queue, questions, wait, deadline);
        let done = self.pool.lend_to(is_watchdogs, deadline, |con| self.step_on(con, &mut step));
        let has_failed = done.is_err();
        let (blocked, local) = step.end(done);
        for mut wake_up in local {
            if has_failed && wake_up.news != News::RecheckAny {
                wake_up.news = News::Recheck;
            }
            self.clients.deliver(&wake_up);
        }
        blocked
    }

    fn step_on(&self, con: &mut Connection, step: &mut Step<'_>) -> Result<(), Failure> {
        let began = Instant::now();
        let rows = self.load(con, step).inspect_err(|failure| {
            if failure.is_of_blocked_row() {
                step.asked.keys().for_each(|lock| self.recent.is_blocked(lock, began));
            }
        })?;
        let trip = began.elapsed();
        step.close(trip);
        let (mut writes, mut messages, mut is_promise, mut has_standby) = (vec![], vec![], false, false);
        for (lock, row) in rows {
            let Loaded { mut entry, last, now } = match Loaded::read(&row) {
                Ok(loaded) => loaded,
                Err(failure) => {
                    step.fail(&lock, &failure); // alone
                    continue;
                }
            };
            self.recent.heard(now);
            let mut deaf_since = self.recent.blocked_since(&lock, moment(row.number(AFTER + 3)?));
            if row.flag(AFTER + 4)? && entry.silent_for(now) >= self.pool.wait() {
                deaf_since = Duration::ZERO; // all the time, it may be
            }
            if now.saturating_sub(deaf_since) >= DEAF {
                entry.heard_nobody_since(deaf_since, now);
            }
            has_standby = row.flag(AFTER + 1)?;
            let gone = row.numbers(AFTER)?;
            let is_listening = |owner: &OwnerId| {
                let client = owner.client();
                self.clients.is_present(client).is_some() || !gone.contains(&key_of(client))
            };
            let mut desk = Desk::after(last);
            is_promise |= step.decide(&lock, &mut entry, &mut desk.turn(&lock, now, &is_listening));
            let known: HashSet<_> = row.numbers(HEADS)?.into_iter().collect();
            let shows_itself =
                |client: &str, key| self.clients.is_present(client).unwrap_or_else(|| known.contains(&key));
            let written = LockRow::of(entry, desk.last_number(), self.pool.encoding(), shows_itself);
            if written.has_state() {
                self.recent.is_busy(&lock);
                self.recent.is_waited_for(&lock);
            }
            let wake_ups = desk.take_wake_ups();
            if wake_ups.is_empty() && written.is_as_loaded(&row)? {
                continue;
            }
            writes.push((lock, written));
            for wake_up in wake_ups {
                let client = wake_up.owner.client();
                if self.clients.is_present(client).is_some() {
                    step.local.push(wake_up);
                } else {
                    let channel = channel_of(client);
                    let values = [channel.as_str().into(), wake_up.to_string().as_str().into()];
                    messages.push(Statement::new(NOTIFY, values));
                }
            }
        }
        if writes.is_empty() && !is_promise {
            return Ok(()); // the pool rolls back
        }
        let update = (!writes.is_empty()).then(|| LockRow::update(&writes));
        let write: Vec<_> = update.into_iter().chain([Statement::new("commit", [])]).collect();
        if messages.is_empty() {
            con.flight(&write, step.deadline)?;
        } else if has_standby || self.pool.is_telling() {
            con.flight(&write, step.deadline)?;
            self.pool.tell(con, messages, trip + SOON, step.deadline);
        } else {
            con.flight_and_tell(&write, &messages, SOON, step.deadline)?;
        }
        Ok(())
    }

    /// Begins a transaction, and loads the rows, which are locked from here on. Those that others have locked are left out.
    fn load(&self, con: &mut Connection, step: &mut Step<'_>) -> Result<Vec<(LockName, Row)>, Failure> {
        let limits = (!con.is_own_session()).then(|| self.pool.limits(true));
        let shorter = step.wait.filter(|wait| *wait < self.pool.wait());
        let shorter = shorter.map(|wait| wait.as_millis().max(1).to_string());
        let mut flight = vec![Statement::new(BEGIN, [])];
        flight.extend(limits.map(Statement::made_up));
        flight.extend(shorter.as_deref().map(|wait| Statement::new(SET_WAIT, [wait.into()])));
        let mut names: Vec<_> = step.asked.keys().cloned().collect();
        let mut loaded = Vec::new();
        for _ in 0..=TRIES {
            let load = &LOAD[usize::from(step.wait.is_none())];
            flight.push(Statement::new(load, [array_of(&names), con.grace_ends.into()]));
            let rows = con.flight(&flight, step.deadline)?.pop().unwrap_or_default();
            let mut missing = Vec::new();
            for (name, row) in names.into_iter().zip(rows) {
                if row.maybe_bytes(STATE).is_some() {
                    loaded.push((name, row));
                } else if step.wait.is_some() || !row.flag(AFTER + 2)? {
                    missing.push(name);
                } else {
                    self.recent.is_blocked(&name, Instant::now());
                }
            }
            if missing.is_empty() {
                return Ok(loaded);
            }
            flight = vec![Statement::new(INSERT, [array_of(&missing)])];
            names = missing;
        }
        let failure = Failure::broken("the lock's row vanishes again and again");
        names.iter().for_each(|name| step.fail(name, &failure));
        Ok(loaded)
    }

    /// Reads the row without locking it, decides, and writes nothing: for questions.
    pub(crate) fn look<T>(
        &self,
        lock: &LockName,
        ask: impl FnOnce(&mut LockEntry, &mut Turn<'_>) -> T,
    ) -> Result<T, BackendError> {
        let look = Statement::new(&LOOK, [lock.as_str().as_bytes().into()]);
        let rows = self.pool.ask(look, self.pool.deadline())?;
        let row = rows.first().ok_or_else(Failure::senseless)?;
        let Loaded { mut entry, last, now } = match row.maybe_bytes(STATE) {
            None => Loaded { entry: LockEntry::default(), last: 0, now: moment(row.number(NOW)?) },
            Some(_) => Loaded::read(row)?,
        };
        Ok(ask(&mut entry, &mut Desk::after(last).turn(lock, now, &|_| true)))
    }
}

fn array_of(names: &[LockName]) -> Value {
    Value::array(BYTEA, names.iter().map(|name| name.as_str().as_bytes()))
}

impl<'q> Step<'q> {
    fn new(
        queue: &'q Queue,
        questions: Vec<Question>,
        wait: Option<Duration>,
        deadline: Instant,
    ) -> Step<'q> {
        let mut asked = BTreeMap::<_, Vec<_>>::new();
        for question in questions {
            asked.entry(question.lock.clone()).or_default().push((question, Duration::ZERO));
        }
        let opened = queue.open(asked.keys(), deadline);
        Step { queue, wait, deadline, opened, asked, decided: Vec::new(), local: Vec::new() }
    }

    /// From now on it can't be joined. What has joined it came this much later than its load at most.
    fn close(&mut self, late: Duration) {
        for question in self.queue.close(&mut self.opened) {
            self.asked.entry(question.lock.clone()).or_default().push((question, late));
        }
    }

    /// Whether an answer is a promise.
    fn decide(&mut self, lock: &LockName, entry: &mut LockEntry, turn: &mut Turn<'_>) -> bool {
        let mut is_promise = false;
        for (mut question, late) in self.asked.remove(lock).unwrap_or_default() {
            is_promise |= question.decide(entry, turn, late);
            self.decided.push(question);
        }
        is_promise
    }

    fn fail(&mut self, lock: &LockName, failure: &Failure) {
        let questions = self.asked.remove(lock).unwrap_or_default();
        questions.into_iter().for_each(|(question, _)| question.tell(Err(failure.clone())));
    }

    /// Tells all of it what it has come to. The questions that have to be asked alone, and the messages to clients of this process.
    fn end(mut self, done: Result<(), Failure>) -> (Vec<Question>, Vec<WakeUp>) {
        self.close(Duration::ZERO);
        let asked = std::mem::take(&mut self.asked).into_values().flatten().map(|(question, _)| question);
        let (decided, local) = (std::mem::take(&mut self.decided), std::mem::take(&mut self.local));
        let blocked = match done {
            Ok(()) => {
                decided.into_iter().for_each(|question| question.tell(Ok(())));
                asked.collect()
            }
            Err(failure) if self.wait.is_none() && failure.may_be_of_one_row() => {
                decided.into_iter().chain(asked).collect()
            }
            Err(failure) => {
                decided.into_iter().chain(asked).for_each(|question| question.tell(Err(failure.clone())));
                Vec::new()
            }
        };
        (blocked, local)
    }
}

/// If its thread panics.
impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.queue.close(&mut self.opened);
    }
}
