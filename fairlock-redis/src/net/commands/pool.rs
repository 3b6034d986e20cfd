//! A few connections that any number of threads share: who finds one idle does its own I/O, who finds none is served
//! by a thread that has one (combining).
//!
//! A thread that holds a connection leads: it sends its own work and some of what is queued as one batch, hands out the
//! answers, and hands the connection to the first in the queue, so nobody serves others for longer than one batch. There is
//! no thread of our own, and a caller alone pays nothing for the others. Nothing is ever sent twice from here. After a
//! failure to connect, calls that would need a new connection fail at once with its cause until a back-off is over.
//!
//! Every call ends within connect + 2 × response time-out (queue: one response; connecting; the batch: one response),
//! each [`TURN`] commands of [`Pool::call_many`] counted as a call.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use parking_lot::Mutex;
use redis::{Value, cmd};

use super::batch::Batch;
use super::command_connection::CommandConnection;
use super::queued_call::{Answers, QueuedCall, Waited, Work};
use crate::net::connection::{Address, Backoff, Failure, Timeouts, open};

/// The most commands in one batch, so that no caller waits for more than that many before its own.
const TURN: usize = 64;

/// The connections to one server.
pub(crate) struct Pool {
    address: Address,
    timeouts: Timeouts,
    count: usize,
    state: Mutex<State>,
    for_blocking: OnceLock<Box<Pool>>,
    reconnects: Arc<AtomicU64>,
}

/// How many connections each server gets, and what all connections of a backend count together.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    pub(crate) pool: usize,
    reconnects: Arc<AtomicU64>,
}

impl From<usize> for PoolSettings {
    fn from(pool: usize) -> PoolSettings {
        PoolSettings { pool, reconnects: Arc::default() }
    }
}

impl PoolSettings {
    /// How many connections to a server were made anew after they were lost.
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }
}

struct State {
    /// Pool that nobody holds; those with a connection on top. While one with a connection lies here the queue is
    /// empty: a connection that comes back goes to the queue first.
    idle: Vec<CommandConnection>,
    /// How many connections had a connection when they were last in here.
    connected: usize,
    /// How many connections were lost for which no connection has made another one yet.
    lost: usize,
    queue: VecDeque<Arc<QueuedCall>>,
    outage: Option<Outage>,
}

/// Why the last attempt to connect failed, and from when on the next one may be made.
struct Outage {
    cause: Failure,
    until: Instant,
    backoff: Backoff,
}

enum Entry {
    Lead(CommandConnection),
    Wait,
    Down(Failure),
}

impl Pool {
    /// Pool that connect when they are first used; their number is kept within 1 to 8.
    pub(crate) fn new(address: Address, timeouts: Timeouts, settings: impl Into<PoolSettings>) -> Pool {
        let PoolSettings { pool, reconnects } = settings.into();
        let count = pool.clamp(1, 8);
        let idle = (0..count).map(|_| CommandConnection::new()).collect();
        let state = State { idle, connected: 0, lost: 0, queue: VecDeque::new(), outage: None };
        Pool { address, timeouts, count, state: Mutex::new(state), for_blocking: OnceLock::new(), reconnects }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// One more connection, for commands that hold up their connection for up to `longer`. It is the same at each call.
    pub(crate) fn for_blocking(&self, longer: Duration) -> &Pool {
        self.for_blocking.get_or_init(|| {
            let timeouts = Timeouts { response: self.timeouts.response + longer, ..self.timeouts };
            let settings = PoolSettings { pool: 1, reconnects: Arc::clone(&self.reconnects) };
            Box::new(Pool::new(self.address.clone(), timeouts, settings))
        })
    }

    /// See [`PoolSettings::reconnects`].
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    /// Whether the server answers; connects if need be.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        let pong = self.call(cmd("PING").get_packed_command());
        pong.map(|_| ()).map_err(|failure| failure.explain(&self.address, "connecting"))
    }

    /// Sends one packed command and waits for its reply. An error reply is [`Failure::Refused`].
    pub(crate) fn call(&self, packed: Vec<u8>) -> Result<Value, Failure> {
        let mut answers = self.turn(Work { packed, commands: 1 });
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".to_owned())))
    }

