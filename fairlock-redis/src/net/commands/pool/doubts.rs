//! Whether a connection can still be used: what is asked when it opens and after a pause, and what becomes of the other connections
//! when one leads to a replica, or nowhere.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

use super::{CommandConnection, Pool};
use crate::net::connection::Failure;

/// If connections have to be left again within this time, the address still leads to a replica.
const SOON_AGAIN: Duration = Duration::from_secs(1);

/// What is asked with a greeting or a ping.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    Time,
    Role,
    Greeting,
    /// AUTH, in place of a login that is about to end.
    Login,
}

impl Pool {
    /// Pings a connection that was idle or whose login is about to end, by the questions of a greeting and the next login, and closes it
    /// if that fails. Returns when it looked, or the end of the ping: the next request may begin then. A connection that can't log in
    /// anew stays logged in until the server ends it.
    ///
    /// # Errors
    /// `NotSent` if the server did not answer in time: connecting anew would most likely fail too, and the caller has
    /// waited once.
    pub(super) fn refresh(&self, connection: &mut CommandConnection) -> Result<Instant, Failure> {
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
    pub(super) fn questions(&self) -> (Vec<Ask>, Vec<Cmd>) {
        let role = self.leads_to.question().map(|question| (Ask::Role, question));
        let greeting = self.settings.greeting.as_ref().and_then(|greeting| greeting.question());
        let greeting = greeting.map(|question| (Ask::Greeting, question));
        [(Ask::Time, cmd("TIME"))].into_iter().chain(role).chain(greeting).unzip()
    }

    /// # Errors
    /// `READONLY` of a replica that must not be used.
    pub(super) fn heard(&self, ask: Ask, reply: Result<Value, Failure>) -> Result<(), Failure> {
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
