//! Commands and their replies: a pool of a few connections to one server that any number of threads share.
//!
//! A caller that finds an idle connection does its own I/O. A caller that finds no idle connection waits, and is served by a
//! caller with a connection (combining). A caller with a connection leads: it sends its own work and some waiting calls as one
//! batch, hands out the answers, and passes the connection to the first that waits: nobody leads for more than one batch. The
//! pool needs no thread, and a lone caller pays nothing for it. While a batch is under way its connection carries nothing else.
//! So a distant server gets more connections: a caller then waits less for a free connection. Nothing is ever sent twice. After a
//! failure to connect, calls that need a new connection fail at once with the same cause until a back-off is over.
//!
//! Every call ends within connect + 2 × response time-out (waiting: one response; connecting; the batch: one response);
//! [`TURN`] commands of [`Pool::call_many`] count as one call.
//!
//! `command_connection.rs` has what a leader works with: one connection, whether it can still be used, and the batch that serves waiting
//! calls; `server.rs` has what is known of the server.

mod command_connection;
mod server;

use std::borrow::{Borrow, Cow};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, pause};
use parking_lot::Mutex;
use redis::{Value, cmd};
use smallvec::smallvec;

pub(crate) use command_connection::{CommandConnection, dry_run};
pub(crate) use server::{ALL_ARE_BACK, Listeners, Refusal, attempt_length, attempt_ttl};

use command_connection::{Answers, Batch, CallOutcome, WaitingCall, Work, of_ended_login, of_replica};
use server::{Distance, KnownListeners, LeadsTo, ServerClock};

use super::connection::{Address, Failure, MustBe, told_apart};
use super::settings::Settings;

/// The most commands in one batch, which bounds how many a caller waits for before its own.
const TURN: usize = 128;

/// The connections to one server.
pub(crate) struct Pool {
    address: Address,
    settings: Settings,
    state: Mutex<PoolState>,
    clock: ServerClock,
    distance: Distance,
    listeners: KnownListeners,
    leads_to: LeadsTo,
    /// Grows when the server turns out to take no writes: see [`leave`](Pool::leave).
    era: AtomicU64,
}

struct PoolState {
    /// How many connections there are, opened or not.
    count: usize,
    /// Connections that no leader holds, the connected ones on top. While a connected one is idle no call waits: a
    /// returned connection goes to a waiting call first.
    idle: Vec<CommandConnection>,
    /// How many connections were open when a leader last took or returned one.
    connected: usize,
    /// How many connections were lost and not opened again yet.
    lost: usize,
    waiting: VecDeque<Arc<WaitingCall>>,
    outage: Option<PoolOutage>,
    /// When the connections were last left for the server's role.
    left: Option<Instant>,
}

/// Why the last attempt to connect failed, and when the next one may start.
struct PoolOutage {
    cause: Failure,
    until: Instant,
    failures: u32,
}

