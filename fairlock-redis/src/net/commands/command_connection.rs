//! What a leader works with: a connection for commands, opened when it is needed and dropped at its first failure; and the batch, which has
//! the leader's own work and that of callers that wait for a leader. Each caller gets an answer of its own.
//!
//! Whether the connection can still be used: what is asked when it opens and after a pause, and what becomes of the other connections when
//! one leads to a replica, or nowhere. And a connection that executes nothing.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use redis::{Cmd, Value, cmd};
use smallvec::{SmallVec, smallvec};

use super::Pool;
use super::server::{FRESH, KnownListeners, ServerClock};
use crate::net::connection::{Address, Connection, Failure, Timeouts, open, open_and_ask};

/// A connection that may be missing: at first, and after a failure.
pub(crate) struct CommandConnection {
    con: Option<Open>,
    /// The era of the pool in which the connection was opened.
    pub(super) era: u64,
    /// The last fault that was noticed by the time that the connection was open.
    pub(super) knows: u64,
}

struct Open {
    /// In a box, since the connection goes from thread to thread, several times a call.
    con: Box<Connection>,
    /// When the request was sent that was answered last.
    used: Instant,
}

impl CommandConnection {
    pub(crate) fn new() -> CommandConnection {
        CommandConnection { con: None, era: 0, knows: 0 }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.con.is_some()
    }

    /// Takes a connection from [`open`].
    pub(crate) fn connect(&mut self, con: impl Into<Box<Connection>>) {
        self.con = Some(Open { con: con.into(), used: Instant::now() });
    }

    /// Whether no request that was sent since then was answered on this connection.
    fn is_quiet_since(&self, then: Instant) -> bool {
        self.con.as_ref().is_some_and(|open| open.used < then)
    }

    /// Whether the connection's login is about to end.
    fn is_login_due(&self, now: Instant) -> bool {
        self.con.as_ref().is_some_and(|open| open.con.is_login_due(now))
    }

    /// The connection, while it is open.
    fn open(&mut self) -> Option<&mut Connection> {
        self.con.as_mut().map(|open| &mut *open.con)
    }

    pub(super) fn close(&mut self) {
        self.con = None;
    }

    /// Whether the connection was idle for long, and may be closed; or the clock was not read for long.
    pub(super) fn is_to_be_pinged(&self, now: Instant, clock: &ServerClock) -> bool {
        let is_fresh = |open: &Open| now.saturating_duration_since(open.used) < FRESH;
        self.con.as_ref().is_some_and(|open| !is_fresh(open) || clock.is_old(now))
    }

    /// Writes commands and hands over each reply as it arrives, all within `limit` from `asked` on, which is now.
    ///
    /// # Errors
    /// The link failed, or a reply was late or too long. Replies that were not handed over will never come, and the
    /// outcome of their commands is unknown; the connection is dropped, which resets it.
    pub(crate) fn exchange(
        &mut self,
        packed: &[u8],
        replies: usize,
        asked: Instant,
        limit: Duration,
        mut reply: impl FnMut(Result<Value, Failure>),
    ) -> Result<(), Failure> {
        // Taken out while in use, so that an early return or a panic drops it. Reading on after a time-out would cost
        // another time-out for each missing reply; writing on after half a command would garble the next one.
        let Some(Open { mut con, .. }) = self.con.take() else {
            return Err(Failure::NotSent("not connected".into()));
        };
        let (until, late) = (asked + limit, |failure: Failure| failure.within_response(limit));
        con.send(packed, until).map_err(late)?;
        for _ in 0..replies {
            let received = con.receive(until).map_err(late)?;
            reply(con.answered(received));
        }
        con.all_answered();
        self.con = Some(Open { con, used: asked });
        Ok(())
    }
}

/// If connections have to be left again within this time, the address still leads to a replica.
const SOON_AGAIN: Duration = Duration::from_secs(1);

/// What is asked with a greeting or a ping.
#[derive(Clone, Copy)]
enum Ask {
    Time,
    Role,
    Greeting,
    /// AUTH, in place of a login that is about to end.
    Login,
}

