//! Connections to a server: each is lent for one call.
//!
//! ```text
//!  Pool         which connection a call gets   open   connects and logs in; the tables and their layout
//!     └► connection   a session: flights of statements, and their answers
//!          ├► statement   a statement with its values   address   also of TLS
//!          └► failure     what went wrong, and which error that is
//! ```
//!
//! | a connection is | moves to | by |
//! | --- | --- | --- |
//! | idle, in the list | lent | a call that takes it |
//! | lent | idle | the end of its call; a rollback, if a transaction is still open |
//! | lent, no answer that can be used | closed | the end of its call: an answer may be under way, or the row lock be kept |
//! | lent, no answer to its messages yet | telling | the end of its call, which was answered |
//! | telling | idle | its thread, when its messages were sent |
//! | lent, no answer in time | ending | the end of its call: the server is still at it, as at a commit that waits for a standby or for the disk |
//! | ending | closed | its thread, which cancels what the session does, and waits for its end |
//!
//! **Sessions that the server can't end** would become more with each call, until the server refuses all programs. So an ending
//! session counts as a connection. If all sessions are ending, a new session may open now and then: perhaps only the network is
//! silent.
//!
//! After a broken connection the server may be gone, so idle connections are closed too: each would cost a call its time-out. A
//! late call shows nothing. No lock is held while a connection is opened or used.
//!
//! **Messages that the server does not send at once.** All NOTIFYs of a server commit in turn, whatever their database, and the
//! NOTIFY of another program may be stuck in its commit, for example behind a silent standby. Nothing depends on messages, so no
//! caller waits.
//!
//! A step sends its messages behind its COMMIT, in the same trip, and waits for their answer no longer than [`SOON`] after that
//! of the COMMIT. Then
//!
//! | what | goes on | until |
//! | --- | --- | --- |
//! | its connection | in a thread (`fairlock-pg-tell`), which waits for the answer, and sends later messages | all is sent: idle again |
//! | messages of later steps | waiting, in their order | that thread takes them; those beyond [`MOST_UNTOLD`] are dropped |
//!
//! - **The server refuses them**, after `lock_timeout`: they are dropped, and heartbeats find what they said.
//! - **The last thread ends while a step adds messages**: both happen under the pool's mutex; a step that comes later sends its own.
//! - **Some steps are under way when the delay begins**: each leaves its connection to a thread. The pool does not count one of
//!   these connections, so even a client with a single connection goes on.
//! - **The backend ends**: so do the threads, within a second. What was sent by then is carried out all the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_net::Timeouts;
use parking_lot::{Condvar, Mutex};

pub(crate) mod address;
mod connection;
mod failure;
mod open;
pub(crate) mod statement;

use address::Address;
pub(crate) use connection::Connection;
pub(crate) use failure::Failure;
pub(crate) use open::{LAYOUT, check, log_in_at, migrate, migration, open};
use statement::{Encoding, LIMITS, OWN};
pub(crate) use statement::{Row, Statement};

/// The least of [`Pool::idle`].
const IDLE: Duration = Duration::from_secs(1);
/// How long a statement waits for a row at most.
const WAIT: Duration = Duration::from_millis(500);
/// How often the thread of a session that is not answered looks whether it has to end itself.
const LOOKS: Duration = Duration::from_secs(1);
/// Begins a transaction that sees the writes of others during a wait for a row, whatever the role's default level.
const BEGIN: &str = "begin isolation level read committed";
/// Makes the commit of this transaction wait for the disk.
const SYNC: &str =
    "select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'";

/// How much later than that of the COMMIT the answer to its messages may come. It is sent right behind.
pub(crate) const SOON: Duration = Duration::from_millis(5);
/// The most messages that wait.
const MOST_UNTOLD: usize = 256;

pub(crate) struct Pool {
    pub(crate) address: Address,
    pub(crate) timeouts: Timeouts,
    /// How many connections there are at most.
    pub(crate) most: usize,
    shared: Arc<PoolInner>,
    broken: AtomicU64,
    /// Whether commits have waited for the server's disk in a session as it began. From then on they do in all.
    is_synced: AtomicBool,
    encoding: OnceLock<Encoding>,
}

