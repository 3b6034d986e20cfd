//! A connection: one connection for commands, dropped at the first sign of trouble and never trusted afterwards.

use std::time::{Duration, Instant};

use redis::{Value, cmd};

use crate::net::connection::{Connection, Failure};

/// A place for a connection. It has none at first, and after a failure.
pub(crate) struct CommandConnection {
    con: Option<Connection>,
    used: Instant,
}

impl CommandConnection {
    /// A connection that lay idle for longer is asked for a sign of life first: the server may have closed it
    /// (`timeout`, CLIENT KILL, a restart), and that would only show as a request whose outcome is not known.
    const FRESH: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> CommandConnection {
        CommandConnection { con: None, used: Instant::now() }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.con.is_some()
    }

    /// Takes a connection that [`open`](crate::net::connection::open) has proved.
    pub(crate) fn connect(&mut self, con: Connection) {
        self.con = Some(con);
        self.used = Instant::now();
    }

    /// As if it had lain idle for long.
    #[cfg(test)]
    pub(crate) fn age(&mut self) {
        self.used -= 2 * CommandConnection::FRESH;
    }

    /// Asks a connection that lay idle whether it still lives, and drops it if not.
    ///
    /// # Errors
    /// `NotSent` if the server did not answer in time: then connecting anew would most likely be in vain as well,
    /// and the caller has waited once.
    pub(crate) fn refresh(&mut self, limit: Duration) -> Result<(), Failure> {
        if self.con.is_none() || self.used.elapsed() < CommandConnection::FRESH {
            return Ok(());
        }
        let asked = Instant::now();
        // Any reply is a sign of life, also a refusal. A failure has dropped the connection.
        match self.exchange(&cmd("PING").get_packed_command(), 1, limit, |_| {}) {
            Err(failure) if asked.elapsed() > limit / 2 => Err(failure.before_sending()),
            _ => Ok(()),
        }
    }

    /// Writes commands and hands over each reply as it comes in, all within `limit`.
    ///
    /// # Errors
    /// The link failed, or a reply was late or too long. Replies that were not handed over will never come, and what
    /// becomes of their commands is not known; the connection is dropped.
    pub(crate) fn exchange(
        &mut self,
        packed: &[u8],
        replies: usize,
        limit: Duration,
        mut reply: impl FnMut(Result<Value, Failure>),
    ) -> Result<(), Failure> {
        // It is out of the connection while it is in use: an early return, or a panic, drops it. Reading on after a time-out
        // would cost another one for each missing reply, writing on after half a command would garble the next.
        let Some(mut con) = self.con.take() else { return Err(Failure::NotSent("not connected".to_owned())) };
        let until = Instant::now() + limit;
        con.send(packed, until)?;
        for _ in 0..replies {
            // An error inside an array makes the whole reply a refusal: it can't be used.
            reply(con.receive(until)?.extract_error().map_err(Failure::from));
        }
        self.connect(con);
        Ok(())
    }
}
