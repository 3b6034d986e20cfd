//! One step: loads the row of a lock under a row lock, decides by fairlock-line, writes back, commits, and sends messages.
//!
//! It is two round trips, and three for a name without a row:
//!
//! ```text
//!  1  BEGIN; SELECT … FOR UPDATE, the clock and who is gone
//!     decide
//!  2  UPDATE; COMMIT            3  NOTIFY, in the same trip
//! ```
//!
//! | the client | the server | moves on by |
//! | --- | --- | --- |
//! | sent 1 | waits for the row lock | its holder's end; after `lock_timeout` it fails, nothing was done |
//! | decides | has the row lock | 2; else `idle_in_transaction_session_timeout`, or the end of the connection: rolled back |
//! | sent 2 | commits | its answer; if that is lost the step was done or not, and core repeats |
//!
//! Interleavings that are closed here:
//!
//! - **A message for a write that did not happen**: NOTIFY stands behind COMMIT, in its own Sync, and nothing is delivered in this
//!   process before the COMMIT is answered. If NOTIFY fails the step was done all the same.
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
//! - **The sweeper deletes the row between the insert and the load**: the load is tried again. Its numbers follow the clock, and
//!   the row was a day old.

use std::collections::HashSet;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use fairlock_core::{LockName, OwnerId};
use fairlock_line::{Desk, LockEntry, News, Turn, WakeUp};
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::clients::Clients;
use crate::net::pool::{BEGIN, Pool};
use crate::net::{Connection, Failure, Row, Statement};
use crate::presence::{channel_of, key_of};
use crate::recent::Recent;
use crate::row::{AFTER, COLUMNS, HEADS, Loaded, LockRow, NOW, moment};

mod shared;

use shared::Joined;
pub(crate) use shared::Loading;

/// How many waiters at the head are looked at, whether they are still there.
const ASKED_ABOUT: usize = 4;
/// How often a row may vanish between insert and load.
const TRIES: usize = 3;