#[derive(Default)]
struct PoolInner {
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    /// How many connections are lent or being opened.
    lent: usize,
    /// The sessions that are ending; and when the last extra session was opened.
    ending: usize,
    one_more: Option<Instant>,
    /// The sessions whose messages are under way, and the messages that wait for them.
    telling: usize,
    untold: Vec<Statement>,
}

impl PoolState {
    /// How many connections are in use.
    fn used(&self) -> usize {
        self.lent + self.ending + self.telling.saturating_sub(1)
    }
}

impl Pool {
    pub(crate) fn new(address: Address, timeouts: Timeouts, most: usize) -> Pool {
        let (shared, broken, is_synced, encoding) = Default::default();
        Pool { address, timeouts, most, shared, broken, is_synced, encoding }
    }

    /// How many connections were lost.
    pub(crate) fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }

    /// The database's encoding, as the first session has told it; UTF-8 until then.
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding.get().copied().unwrap_or_default()
    }

    /// Whether the server can't forget a commit in a crash. Once it is so it stays so.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::Acquire)
    }

    /// When a call that begins now has to end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeouts.response
    }

    /// Lends a connection until the deadline. The failure is unsent if there was no connection to lend.
    pub(crate) fn lend<T>(
        &self,
        deadline: Instant,
        act: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.lend_to(false, deadline, act)
    }

    /// Lends a connection until the deadline. The failure is unsent if there was none to lend. One connection is kept for the watchdog, a
    /// second one if there is only one: renewals do not wait for callers, nor for the rows that these wait for.
    pub(crate) fn lend_to<T>(
        &self,
        watchdog: bool,
        deadline: Instant,
        act: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let idle = self.take(watchdog, deadline).map_err(Failure::unsent)?;
        let (lent, began) = (Lent(&self.shared), Instant::now());
        let mut con = match idle {
            Some(con) => con,
            None => self.open(deadline).map_err(Failure::unsent)?,
        };
        con.messages.clear(); // a pooler may lend a session that listens for another client
        let done = act(&mut con).map_err(|failure| {
            let failure = open::explained(&mut con, failure, deadline);
            failure.within(self.timeouts.response, "response_timeout").of_link_to(&con.endpoint)
        });
        let is_kept = con.is_idle() && done.as_ref().err().is_none_or(Failure::keeps_connection);
        if done.is_ok() && con.is_busy() {
            self.leave_to_thread(con);
        // An open transaction may have a row lock.
        } else if is_kept && (!con.is_in_transaction || con.script("rollback", deadline).is_ok()) {
            self.shared.state.lock().idle.push(con);
        } else {
            self.broken.fetch_add(1, Ordering::Relaxed);
            let had_time = deadline.saturating_duration_since(began) >= self.timeouts.response / 2;
            let mut state = self.shared.state.lock();
            let idle = if had_time || !con.is_busy() { std::mem::take(&mut state.idle) } else { Vec::new() };
            state.ending += usize::from(con.is_busy());
            drop(state);
            drop((lent, idle));
            if con.is_busy() {
                self.end(con);
            }
        }
        done
    }

    /// Ends a session that counts as ending.
    fn end(&self, mut con: Connection) {
        let ending = Ending(Arc::downgrade(&self.shared));
        let (settings, connect) = (self.address.tls.settings.clone(), self.timeouts.connect);
        let thread = thread::Builder::new().name("fairlock-pg-end".to_owned());
        // Without a thread it is closed, and counts no longer.
        _ = thread.spawn(move || {
            let mut is_cancelled = false;
            while ending.0.strong_count() > 0 && con.is_busy() {
                is_cancelled =
                    is_cancelled || open::cancel(&con, &settings, Instant::now() + connect).is_ok();
                con.is_busy_at(Instant::now() + LOOKS);
            }
            drop((con, ending));
        });
    }

    /// The rows of one statement.
    pub(crate) fn ask(&self, statement: Statement, deadline: Instant) -> Result<Vec<Row>, Failure> {
        let answers = self.lend(deadline, |con| con.flight(&[statement], deadline))?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// The same in a transaction in which statements that lock rows see what others have written.
    pub(crate) fn ask_committed(&self, statement: Statement, deadline: Instant) -> Result<Vec<Row>, Failure> {
        self.lend(deadline, |con| {
            let mut flight = self.begin(con);
            let at = flight.len();
            flight.push(statement);
            flight.extend(self.sync(con));
            flight.push(Statement::new("commit", []));
            Ok(con.flight(&flight, deadline)?.swap_remove(at))
        })
    }

    /// Begins a transaction, with limits if the session is a pooler's: other sessions have their limits already.
    pub(crate) fn begin(&self, con: &Connection) -> Vec<Statement> {
        let limits = (!con.is_own_session()).then(|| self.limits(true));
        [Statement::new(BEGIN, [])].into_iter().chain(limits).collect()
    }

    /// The last statement of a writing transaction whose commit would not wait for the disk: makes the commit wait. It comes after the
    /// question whether the server has forgotten commits, since the answer depends on this setting. And it is asked for only then: a
    /// session may tell that longer leases are safe while this connection is lent, and a caller with such a lease join the step.
    pub(crate) fn sync(&self, con: &Connection) -> Option<Statement> {
        let syncs = self.is_synced() && (con.is_unsynced || !con.is_own_session());
        syncs.then(|| Statement::new(SYNC, []))
    }

    fn open(&self, deadline: Instant) -> Result<Connection, Failure> {
        let by = Instant::now() + self.timeouts.connect;
        let mut con = open(&self.address, deadline.min(by)).map_err(|failure| match by <= deadline {
            true => failure.within(self.timeouts.connect, "connect_timeout"),
            false => failure.within(self.timeouts.response, "response_timeout"),
        })?;
        self.encoding.get_or_init(|| con.encoding);
        // What a session has told of the longest lease stays true, so all others keep what makes it safe, whatever is set meanwhile. Those
        // who do without it have forgotten grants in a crash: the grace is asked for before.
        if !con.is_unsynced {
            self.is_synced.store(true, Ordering::Release);
        }
        if con.is_own_session() {
            // It fails where the tables are missing.
            let grace = con.row(Statement::made_up("select fairlock.grace_ends()"), deadline);
            con.grace_ends = grace.and_then(|row| row.number(0)).ok();
            con.flight(&[self.limits(false), Statement::new(&OWN, [self.is_synced().into()])], deadline)?;
        }
        Ok(con)
    }

    /// Where commits do not wait for the disk, opens a session in place of an idle one: it tells whether they do by now.
    pub(crate) fn look_again(&self, deadline: Instant) -> Result<(), Failure> {
        if self.is_synced() {
            return Ok(());
        }
        let mut con = self.open(deadline)?;
        if let Some(idle) = self.shared.state.lock().idle.last_mut() {
            std::mem::swap(idle, &mut con);
        }
        Ok(())
    }

    /// Bounds a transaction and its waits: from now on in this session, or only in this transaction.
    pub(crate) fn limits(&self, is_local: bool) -> Statement {
        let limits =
            [self.idle(), self.wait(), self.attempt_ttl()].map(|time| time.as_millis().max(1).to_string());
        let values = limits.iter().map(|limit| limit.as_str().into()).chain([is_local.into()]);
        Statement::new(&LIMITS, values.collect::<Vec<_>>())
    }

    /// An idle connection, or the right to open one.
    fn take(&self, watchdog: bool, deadline: Instant) -> Result<Option<Connection>, Failure> {
        let most = if watchdog { self.most.max(2) } else { self.most.saturating_sub(1).max(1) };
        let mut state = self.shared.state.lock();
        loop {
            let ending = state.ending;
            let is_due = |last: Instant| last.elapsed() >= one_more_after(ending.saturating_sub(self.most));
            if state.used() < most {
                state.lent += 1;
                return Ok(state.idle.pop());
            }
            if state.lent == 0 && state.one_more.is_none_or(is_due) {
                (state.lent, state.one_more) = (1, Some(Instant::now()));
                return Ok(state.idle.pop());
            }
            if self.shared.returned.wait_until(&mut state, deadline).timed_out() {
                let what = if ending > 0 { "in use, or wait for the server" } else { "in use" };
                return Err(Failure::broken(format!("all {} connections are {what}", self.most)));
            }
        }
    }

    /// How long a statement waits for a row.
    pub(crate) fn wait(&self) -> Duration {
        WAIT.min(self.timeouts.response / 2)
    }

    /// For how long the server keeps a transaction, and its row lock, for a client that says nothing. It grows with the response time-out: a
    /// machine that needs a longer one stands still for longer, also between the two trips of a step.
    pub(crate) fn idle(&self) -> Duration {
        IDLE.max(self.timeouts.response / 2)
    }

    /// How long after its call has begun a transaction can still take effect: see `step`.
    pub(crate) fn attempt_ttl(&self) -> Duration {
        self.timeouts.response + self.idle()
    }
}

