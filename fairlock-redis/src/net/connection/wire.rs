//! Commands out and replies in over one connection, each within a time.
//!
//! The connection of the `redis` crate has a time-out for each read only, so a reply that drips in would block a caller for
//! ever. Here a reply has one deadline. After any error the connection is unusable, and if a command is unanswered then, it
//! is closed by a reset.

use std::time::{Duration, Instant};

use fairlock_net::{Secrets, Stream};
use redis::Value;

use super::decoder::Decoder;
use super::failure::Failure;

/// A connection that sends commands and reads replies.
pub(crate) struct Connection {
    replies: Decoder<Stream>,
    secrets: Secrets,
    /// When the connection should log in anew, if its login has an end.
    renew_at: Option<Instant>,
}

impl Connection {
    pub(super) fn new(stream: Stream, secrets: Secrets) -> Connection {
        Connection { replies: Decoder::new(stream), secrets, renew_at: None }
    }

    /// Notes when to log in anew.
    pub(crate) fn logged_in(&mut self, renew_at: Option<Instant>) {
        self.renew_at = renew_at;
    }

    /// Whether the login is about to end.
    pub(crate) fn is_login_due(&self, now: Instant) -> bool {
        self.renew_at.is_some_and(|at| at <= now)
    }

    /// From now on the server's words may have these.
    pub(crate) fn hide(&mut self, secrets: Secrets) {
        self.secrets = secrets;
    }

    /// The reply, unless the server refused the command; an error inside an array makes the whole reply a refusal.
    pub(crate) fn answered(&self, reply: Value) -> Result<Value, Failure> {
        reply.extract_error().map_err(|error| Failure::hiding(&self.secrets, &error))
    }

    /// Writes packed commands completely until then. [`all_answered`](Self::all_answered) follows the last reply.
    pub(crate) fn send(&mut self, packed: &[u8], until: Instant) -> Result<(), Failure> {
        Ok(self.replies.stream().send(packed, until)?)
    }

    /// Notes that all replies to what was sent have been read.
    pub(crate) fn all_answered(&mut self) {
        self.replies.stream().all_answered();
    }

    /// Reads one reply, which may be an error reply. The reply has to be complete at `until`.
    pub(crate) fn receive(&mut self, until: Instant) -> Result<Value, Failure> {
        self.until(until);
        self.replies.wait()?;
        self.rest()
    }

    /// Waits for a message until then; none if none began to arrive. One that has begun has to be complete within `limit`.
    pub(crate) fn receive_message(
        &mut self,
        until: Instant,
        limit: Duration,
    ) -> Result<Option<Value>, Failure> {
        self.until(until);
        match self.replies.wait().map_err(Failure::from) {
            Err(late) if late == Failure::no_answer() => return Ok(None),
            waited => waited?,
        }
        self.until(Instant::now() + limit);
        self.rest().map(Some)
    }

    /// A reply of which a byte has arrived.
    fn rest(&mut self) -> Result<Value, Failure> {
        match self.replies.reply() {
            Err(late) if late == Failure::no_answer() => {
                Err(Failure::Broken("an answer began and did not end in time".into()))
            }
            reply => reply,
        }
    }

    fn until(&mut self, deadline: Instant) {
        self.replies.stream().until(deadline);
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
