//! A connection for commands: dropped at its first failure, and opened anew when it is needed.

use std::time::{Duration, Instant};

use redis::Value;

use super::server_clock::ServerClock;
use crate::net::connection::{Connection, Failure};

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
    /// A connection that was idle for longer is pinged first: the server may have closed it (`timeout`, CLIENT KILL, a
    /// restart), and that would only show as a request with an unknown outcome.
    pub(super) const FRESH: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> CommandConnection {
        CommandConnection { con: None, era: 0, knows: 0 }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.con.is_some()
    }

    /// Takes a connection from [`open`](crate::net::connection).
    pub(crate) fn connect(&mut self, con: impl Into<Box<Connection>>) {
        self.con = Some(Open { con: con.into(), used: Instant::now() });
    }

    /// Whether no request that was sent since then was answered on this connection.
    pub(super) fn is_quiet_since(&self, then: Instant) -> bool {
        self.con.as_ref().is_some_and(|open| open.used < then)
    }

    /// Whether the connection's login is about to end.
    pub(super) fn is_login_due(&self, now: Instant) -> bool {
        self.con.as_ref().is_some_and(|open| open.con.is_login_due(now))
    }

    /// The connection, while it is open.
    pub(super) fn open(&mut self) -> Option<&mut Connection> {
        self.con.as_mut().map(|open| &mut *open.con)
    }

    pub(super) fn close(&mut self) {
        self.con = None;
    }

    /// Whether the connection was idle for long, and may be closed; or the clock was not read for long.
    pub(super) fn is_to_be_pinged(&self, now: Instant, clock: &ServerClock) -> bool {
        let is_fresh = |open: &Open| now.saturating_duration_since(open.used) < CommandConnection::FRESH;
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