impl Pool {
    /// Opens the connection if need be, and returns the time; holds no mutex meanwhile.
    pub(super) fn ready(&self, connection: &mut CommandConnection) -> Result<Instant, Failure> {
        let was_connected = connection.is_connected();
        if connection.era != self.era() {
            connection.close();
        }
        let now = self.refresh(connection)?;
        if connection.is_connected() {
            return Ok(now);
        }
        // Another leader's attempt may have failed since this one took the connection.
        if let Some(cause) = self.state.lock().down() {
            return Err(cause);
        }
        let (era, (asks, mut commands)) = (self.era(), self.questions());
        commands.push(KnownListeners::question());
        let opened = open_and_ask(&self.address, &self.settings.timeouts, &commands);
        let hear = |(con, mut answers): (_, Vec<_>)| {
            let info = answers.pop().and_then(Result::ok);
            let mut heard = asks.into_iter().zip(answers);
            heard.try_for_each(|(ask, answer)| self.heard(ask, answer)).map(|()| (con, info))
        };
        match opened.and_then(hear) {
            Ok((con, info)) => {
                connection.connect(con);
                connection.era = era;
                let mut state = self.state.lock();
                state.outage = None;
                let is_again = was_connected || state.lost > 0;
                if is_again {
                    state.lost -= usize::from(!was_connected);
                    self.settings.reconnected();
                }
                drop(state);
                self.listeners.connected(is_again, self.clock.time(), info.as_ref());
                connection.knows = self.listeners.last_fault();
                Ok(Instant::now())
            }
            Err(failure) => {
                self.state.lock().failed_to_connect(&failure);
                Err(failure)
            }
        }
    }

    /// Pings a connection that was idle or whose login is about to end, by the questions of a greeting and the next login, and closes it
    /// if that fails. Returns when it looked, or the end of the ping: the next request may begin then. A connection that can't log in
    /// anew stays logged in until the server ends it.
    ///
    /// # Errors
    /// `NotSent` if the server did not answer in time: connecting anew would most likely fail too, and the caller has
    /// waited once.
    fn refresh(&self, connection: &mut CommandConnection) -> Result<Instant, Failure> {
        let asked = Instant::now();
        // Nobody waits for the next login here: there is one, or the present login serves on.
        let login = connection.is_login_due(asked).then(|| self.address.next_login()).flatten();
        if login.is_none() && !connection.is_to_be_pinged(asked, &self.clock) {
            return Ok(asked);
        }
        let (mut asks, mut commands) = self.questions();
        if let (Some((as_user, _)), Some(con)) = (&login, connection.open()) {
            con.hide(as_user.secrets());
            asks.push(Ask::Login);
            commands.extend(as_user.auth());
        }
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        let (response, mut asks, mut role) = (self.settings.timeouts.response, asks.into_iter(), Ok(()));
        let mut is_logged_in = false;
        // Any reply will do, even a refusal, but for that of a replica.
        let pinged = connection.exchange(&packed, commands.len(), asked, response, |reply| {
            let ask = asks.next();
            is_logged_in = matches!(ask, Some(Ask::Login)) && reply.is_ok();
            if let Some(Err(cause)) = ask.map(|ask| self.heard(ask, reply)) {
                role = Err(cause);
            }
        });
        if let (true, Some((_, renew_at)), Some(con)) = (is_logged_in, login, connection.open()) {
            con.logged_in(renew_at);
        }
        if let Err(cause) = role {
            self.leave(connection.era, &cause);
            connection.close();
        }
        let now = Instant::now();
        match pinged {
            Err(failure) if now - asked > response / 2 => {
                self.fell_silent(asked);
                Err(failure.before_sending())
            }
            _ => Ok(now),
        }
    }

    /// What is asked with a greeting or a ping.
    fn questions(&self) -> (Vec<Ask>, Vec<Cmd>) {
        let role = self.leads_to.question().map(|question| (Ask::Role, question));
        let greeting = self.settings.greeting.as_ref().and_then(|greeting| greeting.question());
        let greeting = greeting.map(|question| (Ask::Greeting, question));
        [(Ask::Time, cmd("TIME"))].into_iter().chain(role).chain(greeting).unzip()
    }

    /// # Errors
    /// `READONLY` of a replica that must not be used.
    fn heard(&self, ask: Ask, reply: Result<Value, Failure>) -> Result<(), Failure> {
        match ask {
            Ask::Time => _ = reply.map(|time| self.clock.heard(&time)),
            Ask::Role => self.leads_to.heard(reply)?,
            Ask::Login => match reply {
                Ok(_) => self.address.was_accepted(),
                Err(failure) => _ = self.address.refused(failure),
            },
            Ask::Greeting => _ = self.settings.greeting.as_ref().map(|greeting| greeting.answered(reply)),
        }
        Ok(())
    }