    /// Sends packed commands, [`TURN`] in a round trip; one answer each, in order. When the link fails, what was
    /// written and not answered is [`Failure::Broken`], and what was not written yet is [`Failure::NotSent`].
    pub(crate) fn call_many<P: Borrow<[u8]>>(&self, packed: &[P]) -> Vec<Result<Value, Failure>> {
        let mut answers = Answers::with_capacity(packed.len());
        let mut failed = None;
        for chunk in packed.chunks(TURN) {
            let work = Work { packed: chunk.concat(), commands: chunk.len() };
            let turn = match &failed {
                Some(failure) => work.failed(failure),
                None => self.turn(work),
            };
            if let Some(Err(Failure::Broken(cause) | Failure::NotSent(cause))) = turn.last() {
                failed = Some(Failure::NotSent(cause.clone()));
            }
            answers.extend(turn);
        }
        answers
    }

    fn turn(&self, work: Work) -> Answers {
        let mut state = self.state.lock();
        match state.enter() {
            Entry::Lead(connection) => {
                drop(state);
                self.lead(connection, &work)
            }
            Entry::Down(cause) => work.failed(&cause),
            Entry::Wait => {
                let call = Arc::new(QueuedCall::new(work));
                state.queue.push_back(Arc::clone(&call));
                drop(state);
                self.follow(&call)
            }
        }
    }

    /// Waits until a leader has sent the work along, or a connection is handed over.
    fn follow(&self, call: &Arc<QueuedCall>) -> Answers {
        let (start, response) = (Instant::now(), self.timeouts.response);
        let met = match call.wait(start + response) {
            Waited::TimedOut if self.withdraw(call) => {
                return call
                    .work
                    .failed(&Failure::NotSent(format!("all {} connections are busy", self.count)));
            }
            // Not in the queue any more: a leader took it at this very moment, to send it or to hand his connection over.
            // What he does with it has an end.
            Waited::TimedOut => call.wait(start + self.timeouts.connect + 2 * response),
            met => met,
        };
        // Not a moment's gap between the last look and going away: see `QueuedCall::leave`.
        let met = if matches!(met, Waited::TimedOut) { call.leave() } else { met };
        match met {
            Waited::Lead(connection) => self.lead(connection, &call.work),
            Waited::Answered(answers) => answers,
            Waited::TimedOut => call.work.failed(&Failure::Broken("no answer in time".to_owned())),
        }
    }

    /// Takes a caller out of the queue; false if he is not in it. Who finds himself here was seen by no leader, and
    /// will be seen by none: leaders take from the queue under the same mutex.
    fn withdraw(&self, call: &Arc<QueuedCall>) -> bool {
        let mut state = self.state.lock();
        let place = state.queue.iter().position(|queued| Arc::ptr_eq(queued, call));
        place.and_then(|place| state.queue.remove(place)).is_some()
    }

    /// Sends a caller's own work, and of what is queued what comes with it.
    fn lead(&self, connection: CommandConnection, work: &Work) -> Answers {
        // Both are guards: whatever ends this, followers get an answer first, then the connection is handed on.
        let mut held = Held { pool: self, connected: connection.is_connected(), connection };
        if let Err(failure) = self.ready(&mut held.connection) {
            return work.failed(&failure);
        }
        // Only now: who is still in the queue while this connection connects can be served by another one, or go away and
        // know that nothing was sent.
        let mut batch = Batch::new(work, self.share(work.commands));
        let (packed, commands) = (batch.packed(), batch.commands());
        let outcome =
            held.connection.exchange(&packed, commands, self.timeouts.response, |reply| batch.reply(reply));
        batch.end(outcome)
    }