/// The right to one connection, given back however the call ends.
struct Lent<'a>(&'a PoolInner);

/// Counts as a connection until it is dropped.
struct Ending(Weak<PoolInner>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.state.lock().ending -= 1;
            shared.returned.notify_all();
        }
    }
}

/// How long after the last extra session the next may open, if all sessions are ending and there are `more` extra sessions.
fn one_more_after(more: usize) -> Duration {
    Duration::from_secs(1 << more.min(4))
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.state.lock().lent -= 1;
        self.0.returned.notify_all(); // those that wait may take different numbers of them
    }
}

/// Counts as a connection whose messages are under way, until it is dropped.
struct Telling(Weak<PoolInner>);

impl Pool {
    /// Whether messages have to wait for earlier ones.
    pub(crate) fn is_telling(&self) -> bool {
        self.shared.state.lock().telling > 0
    }

    /// Sends these messages now, in their own trip; or later, behind messages that the server does not send yet.
    pub(crate) fn tell(
        &self,
        con: &mut Connection,
        mut messages: Vec<Statement>,
        soon: Duration,
        deadline: Instant,
    ) {
        let mut state = self.shared.state.lock();
        if state.telling == 0 {
            drop(state);
            con.tell(&messages, deadline);
            con.is_busy_at(deadline.min(Instant::now() + soon));
            return;
        }
        messages.truncate(MOST_UNTOLD.saturating_sub(state.untold.len()));
        state.untold.append(&mut messages);
    }