    /// A request sent at `asked` got no answer in time. The path of this connection, and of others, may be gone without a word (a router
    /// restarted, a host behind a shared address lost its power) while new connections work. So all
    /// connections that have been quiet since `asked` are closed: one by one, each would cost a time-out. A connection that
    /// carries a batch has its own time-out; a connection with a later answer is well.
    pub(super) fn fell_silent(&self, asked: Instant) {
        let closed = self.state.lock().take_idle(|connection| connection.is_quiet_since(asked));
        if !closed.is_empty() {
            self.listeners.lost(self.clock.time());
        }
        drop(closed); // system calls, without the mutex
    }

    /// A connection of this era leads to a server that takes no writes: a replica by now. Where the address leads may have changed, so
    /// all connections of the era are closed: the idle ones now, the others before they would carry another batch (`ready`).
    /// The next call connects anew, which looks the name up. A second answer to a call of that era changes nothing.
    pub(super) fn leave(&self, era: u64, cause: &Failure) {
        if self.era.compare_exchange(era, era + 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let mut state = self.state.lock();
        let closed = state.take_idle(|connection| connection.era <= era);
        let before = state.left.replace(Instant::now());
        // The new connections lead to a replica, too, as far as their server tells its role: the others pause before they connect.
        if before.is_some_and(|before| before.elapsed() < SOON_AGAIN) && !self.may_be_wrong() {
            state.failed_to_connect(cause);
        }
        drop((state, closed)); // in this order: the end of a connection is a system call
    }
}

/// What only a replica says. (A server that restarts says that it loads, too, but on a new connection.)
pub(super) fn of_replica(reply: &Result<Value, Failure>) -> Option<&Failure> {
    let is_of_replica = |code| matches!(code, "READONLY" | "MASTERDOWN" | "LOADING");
    reply.as_ref().err().filter(|failure| failure.code().is_some_and(is_of_replica))
}

/// The failure of a command on a connection whose login the server has ended without closing it: nothing was carried out, and the next
/// connection logs in.
pub(super) fn of_ended_login(reply: &Result<Value, Failure>) -> Option<Failure> {
    let ended = reply.as_ref().err().filter(|failure| failure.code() == Some("NOAUTH"))?;
    Some(Failure::NotSent(format!("the server has ended the login: {ended}").into()))
}

/// One answer for each command of a [`Work`], in order. A single answer needs no allocation.
pub(super) type Answers = SmallVec<[Result<Value, Failure>; 1]>;

/// What one caller sends in one go.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    /// The commands as bytes for the wire, one after the other.
    pub(super) packed: &'a [u8],
    pub(super) commands: usize,
    /// The last fault that the commands know of: a connection with a later one does not carry them.
    pub(super) knows: u64,
}

impl Work<'_> {
    /// The same failure for each command.
    pub(super) fn failed(self, failure: &Failure) -> Answers {
        smallvec![Err(failure.clone()); self.commands]
    }
}

/// Where a waiting caller and the callers with connections meet.
pub(super) struct WaitingCall {
    packed: Vec<u8>,
    commands: usize,
    knows: u64,
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    /// Nobody has taken the call; or a leader has, which sends the call with its own work.
    Waiting,
    /// The caller has a connection and leads.
    Leads(CommandConnection),
    Answered(Answers),
    /// A fault was noticed since the commands were packed: the caller packs them anew.
    Outdated,
    /// The caller has left.
    Gone,
}

/// How a wait ended.
pub(super) enum CallOutcome {
    Lead(CommandConnection),
    Answered(Answers),
    Outdated,
    TimedOut,
}

impl WaitingCall {
    /// Copies the work: another thread sends the call, perhaps after the caller has left.
    pub(super) fn new(work: Work<'_>) -> WaitingCall {
        let Work { packed, commands, knows } = work;
        let (stage, changed) = (Mutex::new(Stage::Waiting), Condvar::new());
        WaitingCall { packed: packed.to_vec(), commands, knows, stage, changed }
    }