/// Gives the commands, packed, and says of which fault they know.
type Pack<'a> = &'a dyn Fn() -> (u64, Cow<'a, [u8]>);

enum Entry {
    Lead(CommandConnection),
    Wait,
    Down(Failure),
}

impl Pool {
    /// A pool of 1 to 8 connections, which open when they are first used.
    pub(crate) fn new(address: Address, settings: &Settings) -> Pool {
        Pool::of(address, settings, LeadsTo::anywhere())
    }

    /// A pool for an address that alone decides which server is in charge.
    pub(crate) fn of_one_address(address: Address, settings: &Settings) -> Pool {
        Pool::of(address, settings, LeadsTo::nothing_known())
    }

    fn of(address: Address, settings: &Settings, leads_to: LeadsTo) -> Pool {
        let count = settings.connections;
        let idle = (0..count).map(|_| CommandConnection::new()).collect();
        let state = PoolState {
            count,
            idle,
            connected: 0,
            lost: 0,
            waiting: VecDeque::new(),
            outage: None,
            left: None,
        };
        let (settings, state, clock) = (settings.clone(), Mutex::new(state), ServerClock::new());
        let (distance, listeners, era) = (Distance::new(), KnownListeners::new(), AtomicU64::new(0));
        Pool { address, settings, state, clock, distance, listeners, leads_to, era }
    }

    /// How often the connections were left for the server's role. A subscriber that connected before the last time moves.
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Relaxed)
    }

    /// How long ago the connections were last left, if ever.
    pub(crate) fn left_since(&self) -> Option<Duration> {
        if self.era() == 0 { None } else { self.state.lock().left.map(|left| left.elapsed()) }
    }

    /// The address, for a connection that has to lead to the same server as those for commands.
    pub(crate) fn address_in_charge(&self) -> Address {
        let mut address = self.address.clone();
        if self.leads_to.led_to_master() {
            address.must_be = MustBe::NoReplica;
        }
        address
    }

    /// Whether all servers so far were replicas, by their own word.
    pub(crate) fn may_be_wrong(&self) -> bool {
        self.leads_to.may_be_wrong()
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Until when an attempt that is sent now may begin something, by the server's clock, in microseconds since 1970.
    pub(crate) fn attempt_end(&self) -> u64 {
        if !self.clock.is_known() {
            self.connect_first();
        }
        self.clock.attempt_end(self.settings.timeouts.response)
    }

    /// Whether the server refused an attempt because it came too late: then nothing was carried out, and the server's clock is known.
    pub(crate) fn refused_late(&self, failure: &Failure) -> bool {
        self.clock.refused_late(failure)
    }

    /// Whether a connection was lost since then, or opened in place of one that was.
    pub(crate) fn has_lost_since(&self, then: Instant) -> bool {
        self.listeners.has_lost_since(then)
    }

    /// For which waiters PUBSUB NUMSUB counts, as far as this client can tell. First checks whether the connections are still
    /// there, as the next call would.
    pub(crate) fn listeners(&self) -> Listeners {
        if self.listeners.has_heard_lately() || self.connect_first() {
            return self.listeners.are();
        }
        Listeners::Unknown
    }

    /// Connects, which reads the clock, unless all connections are in use; or pings the server after a pause. A failure is that of
    /// the call that follows. Returns whether the server has answered, or had done so just before.
    fn connect_first(&self) -> bool {
        let entry = self.state.lock().enter();
        let Entry::Lead(connection) = entry else { return false };
        let mut held = Held { pool: self, connected: connection.is_connected(), connection };
        let answered = self.ready(&mut held.connection);
        answered.is_ok_and(|at| {
            self.listeners.hears(at);
            true
        })
    }

    /// Pings the server; connects if need be.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        let pong = self.call(cmd("PING").get_packed_command());
        let explain = |failure| {
            let failure = told_apart(failure, &self.address, &self.settings.timeouts);
            failure.explain_first(&self.address, "connecting")
        };
        pong.map(|_| ()).map_err(explain)
    }

    /// Sends one packed command and waits for its reply. An error reply is [`Failure::Refused`].
    pub(crate) fn call(&self, packed: impl Borrow<[u8]>) -> Result<Value, Failure> {
        let mut answers = self.turn(1, &|| (u64::MAX, Cow::Borrowed(packed.borrow())));
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".into())))
    }

    /// The same for a command that may tell of the [listeners](Pool::listeners). If the connection that is to carry the command turns
    /// out to be new after a fault, the command is packed anew.
    pub(crate) fn call_as_known(&self, pack: impl Fn() -> Vec<u8>) -> Result<Value, Failure> {
        let mut answers = self.turn(1, &|| (self.listeners.last_fault(), Cow::Owned(pack())));
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".into())))
    }

    /// Sends packed commands, [`TURN`] in a round trip; one answer each, in order. When the link fails, commands that were
    /// written and not answered are [`Failure::Broken`], and the rest [`Failure::NotSent`].
    pub(crate) fn call_many<P: Borrow<[u8]>>(&self, packed: &[P]) -> Vec<Result<Value, Failure>> {
        self.turns(packed.len(), &|turn| (u64::MAX, packed[turn].concat().into()))
    }

    /// The same for commands that may tell of the listeners.
    pub(crate) fn call_many_as_known(
        &self,
        count: usize,
        pack: impl Fn(usize) -> Vec<u8>,
    ) -> Vec<Result<Value, Failure>> {
        self.turns(count, &|turn| (self.listeners.last_fault(), Cow::Owned(turn.flat_map(&pack).collect())))
    }

    fn turns(
        &self,
        count: usize,
        pack: &dyn Fn(Range<usize>) -> (u64, Cow<'static, [u8]>),
    ) -> Vec<Result<Value, Failure>> {
        let mut answers = Vec::with_capacity(count);
        let mut failed = None;
        for start in (0..count).step_by(TURN) {
            let commands = TURN.min(count - start);
            let turn = match &failed {
                Some(failure) => smallvec![Err(Failure::clone(failure)); commands],
                None => self.turn(commands, &|| pack(start..start + commands)),
            };
            if let Some(Err(Failure::Broken(cause) | Failure::NotSent(cause))) = turn.last() {
                failed = Some(Failure::NotSent(cause.clone()));
            }
            answers.extend(turn);
        }
        answers
    }

    fn turn(&self, commands: usize, pack: Pack<'_>) -> Answers {
        let start = Instant::now();
        // A call that is outdated while it waits is packed anew, and waits on, within the same time.
        loop {
            let (knows, packed) = pack(); // without the mutex: it may connect
            let work = Work { packed: &packed, commands, knows };
            match self.lead_or_follow(work, start) {
                CallOutcome::Lead(connection) => return self.lead(connection, work, pack),
                CallOutcome::Answered(answers) => return answers,
                CallOutcome::Outdated => {}
                CallOutcome::TimedOut => {
                    return work.failed(&Failure::Broken("no answer in time".into()));
                }
            }
        }
    }

    fn lead_or_follow(&self, work: Work<'_>, start: Instant) -> CallOutcome {
        let mut state = self.state.lock();
        match state.enter() {
            Entry::Lead(connection) => CallOutcome::Lead(connection),
            Entry::Down(cause) => CallOutcome::Answered(work.failed(&cause)),
            Entry::Wait => {
                let call = Arc::new(WaitingCall::new(work));
                state.waiting.push_back(Arc::clone(&call));
                drop(state);
                self.follow(&call, start)
            }
        }
    }

    /// Waits until a leader has sent the work, or passes a connection on.
    fn follow(&self, call: &Arc<WaitingCall>, start: Instant) -> CallOutcome {
        let response = self.settings.timeouts.response;
        let waited = match call.wait(start + response) {
            CallOutcome::TimedOut if self.stop_waiting(call) => {
                let count = self.state.lock().count;
                let busy = Failure::NotSent(format!("all {count} connections are busy").into());
                return CallOutcome::Answered(call.work().failed(&busy));
            }
            // The call waits no longer: a leader has just taken it, to send it or to pass the connection on. Both are
            // bounded.
            CallOutcome::TimedOut => call.wait(start + self.settings.timeouts.connect + 2 * response),
            waited => waited,
        };
        // Leaves no gap between the last check and the end: see `WaitingCall::leave`.
        if matches!(waited, CallOutcome::TimedOut) { call.leave() } else { waited }
    }

    /// Takes a call out of those that wait; false if it does not wait. Leaders take calls under the same mutex: a call that is found
    /// here was taken by no leader, and will not be.
    fn stop_waiting(&self, call: &Arc<WaitingCall>) -> bool {
        let mut state = self.state.lock();
        let index = state.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, call));
        index.and_then(|index| state.waiting.remove(index)).is_some()
    }

    /// Sends a caller's own work, together with some waiting calls.
    fn lead(&self, connection: CommandConnection, work: Work<'_>, pack: Pack<'_>) -> Answers {
        // Both are guards: however this ends, followers get an answer first, then the connection is passed on.
        let mut held = Held { pool: self, connected: connection.is_connected(), connection };
        let asked = match self.ready(&mut held.connection) {
            Ok(asked) => asked,
            Err(failure) => return work.failed(&failure),
        };
        // The connection is new after a fault that the commands do not know of: they would have the server pass over waiters whose
        // clients are not subscribed yet.
        let anew = (work.knows < held.connection.knows).then(pack);
        let work = anew.as_ref().map_or(work, |(_, packed)| Work { packed, ..work });
        // Only now: while this connection opens, waiting callers can be served by another one, or leave and know that
        // nothing was sent.
        let mut batch = Batch::new(work, self.share(work.commands, held.connection.knows));
        let (packed, commands) = (batch.packed(), batch.commands());
        let (response, era) = (self.settings.timeouts.response, held.connection.era);
        let mut is_logged_in = true;
        let outcome = held.connection.exchange(&packed, commands, asked, response, |reply| {
            if let Some(cause) = of_replica(&reply) {
                self.leave(era, cause);
            }
            let ended = of_ended_login(&reply);
            is_logged_in &= ended.is_none();
            batch.reply(ended.map_or(reply, Err));
        });
        if !is_logged_in {
            held.connection.close();
        }
        match &outcome {
            Ok(()) => {
                self.listeners.hears(asked);
                if self.distance.is_found_far(asked, commands) {
                    self.state.lock().grow(self.settings.connections_if_far);
                }
            }
            Err(_) if asked.elapsed() >= response => self.fell_silent(asked),
            Err(_) => {}
        }
        batch.end(outcome)
    }

    /// A leader's part of the waiting calls. For a near server a fair part, which leaves work for the other connections. For a distant
    /// server all of them: a call that stays would wait for another connection to come back, half a cycle longer.
    /// Calls that do not know of the connection's last fault go back to their callers.
    fn share(&self, own: usize, knows: u64) -> VecDeque<Arc<WaitingCall>> {
        let mut state = self.state.lock();
        let parts = if self.distance.is_far() { 1 } else { state.count };
        let most = state.waiting.len().div_ceil(parts);
        let (mut taken, mut commands) = (VecDeque::with_capacity(most.min(TURN)), own);
        let mut outdated = Vec::new();
        while taken.len() < most
            && let Some(next) = state.waiting.pop_front()
        {
            if next.work().knows < knows {
                outdated.push(next);
                continue;
            }
            commands += next.work().commands;
            if commands > TURN {
                state.waiting.push_front(next);
                break;
            }
            taken.push_back(next);
        }
        drop(state); // waking is a system call
        outdated.iter().for_each(|call| call.outdated());
        taken
    }

    /// Passes a connection to the first call that waits, or makes it idle.
    fn put_back(&self, mut connection: CommandConnection, was_connected: bool) {
        let mut state = self.state.lock();
        state.connected += usize::from(connection.is_connected());
        state.connected -= usize::from(was_connected);
        if was_connected && !connection.is_connected() {
            state.lost += 1;
            self.listeners.lost(self.clock.time());
        }
        loop {
            if !connection.is_connected()
                && let Some(cause) = state.down()
            {
                state.idle.insert(0, connection);
                // If no open connection is in use, nobody will serve the waiting calls, so no caller may wait. An open connection in use
                // will be put back here.
                let stranded =
                    if state.connected == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
                drop(state);
                stranded.iter().for_each(|call| call.answer(call.work().failed(&cause)));
                return;
            }
            // Checked and made idle under one mutex, under which callers also find no idle connection and wait: otherwise
            // a caller could begin to wait between the two steps and wait beside an idle connection.
            let Some(next) = state.waiting.pop_front() else {
                let index = if connection.is_connected() { state.idle.len() } else { 0 };
                state.idle.insert(index, connection);
                return;
            };
            drop(state); // waking is a system call
            match next.offer(connection) {
                None => return,
                // The caller gave up after its call was taken: the next caller gets the connection.
                Some(back) => connection = back,
            }
            state = self.state.lock();
        }
    }
}