const SET_WAIT: &str = "select set_config('lock_timeout', $1, true)";
const INSERT: &str = "insert into fairlock.lock (name) values ($1) on conflict do nothing";
/// Whether commits wait for a standby.
pub(crate) const HAS_STANDBY: &str = "current_setting('synchronous_standby_names') <> ''";
/// Locks the row. Behind its columns are the keys of those of the first waiters that are gone, and whether commits wait for a standby.
static LOAD: LazyLock<String> = LazyLock::new(|| {
    let columns = COLUMNS.replace("fairlock.grace_ends()", "coalesce($2::bigint, fairlock.grace_ends())");
    format!(
        "with l as materialized (select * from fairlock.lock where name = $1 for update) select {columns}, array(select k from \
         unnest(l.heads[1:{ASKED_ABOUT}]) k where pg_try_advisory_xact_lock_shared(k)), {HAS_STANDBY} from l"
    )
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
    pub(crate) loading: Loading,
    /// Set if there is one, by the time that it is connected.
    pub(crate) longest_lease: OnceLock<Duration>,
    /// When this process deletes rows that nobody uses.
    pub(crate) next_sweep: Mutex<Instant>,
}

impl Store {
    /// Waits for the row for this long at most, if a time is given.
    pub(crate) fn step<T: Answer>(
        &self,
        wait: Option<Duration>,
        lock: &LockName,
        deadline: Instant,
        decide: impl FnOnce(&mut LockEntry, &mut Turn<'_>) -> T,
    ) -> Result<T, BackendError> {
        if Instant::now() >= deadline {
            return Err(Failure::broken("the locks before it took all the time that there was")
                .unsent()
                .into());
        }
        // Others may wait for longer than a step that is given less time.
        let loading = wait.is_none().then_some(&self.loading);
        let mut joined = Joined::new(loading, lock, deadline);
        let done =
            self.pool.lend(deadline, |con| self.step_on(con, wait, lock, deadline, decide, &mut joined));
        joined.tell(done.as_ref().map(drop));
        for wake_up in &mut joined.local {
            if done.is_err() && wake_up.news != News::RecheckAny {
                wake_up.news = News::Recheck;
            }
            self.clients.deliver(wake_up);
        }
        Ok(done?)
    }

    fn step_on<T: Answer>(
        &self,
        con: &mut Connection,
        wait: Option<Duration>,
        lock: &LockName,
        deadline: Instant,
        decide: impl FnOnce(&mut LockEntry, &mut Turn<'_>) -> T,
        joined: &mut Joined<'_>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        // What is asked is decided here, and goes out only with what is written.
        let row = self.load(con, wait, lock, deadline).map_err(Failure::unsent)?;
        let Loaded { mut entry, last, now } = Loaded::read(lock, &row).map_err(Failure::unsent)?;
        self.recent.heard(now);
        let gone = row.numbers(AFTER)?;
        let is_listening = |owner: &OwnerId| {
            let client = owner.client();
            self.clients.is_present(client).is_some() || !gone.contains(&key_of(client))
        };
        let mut desk = Desk::after(last);
        let answer = decide(&mut entry, &mut desk.turn(lock, now, &is_listening));
        let is_promise = answer.is_promise()
            | joined.decide(|question| {
                question(&mut entry, &mut desk.turn(lock, now, &is_listening), began.elapsed())
            });
        let known: HashSet<_> = row.numbers(HEADS)?.into_iter().collect();
        let shows_itself =
            |client: &str, key| self.clients.is_present(client).unwrap_or_else(|| known.contains(&key));
        let written = LockRow::of(entry, desk.last_number(), shows_itself);
        if written.has_state() {
            self.recent.is_busy(lock);
        }
        let is_local = |wake_up: &WakeUp| self.clients.is_present(wake_up.owner.client()).is_some();
        let remote: Vec<_>;
        (joined.local, remote) = desk.take_wake_ups().into_iter().partition(is_local);
        if joined.local.is_empty() && remote.is_empty() && written.is_as_loaded(&row)? {
            if is_promise {
                con.flight(&[Statement::new("commit", [])], deadline)?;
            }
            return Ok(answer); // else the pool rolls back
        }
        let message = |wake_up: &WakeUp| {
            let channel = channel_of(wake_up.owner.client());
            Statement::new(NOTIFY, [channel.as_str().into(), wake_up.to_string().as_str().into()])
        };
        let messages: Vec<_> = remote.iter().map(message).collect();
        let write = [written.update(lock), Statement::new("commit", [])];
        let parts = [&write[..], &messages];
        let parts = if messages.is_empty() { &parts[..1] } else { &parts };
        let (at_once, afterwards) = parts.split_at(if row.flag(AFTER + 1)? { 1 } else { parts.len() });
        let done = con.flights(at_once, deadline)?;
        done.into_iter().next().unwrap_or_else(|| Err(Failure::senseless()))?;
        // What the server says to the messages does not matter.
        if !afterwards.is_empty() {
            con.flights(afterwards, deadline)?;
        }
        Ok(answer)
    }

    /// Begins a transaction, and loads the row, which is locked from here on.
    fn load(
        &self,
        con: &mut Connection,
        wait: Option<Duration>,
        lock: &LockName,
        deadline: Instant,
    ) -> Result<Row, Failure> {
        let load = Statement::new(&LOAD, [lock.as_str().as_bytes().into(), con.grace_ends.into()]);
        let limits = (!con.is_own_session()).then(|| self.pool.limits(true));
        let shorter = wait.map(|wait| wait.as_millis().max(1).to_string());
        let mut flight = vec![Statement::new(BEGIN, [])];
        flight.extend(limits.map(Statement::made_up));
        flight.extend(shorter.as_deref().map(|wait| Statement::new(SET_WAIT, [wait.into()])));
        flight.push(load.clone());
        for _ in 0..=TRIES {
            if let Some(row) = con.flight(&flight, deadline)?.pop().and_then(|mut rows| rows.pop()) {
                return Ok(row);
            }
            flight = vec![Statement::new(INSERT, [lock.as_str().as_bytes().into()]), load.clone()];
        }
        Err(Failure::broken("the lock's row vanishes again and again"))
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
        let Loaded { mut entry, last, now } = match row.maybe_bytes(9) {
            None => Loaded { entry: LockEntry::default(), last: 0, now: moment(row.number(NOW)?) },
            Some(_) => Loaded::read(lock, row)?,
        };
        Ok(ask(&mut entry, &mut Desk::after(last).turn(lock, now, &|_| true)))
    }
}
