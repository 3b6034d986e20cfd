//! A connection for commands: dropped at its first failure, and opened anew when it is needed.

use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

use super::server_clock::ServerClock;
use crate::net::connection::{Connection, Failure};

/// A connection that may be missing: at first, and after a failure.
pub(crate) struct CommandConnection {
    /// And when it was used last. In a box, since it goes from thread to thread, several times a call.
    con: Option<(Box<Connection>, Instant)>,
}

impl CommandConnection {
    /// A connection that was idle for longer is pinged first: the server may have closed it (`timeout`, CLIENT KILL, a
    /// restart), and that would only show as a request with an unknown outcome.
    const FRESH: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> CommandConnection {
        CommandConnection { con: None }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.con.is_some()
    }

    /// Takes a connection from [`open`](crate::net::connection::open).
    pub(crate) fn connect(&mut self, con: impl Into<Box<Connection>>) {
        self.con = Some((con.into(), Instant::now()));
    }

    /// Pings an idle connection by asking for the time, and drops it if that fails. Another one too, if the clock was not read for
    /// long. A question may go with the ping. Returns when it looked, or the end of the ping: the next request may begin then.
    ///
    /// # Errors
    /// `NotSent` if the server did not answer in time: connecting anew would most likely fail too, and the caller has
    /// waited once.
    pub(super) fn refresh(
        &mut self,
        limit: Duration,
        clock: &ServerClock,
        question: impl FnOnce() -> Option<Cmd>,
        mut answer: impl FnMut(Result<Value, Failure>),
    ) -> Result<Instant, Failure> {
        let asked = Instant::now();
        let is_fresh = |used| asked.saturating_duration_since(used) < CommandConnection::FRESH;
        if self.con.as_ref().is_none_or(|(_, used)| is_fresh(*used) && !clock.is_old(asked)) {
            return Ok(asked);
        }
        let questions: Vec<Cmd> = [cmd("TIME")].into_iter().chain(question()).collect();
        let packed: Vec<u8> = questions.iter().flat_map(Cmd::get_packed_command).collect();
        let mut is_time = true;
        // Any reply will do, even a refusal. A failure has dropped the connection.
        let hear = |reply: Result<Value, Failure>| {
            if std::mem::take(&mut is_time) {
                _ = reply.map(|time| clock.heard(&time));
            } else {
                answer(reply);
            }
        };
        let pinged = self.exchange(&packed, questions.len(), asked, limit, hear);
        let now = Instant::now();
        match pinged {
            Err(failure) if now - asked > limit / 2 => Err(failure.before_sending()),
            _ => Ok(now),
        }
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
        let Some((mut con, _)) = self.con.take() else {
            return Err(Failure::NotSent("not connected".to_owned()));
        };
        let (until, late) = (asked + limit, |failure: Failure| failure.within_response(limit));
        con.send(packed, until).map_err(late)?;
        for _ in 0..replies {
            let received = con.receive(until).map_err(late)?;
            reply(con.answered(received));
        }
        con.all_answered();
        self.con = Some((con, asked));
        Ok(())
    }
}
