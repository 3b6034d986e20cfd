//! Commands out and replies in over one connection, each within a time.
//!
//! The connection of the `redis` crate has a time-out for each read only, so a reply that drips in would block a caller for
//! ever. Here a reply has one deadline. After any error the connection is unusable, and if a command is unanswered then, it
//! is closed by a reset.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use redis::Value;

use super::decoder::Decoder;
use super::failure::Failure;
use super::secrets::Secrets;
use super::socket::Socket;
#[cfg(feature = "tls-rustls")]
use super::tls::Tls;

/// What carries the bytes.
pub(super) enum Stream {
    Cleartext(Socket),
    #[cfg(feature = "tls-rustls")]
    Tls(Box<Tls>),
}

/// A connection that sends commands and reads replies.
pub(crate) struct Connection {
    replies: Decoder<Stream>,
    secrets: Secrets,
    /// A reply to what was sent may still come.
    is_unanswered: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream, secrets: Secrets) -> Connection {
        Connection { replies: Decoder::new(stream), secrets, is_unanswered: false }
    }

    /// The reply, unless the server refused the command; an error inside an array makes the whole reply a refusal.
    pub(crate) fn answered(&self, reply: Value) -> Result<Value, Failure> {
        reply.extract_error().map_err(|error| Failure::hiding(&self.secrets, error))
    }

    /// Writes packed commands completely until then. [`all_answered`](Self::all_answered) follows the last reply.
    pub(crate) fn send(&mut self, packed: &[u8], until: Instant) -> Result<(), Failure> {
        self.is_unanswered = true;
        self.until(until);
        let stream = self.replies.stream();
        stream.write_all(packed)?;
        // TLS may still buffer some of it.
        stream.flush()?;
        Ok(())
    }

    /// All replies to what was sent have been read.
    pub(crate) fn all_answered(&mut self) {
        self.is_unanswered = false;
    }

    /// Reads one reply, which has to be complete by then; an error reply counts as one.
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
                Err(Failure::Broken("an answer began and did not end in time".to_owned()))
            }
            reply => reply,
        }
    }

    fn until(&mut self, deadline: Instant) {
        self.replies.stream().socket().until(deadline);
    }
}

impl Drop for Connection {
    /// After a plain close the system would go on sending an unanswered command for minutes, and the server would carry it out
    /// long after its repeat on another connection.
    fn drop(&mut self) {
        if self.is_unanswered {
            self.replies.stream().socket().reset_on_close();
        }
    }
}

impl Stream {
    fn socket(&mut self) -> &mut Socket {
        match self {
            Stream::Cleartext(socket) => socket,
            #[cfg(feature = "tls-rustls")]
            Stream::Tls(tls) => tls.get_mut(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Cleartext(socket) => socket.read(buf),
            #[cfg(feature = "tls-rustls")]
            Stream::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Cleartext(socket) => socket.write(buf),
            #[cfg(feature = "tls-rustls")]
            Stream::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Cleartext(socket) => socket.flush(),
            #[cfg(feature = "tls-rustls")]
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

#[cfg(test)]
mod tests;