impl PoolState {
    /// Adds connections. They open when callers find no other idle; open connections serve the calls that wait.
    fn grow(&mut self, count: usize) {
        self.idle.splice(0..0, (self.count..count).map(|_| CommandConnection::new()));
        self.count = self.count.max(count);
    }

    /// Takes those idle connections that are open and meant, and leaves as many unopened ones.
    fn take_idle(&mut self, is_meant: impl Fn(&CommandConnection) -> bool) -> Vec<CommandConnection> {
        let is_taken = |connection: &CommandConnection| connection.is_connected() && is_meant(connection);
        let (taken, kept): (Vec<_>, Vec<_>) = self.idle.drain(..).partition(is_taken);
        self.idle.extend(taken.iter().map(|_| CommandConnection::new()));
        self.idle.extend(kept);
        self.connected -= taken.len();
        self.lost += taken.len();
        taken
    }

    fn enter(&mut self) -> Entry {
        let Some(connection) = self.idle.pop() else { return Entry::Wait };
        if connection.is_connected() {
            return Entry::Lead(connection);
        }
        let Some(cause) = self.down() else { return Entry::Lead(connection) };
        self.idle.push(connection);
        // A server that accepts no more connections still serves the open ones: an open connection will be put back.
        if self.connected > 0 { Entry::Wait } else { Entry::Down(cause) }
    }

    /// Why the server counts as down, if so.
    fn down(&self) -> Option<Failure> {
        let outage = self.outage.as_ref().filter(|outage| Instant::now() < outage.until)?;
        Some(outage.cause.clone())
    }

    fn failed_to_connect(&mut self, cause: &Failure) {
        let now = Instant::now();
        let failures = match self.outage.take() {
            // Two leaders tried at the same time: one failure, and no longer back-off.
            Some(outage) if now < outage.until => {
                self.outage = Some(PoolOutage { cause: cause.clone(), ..outage });
                return;
            }
            Some(outage) => outage.failures.saturating_add(1),
            // The first has a pause already: callers wait, and all would try.
            None => 2,
        };
        let until = now + pause(failures);
        self.outage = Some(PoolOutage { cause: cause.clone(), until, failures });
    }
}

/// A connection that a leader holds, put back in any case.
struct Held<'a> {
    pool: &'a Pool,
    connection: CommandConnection,
    /// Whether it counts as connected.
    connected: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let connection = std::mem::replace(&mut self.connection, CommandConnection::new());
        self.pool.put_back(connection, self.connected);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.address)
            .field("count", &self.state.lock().count)
            .finish()
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