    /// Leaves a connection, which is lent no longer, to a thread until its messages were sent.
    fn leave_to_thread(&self, mut con: Connection) {
        self.shared.state.lock().telling += 1;
        let (mut telling, most, limit) =
            (Telling(Arc::downgrade(&self.shared)), self.most, self.timeouts.response);
        let thread = thread::Builder::new().name("fairlock-pg-tell".to_owned());
        // Without a thread it is closed.
        _ = thread.spawn(move || {
            loop {
                while telling.0.strong_count() > 0 && con.is_busy_at(Instant::now() + LOOKS) {}
                let Some(shared) = telling.0.upgrade().filter(|_| con.is_idle()) else { return };
                let mut state = shared.state.lock();
                let messages = std::mem::take(&mut state.untold);
                if messages.is_empty() {
                    // Another one may have been opened meanwhile.
                    if state.used() + state.idle.len() < most {
                        state.idle.push(con);
                    }
                    state.telling -= 1;
                    std::mem::take(&mut telling.0); // it counts no longer
                    drop(state);
                    shared.returned.notify_all();
                    return;
                }
                drop(state);
                con.tell(&messages, Instant::now() + limit);
            }
        });
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            let mut state = shared.state.lock();
            state.telling -= 1;
            if state.telling == 0 {
                state.untold.clear(); // nobody would send them
            }
            drop(state);
            shared.returned.notify_all();
        }
    }
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod telling_tests;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