    pub(super) fn work(&self) -> Work<'_> {
        Work { packed: &self.packed, commands: self.commands, knows: self.knows }
    }

    /// Waits for an answer or a connection.
    pub(super) fn wait(&self, until: Instant) -> CallOutcome {
        let mut stage = self.stage.lock();
        while matches!(*stage, Stage::Waiting) && !self.changed.wait_until(&mut stage, until).timed_out() {}
        WaitingCall::taken(stage, Stage::Waiting)
    }

    /// The last check of a caller that leaves. This check and each decision hold the same mutex: an answer or a connection is either
    /// found here, or refused to its giver, and never lost in between.
    pub(super) fn leave(&self) -> CallOutcome {
        WaitingCall::taken(self.stage.lock(), Stage::Gone)
    }

    fn taken(mut stage: MutexGuard<'_, Stage>, undecided: Stage) -> CallOutcome {
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Leads(connection) => CallOutcome::Lead(connection),
            Stage::Answered(answers) => CallOutcome::Answered(answers),
            Stage::Outdated => CallOutcome::Outdated,
            Stage::Waiting => {
                *stage = undecided;
                CallOutcome::TimedOut
            }
            Stage::Gone => CallOutcome::TimedOut,
        }
    }

    pub(super) fn answer(&self, answers: Answers) {
        self.decide(Stage::Answered(answers));
    }

    pub(super) fn outdated(&self) {
        self.decide(Stage::Outdated);
    }

    fn decide(&self, decided: Stage) {
        let mut stage = self.stage.lock();
        if matches!(*stage, Stage::Waiting) {
            *stage = decided;
            drop(stage);
            self.changed.notify_one();
        }
    }

    /// Makes the waiting caller the leader of this connection; returns the connection if the caller has left.
    pub(super) fn offer(&self, connection: CommandConnection) -> Option<CommandConnection> {
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Waiting) {
            return Some(connection);
        }
        *stage = Stage::Leads(connection);
        drop(stage);
        self.changed.notify_one();
        None
    }
}

/// Sorts the replies, which come in the order of the commands. A drop gives the remaining followers a failure: no thread waits
/// for a leader that panicked.
pub(super) struct Batch<'a> {
    work: Work<'a>,
    own: Answers,
    followers: VecDeque<Arc<WaitingCall>>,
    /// The answers for the first follower so far.
    answers: Answers,
}

impl<'a> Batch<'a> {
    pub(super) fn new(work: Work<'a>, followers: VecDeque<Arc<WaitingCall>>) -> Batch<'a> {
        Batch { work, own: Answers::with_capacity(work.commands), followers, answers: Answers::new() }
    }

    /// A leader without followers does not copy its commands.
    pub(super) fn packed(&self) -> Cow<'a, [u8]> {
        if self.followers.is_empty() {
            return Cow::Borrowed(self.work.packed);
        }
        let all: Vec<&[u8]> = self.works().map(|work| work.packed).collect();
        Cow::Owned(all.concat())
    }

    pub(super) fn commands(&self) -> usize {
        self.works().map(|work| work.commands).sum()
    }

    fn works(&self) -> impl Iterator<Item = Work<'_>> {
        iter::once(self.work).chain(self.followers.iter().map(|call| call.work()))
    }

    /// Takes the next reply. A follower wakes with its last reply, while other followers' replies are still to come.
    pub(super) fn reply(&mut self, reply: Result<Value, Failure>) {
        if self.own.len() < self.work.commands {
            self.own.push(reply);
            return;
        }
        self.answers.push(reply);
        if self.followers.front().is_some_and(|call| call.work().commands == self.answers.len())
            && let Some(call) = self.followers.pop_front()
        {
            call.answer(std::mem::take(&mut self.answers));
        }
    }

    /// The leader's own answers, once all replies are there, or no more will come.
    pub(super) fn end(mut self, outcome: Result<(), Failure>) -> Answers {
        if let Err(failure) = outcome {
            self.own.resize(self.work.commands, Err(failure.clone()));
            self.fail_followers(&failure);
        }
        std::mem::take(&mut self.own)
    }

    fn fail_followers(&mut self, failure: &Failure) {
        for call in self.followers.drain(..) {
            // The first follower may have some of its answers.
            let mut answers = std::mem::take(&mut self.answers);
            answers.resize(call.work().commands, Err(failure.clone()));
            call.answer(answers);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.followers.is_empty() {
            self.fail_followers(&Failure::Broken("the thread that sent it has panicked".into()));
        }
    }
}

