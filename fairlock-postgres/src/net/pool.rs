//! Connections that are lent for one call each.
//!
//! | a connection is | moves to | by |
//! | --- | --- | --- |
//! | idle, in the list | lent | a call that takes it |
//! | lent | idle | the end of its call; a rollback, if a transaction is still open |
//! | lent, no answer that can be used | closed | the end of its call: an answer may be under way, or the row lock be kept |
//!
//! A broken connection shows that the server may have gone, so the idle ones are closed with it: each would cost a call its
//! time-out. No lock is held while a connection is opened or used.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlock_net::Timeouts;
use parking_lot::{Condvar, Mutex};

use super::address::Address;
use super::failure::Failure;
use super::open;
use super::rows::Row;
use super::statement::Statement;
use super::wire::Connection;

/// For how long the server keeps a transaction, and its row lock, for a client that says nothing.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// How long a statement waits for a row at most.
const WAIT: Duration = Duration::from_millis(500);
/// Begins a transaction that sees what others have written while it waited for a row, whatever level the role has as its default.
pub(crate) const BEGIN: &str = "begin isolation level read committed";

/// Keeps what a session has for `synchronous_commit`, or raises it. Goes on with [`Pool::limits`].
const SYNCED: &str = ", set_config('synchronous_commit', case level when 'off' then 'on' else level end, false) from (select \
                      current_setting('synchronous_commit') as level) s";

pub(crate) struct Pool {
    pub(crate) address: Address,
    pub(crate) timeouts: Timeouts,
    most: usize,
    state: Mutex<State>,
    returned: Condvar,
    broken: AtomicU64,
    /// Whether commits did not wait for the server's disk in the first session.
    is_unsynced: OnceLock<bool>,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Lent ones, and those being opened.
    lent: usize,
}

impl Pool {
    pub(crate) fn new(address: Address, timeouts: Timeouts, most: usize) -> Pool {
        let (state, returned, broken, is_unsynced) = Default::default();
        Pool { address, timeouts, most, state, returned, broken, is_unsynced }
    }

    /// How many connections were lost.
    pub(crate) fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }

    /// When a call that begins now has to end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeouts.response
    }

    /// Lends a connection until the deadline. A failure is unsent if there was none to lend.
    pub(crate) fn lend<T>(
        &self,
        deadline: Instant,
        act: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.lend_to(false, deadline, act)
    }

    /// The same. A failure is unsent if there was none to lend. One is kept for the watchdog, so that no caller costs others' holds.
    pub(crate) fn lend_to<T>(
        &self,
        watchdog: bool,
        deadline: Instant,
        act: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let idle = self.take(watchdog, deadline).map_err(Failure::unsent)?;
        let lent = Lent(self);
        let mut con = match idle {
            Some(con) => con,
            None => self.open(deadline).map_err(Failure::unsent)?,
        };
        let done = act(&mut con);
        let is_of_use = done.as_ref().err().is_none_or(Failure::keeps_connection);
        // A transaction that is open may have a row lock.
        if is_of_use && (!con.is_in_transaction || con.script("rollback", deadline).is_ok()) {
            lent.give_back(con);
        } else {
            self.broken.fetch_add(1, Ordering::Relaxed);
            let idle = std::mem::take(&mut self.state.lock().idle);
            drop((con, idle));
        }
        done
    }

    /// The rows of one statement.
    pub(crate) fn ask(&self, statement: Statement, deadline: Instant) -> Result<Vec<Row>, Failure> {
        let answers = self.lend(deadline, |con| con.flight(&[statement], deadline))?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// The same, at the level at which statements that lock rows see what others have written.
    pub(crate) fn ask_committed(&self, statement: Statement, deadline: Instant) -> Result<Vec<Row>, Failure> {
        self.lend(deadline, |con| self.committed(con, statement, deadline))
    }

    /// The same on this connection.
    pub(crate) fn committed(
        &self,
        con: &mut Connection,
        statement: Statement,
        deadline: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let limits = (!con.is_own_session()).then(|| Statement::made_up(self.limits(true)));
        let mut flight = vec![Statement::new(BEGIN, [])];
        flight.extend(limits);
        flight.extend([statement, Statement::new("commit", [])]);
        let answers = con.flight(&flight, deadline)?;
        Ok(answers.into_iter().rev().nth(1).unwrap_or_default()) // that before the commit
    }

    fn open(&self, deadline: Instant) -> Result<Connection, Failure> {
        let mut con = open(&self.address, deadline.min(Instant::now() + self.timeouts.connect))?;
        // The first session has told how long a lease may be, so the others keep what makes that safe, whatever is set meanwhile. Those who
        // do without it have forgotten grants in a crash: the grace is asked for before.
        let is_unsynced = *self.is_unsynced.get_or_init(|| con.is_unsynced);
        let synced = if is_unsynced { "" } else { SYNCED };
        if con.is_own_session() {
            // It fails where the tables are missing.
            let grace = con.row(Statement::made_up("select fairlock.grace_ends()"), deadline);
            con.grace_ends = grace.and_then(|row| row.number(0)).ok();
            con.script(&(self.limits(false) + synced), deadline)?;
        }
        Ok(con)
    }

    /// Sets what bounds a transaction and its waits, and that the server tells of a commit whose wait for the standby was cancelled: from
    /// now on in this session, or only in this transaction.
    pub(crate) fn limits(&self, is_local: bool) -> String {
        let [idle, wait] = [IDLE, self.wait()].map(|time| time.as_millis().max(1));
        format!(
            "select set_config('idle_in_transaction_session_timeout', '{idle}', {is_local}), set_config('lock_timeout', '{wait}', \
             {is_local}), {}",
            warnings(is_local)
        )
    }

    /// An idle connection, or the right to open one.
    fn take(&self, watchdog: bool, deadline: Instant) -> Result<Option<Connection>, Failure> {
        let most = if watchdog { self.most } else { self.most.saturating_sub(1).max(1) };
        let mut state = self.state.lock();
        loop {
            if state.lent < most {
                state.lent += 1;
                return Ok(state.idle.pop());
            }
            if self.returned.wait_until(&mut state, deadline).timed_out() {
                return Err(Failure::broken(format!("all {} connections are in use", self.most)));
            }
        }
    }

    /// How long a statement waits for a row.
    pub(crate) fn wait(&self) -> Duration {
        WAIT.min(self.timeouts.response / 2)
    }

    /// How long after its call has begun a transaction can still take effect: see `step` and `fast`.
    pub(crate) fn attempt_ttl(&self) -> Duration {
        self.timeouts.response + IDLE
    }
}

/// Has the server send warnings, whatever a role or a database has as its default. A pooler's session has it for a transaction.
pub(crate) fn warnings(is_local: bool) -> String {
    format!("set_config('client_min_messages', 'warning', {is_local})")
}

/// The right to one connection, given back however the call ends.
struct Lent<'a>(&'a Pool);

impl Lent<'_> {
    fn give_back(self, mut con: Connection) {
        con.forget_messages();
        self.0.state.lock().idle.push(con);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.state.lock().lent -= 1;
        self.0.returned.notify_all(); // those that wait may take different numbers of them
    }
}