    /// Makes sure that the connection has a connection; no mutex is held meanwhile.
    fn ready(&self, connection: &mut CommandConnection) -> Result<(), Failure> {
        let had_one = connection.is_connected();
        connection.refresh(self.timeouts.response)?;
        if connection.is_connected() {
            return Ok(());
        }
        // An attempt of another connection may have failed since this one was given out.
        if let Some(cause) = self.state.lock().down() {
            return Err(cause);
        }
        match open(&self.address, &self.timeouts) {
            Ok(con) => {
                connection.connect(con);
                let mut state = self.state.lock();
                state.outage = None;
                if had_one || state.lost > 0 {
                    state.lost -= usize::from(!had_one);
                    self.reconnects.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(failure) => {
                self.state.lock().failed_to_connect(&failure);
                Err(failure)
            }
        }
    }

    /// A leader's fair part of the queue, so that the other connections find something as well.
    fn share(&self, own: usize) -> VecDeque<Arc<QueuedCall>> {
        let mut state = self.state.lock();
        let most = state.queue.len().div_ceil(self.count);
        let (mut taken, mut commands) = (VecDeque::new(), own);
        while taken.len() < most
            && let Some(next) = state.queue.pop_front()
        {
            commands += next.work.commands;
            if commands > TURN {
                state.queue.push_front(next);
                break;
            }
            taken.push_back(next);
        }
        taken
    }

    /// Hands a connection to the first in the queue, or lays it down.
    fn give_back(&self, mut connection: CommandConnection, was_connected: bool) {
        let mut state = self.state.lock();
        state.connected += usize::from(connection.is_connected());
        state.connected -= usize::from(was_connected);
        state.lost += usize::from(was_connected && !connection.is_connected());
        loop {
            if !connection.is_connected()
                && let Some(cause) = state.down()
            {
                state.idle.insert(0, connection);
                // Nobody is left to serve the queue, so nobody is to wait in it; else a connection that is at work with a
                // connection will come by here.
                let stranded =
                    if state.connected == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
                drop(state);
                stranded.iter().for_each(|call| call.answer(call.work.failed(&cause)));
                return;
            }
            // Looked up and laid down under one lock, the same under which a caller finds no connection and queues: else
            // he could queue between the two and lie there beside an idle connection.
            let Some(next) = state.queue.pop_front() else {
                let place = if connection.is_connected() { state.idle.len() } else { 0 };
                state.idle.insert(place, connection);
                return;
            };
            drop(state); // waking is a system call
            match next.offer(connection) {
                None => return,
                // He had given up between being taken from the queue and being offered the connection: to the next.
                Some(back) => connection = back,
            }
            state = self.state.lock();
        }
    }
}

impl State {
    fn enter(&mut self) -> Entry {
        let Some(connection) = self.idle.pop() else { return Entry::Wait };
        if connection.is_connected() {
            return Entry::Lead(connection);
        }
        let Some(cause) = self.down() else { return Entry::Lead(connection) };
        self.idle.push(connection);
        // A server that takes no more connections is not down for those who have one, and it will come back here.
        if self.connected > 0 { Entry::Wait } else { Entry::Down(cause) }
    }

    /// Why the server is taken to be down, if it is.
    fn down(&self) -> Option<Failure> {
        let outage = self.outage.as_ref().filter(|outage| Instant::now() < outage.until)?;
        Some(outage.cause.clone())
    }

    fn failed_to_connect(&mut self, cause: &Failure) {
        let now = Instant::now();
        let mut backoff = match self.outage.take() {
            // Two connections tried at the same time: that is one failure, and not a longer wait.
            Some(outage) if now < outage.until => {
                self.outage = Some(Outage { cause: cause.clone(), ..outage });
                return;
            }
            Some(outage) => outage.backoff,
            None => Backoff::new(),
        };
        let until = now + backoff.next();
        self.outage = Some(Outage { cause: cause.clone(), until, backoff });
    }
}

/// A connection that a leader holds; it is given back in any case.
struct Held<'a> {
    pool: &'a Pool,
    connection: CommandConnection,
    /// Whether it counts as connected.
    connected: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let connection = std::mem::replace(&mut self.connection, CommandConnection::new());
        self.pool.give_back(connection, self.connected);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", &self.address).field("count", &self.count).finish()
    }
}

#[cfg(test)]
mod tests;