/// What the server replies to each command; none is executed.
///
/// # Errors
/// There is no connection, or the user has no right to MULTI; no command was sent then.
pub(crate) fn dry_run(
    address: &Address,
    timeouts: Timeouts,
    commands: &[Cmd],
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    // Its own connection, which is never replaced: only this connection, which has said OK to MULTI, does not execute
    // the commands.
    let mut connection = CommandConnection::new();
    connection.connect(open(address, &timeouts)?);
    let mut begun = Err(Failure::NotSent("no answer to MULTI".into()));
    connection.exchange(
        &cmd("MULTI").get_packed_command(),
        1,
        Instant::now(),
        timeouts.response,
        |reply| begun = reply,
    )?;
    begun?;
    let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    let mut answers = Vec::with_capacity(commands.len());
    connection
        .exchange(&packed, commands.len(), Instant::now(), timeouts.response, |reply| answers.push(reply))?;
    // Closing the connection discards the commands, and unlike DISCARD needs no right.
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> WaitingCall {
        WaitingCall::new(Work { packed: &[], commands: 2, knows: 0 })
    }

    #[test]
    fn a_connection_offered_to_a_caller_that_has_left_comes_back() {
        let call = call();
        assert!(matches!(call.leave(), CallOutcome::TimedOut));
        assert!(call.offer(CommandConnection::new()).is_some());
        call.answer(Answers::new());
        assert!(matches!(call.wait(Instant::now()), CallOutcome::TimedOut));
    }

    #[test]
    fn what_was_decided_before_the_caller_leaves_is_its_own() {
        let call = call();
        assert!(matches!(call.wait(Instant::now()), CallOutcome::TimedOut));
        assert!(call.offer(CommandConnection::new()).is_none());
        assert!(call.offer(CommandConnection::new()).is_some());
        assert!(matches!(call.leave(), CallOutcome::Lead(_)));
    }

    #[test]
    fn an_answer_wakes_the_caller() {
        let call = call();
        std::thread::scope(|scope| {
            scope.spawn(|| call.answer(call.work().failed(&Failure::NotSent("x".into()))));
            let until = Instant::now() + std::time::Duration::from_secs(10);
            assert!(matches!(call.wait(until), CallOutcome::Answered(answers) if answers.len() == 2));
        });
    }

    fn work(commands: usize) -> Work<'static> {
        Work { packed: &b"xxxxxx"[..commands], commands, knows: 0 }
    }

    fn answers_of(call: &WaitingCall) -> Vec<Option<i64>> {
        let CallOutcome::Answered(answers) = call.wait(std::time::Instant::now()) else {
            panic!("no answer")
        };
        let number = |answer| match answer {
            Ok(Value::Int(number)) => Some(number),
            _ => None,
        };
        answers.into_iter().map(number).collect()
    }

    #[test]
    fn replies_go_to_their_callers_and_a_missing_one_is_a_failure() {
        let calls = [1, 3, 2].map(|commands| Arc::new(WaitingCall::new(work(commands))));
        let mut batch = Batch::new(work(2), VecDeque::from(calls.clone()));
        assert_eq!((batch.packed().len(), batch.commands()), (8, 8));
        (0..4).for_each(|number| batch.reply(Ok(Value::Int(number))));
        assert_eq!(answers_of(&calls[0]), [Some(2)]);
        let own = batch.end(Err(Failure::Broken("x".into())));
        assert_eq!(own.as_slice(), [Ok(Value::Int(0)), Ok(Value::Int(1))]);
        assert_eq!(answers_of(&calls[1]), [Some(3), None, None]);
        assert_eq!(answers_of(&calls[2]), [None, None], "the answers of another");
    }

    #[test]
    fn followers_of_a_leader_that_panics_get_a_failure() {
        let (own, other) = (work(1), Arc::new(WaitingCall::new(work(1))));
        let followers = VecDeque::from([Arc::clone(&other)]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _batch = Batch::new(own, followers);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(answers_of(&other), [None]);
    }

    #[cfg(feature = "servers")]
    #[test]
    fn a_dry_run_tells_refusals_and_carries_nothing_out() {
        use crate::net::test_server::{TIMEOUTS, TestServer};
        let server = TestServer::start();
        let commands = [cmd("SET").arg("key").arg("x").to_owned(), cmd("NOSUCH")];
        let answers = dry_run(&server.address(), TIMEOUTS, &commands).expect("answers");
        assert!(matches!(&answers[..], [Ok(_), Err(Failure::Refused { .. })]), "{answers:?}");
        assert_eq!(server.command(&["EXISTS", "key"]), Value::Int(0));
    }
}
