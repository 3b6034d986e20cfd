//! A lane: one connection for commands, dropped at the first sign of trouble and never trusted afterwards.

use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd};

use super::Failure;
use super::connection::Replies;

/// A place for a connection. It has none at first, and after a failure.
pub(super) struct Lane {
    con: Option<Connection>,
    used: Instant,
}

impl Lane {
    /// A connection that lay idle for longer is asked for a sign of life first: the server may have closed it
    /// (`timeout`, CLIENT KILL, a restart), and that would only show as a request whose outcome is not known.
    const FRESH: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Lane {
        Lane { con: None, used: Instant::now() }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.con.is_some()
    }

    /// Takes a connection that [`open`](super::connection::open) has proved.
    pub(super) fn connect(&mut self, con: Connection) {
        self.con = Some(con);
        self.used = Instant::now();
    }

    /// As if it had lain idle for long.
    #[cfg(test)]
    pub(super) fn age(&mut self) {
        self.used -= 2 * Lane::FRESH;
    }

    /// Asks a connection that lay idle whether it still lives, and drops it if not.
    ///
    /// # Errors
    /// `NotSent` if the server did not answer in time: then connecting anew would most likely be in vain as well,
    /// and the caller has waited once.
    pub(super) fn refresh(&mut self, limit: Duration) -> Result<(), Failure> {
        if self.con.is_none() || self.used.elapsed() < Lane::FRESH {
            return Ok(());
        }
        let asked = Instant::now();
        // Any reply is a sign of life, also a refusal. A failure has dropped the connection.
        match self.exchange(&cmd("PING").get_packed_command(), 1, limit, |_| {}) {
            Err(failure) if asked.elapsed() > limit / 2 => Err(failure.before_sending()),
            _ => Ok(()),
        }
    }

    /// Writes commands and hands over each reply as it comes in, all within `limit` (and as much again when the
    /// server does not even take what is written).
    ///
    /// # Errors
    /// The link failed, or a signal interrupted the read (one with a time-out is never resumed, and the crate then
    /// counts the reply as owed and skips it). Replies that were not handed over will never come, and what becomes of their commands is
    /// not known; the connection is dropped.
    pub(super) fn exchange(
        &mut self,
        packed: &[u8],
        replies: usize,
        limit: Duration,
        mut reply: impl FnMut(Result<Value, Failure>),
    ) -> Result<(), Failure> {
        // It is out of the lane while it is in use: an early return, or a panic, drops it. Reading on after a time-out
        // would cost another one for each missing reply, writing on after half a command would garble the next.
        let Some(mut con) = self.con.take() else { return Err(Failure::NotSent("not connected".to_owned())) };
        let mut incoming = Replies::limited_until(Instant::now() + limit);
        con.send_packed_command(packed)?;
        let mut limited = false;
        for _ in 0..replies {
            limited |= incoming.limit(&con)?;
            // An error inside an array makes the whole reply a refusal: it can't be used.
            let value = con.recv_response()?;
            reply(value.extract_error().map_err(Failure::from));
        }
        if limited {
            con.set_read_timeout(Some(limit))?;
        }
        self.connect(con);
        Ok(())
    }
}
