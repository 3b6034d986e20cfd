//! Commands out and replies in over one connection, each within a time and a size.
//!
//! The `redis` crate packs and parses. Its own connection has a time-out for each read only, so a reply that drips in or
//! never ends would block a caller for ever and fill the memory. Here a reply has one deadline, and its size is counted
//! as it arrives. After any error the connection is unusable, and if a command is unanswered then, it is closed by a reset.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use redis::{Parser, RedisError, Value};

use super::failure::Failure;
use super::secrets::Secrets;
use super::socket::Socket;
#[cfg(feature = "tls-rustls")]
use super::tls::Tls;

/// The longest reply. The longest useful one has some megabytes: the slots of a big cluster, in thousands of pieces.
const BYTES: usize = 16 << 20;
/// The most lines of a reply. Each item has one, and four bytes on the wire may take more than fifty in memory.
const LINES: usize = 1 << 20;

/// What carries the bytes.
pub(super) enum Stream {
    Cleartext(Socket),
    #[cfg(feature = "tls-rustls")]
    Tls(Box<Tls>),
}

/// A connection that sends commands and reads replies.
pub(crate) struct Connection {
    stream: Stream,
    parser: Parser,
    secrets: Secrets,
    /// A reply to what was sent may still come.
    is_unanswered: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream, secrets: Secrets) -> Connection {
        Connection { stream, parser: Parser::new(), secrets, is_unanswered: false }
    }

    /// The reply, unless the server refused the command; an error inside an array makes the whole reply a refusal.
    pub(crate) fn answered(&self, reply: Value) -> Result<Value, Failure> {
        reply.extract_error().map_err(|error| Failure::hiding(&self.secrets, error))
    }

    /// Writes packed commands completely until then. [`all_answered`](Self::all_answered) follows the last reply.
    pub(crate) fn send(&mut self, packed: &[u8], until: Instant) -> Result<(), Failure> {
        self.is_unanswered = true;
        self.stream.socket().until(until);
        self.stream.write_all(packed)?;
        // TLS may still buffer some of it.
        self.stream.flush()?;
        Ok(())
    }

    /// All replies to what was sent have been read.
    pub(crate) fn all_answered(&mut self) {
        self.is_unanswered = false;
    }

    /// Reads one reply, which has to be complete by then; an error reply counts as one.
    pub(crate) fn receive(&mut self, until: Instant) -> Result<Value, Failure> {
        self.stream.socket().until(until);
        let mut reader = Metered::new(&mut self.stream, None);
        let reply = self.parser.parse_value(&mut reader);
        let read = reader.read;
        reply.map_err(|error| self.ended(&read, error))
    }

    /// Waits for a message until then; none if none began to arrive. One that has begun has to be complete within `limit`.
    ///
    /// A message that began in the same read as the one before it, and then stalls, looks as if none had begun; the next
    /// ping finds out.
    pub(crate) fn receive_message(
        &mut self,
        until: Instant,
        limit: Duration,
    ) -> Result<Option<Value>, Failure> {
        self.stream.socket().until(until);
        let mut reader = Metered::new(&mut self.stream, Some(limit));
        let message = self.parser.parse_value(&mut reader);
        let read = reader.read;
        match message {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_timeout() && read.bytes == 0 => Ok(None),
            Err(error) => Err(self.ended(&read, error)),
        }
    }

    /// Why a reply was not read completely.
    fn ended(&mut self, read: &Size, error: RedisError) -> Failure {
        if let Some(excess) = read.excess() {
            // Frees the memory at once: it may take a while until the connection is dropped.
            self.stream.socket().shut_down();
            self.parser = Parser::new();
            return Failure::Broken(excess);
        }
        match Failure::hiding(&self.secrets, error) {
            late if late == Failure::no_answer() && read.bytes > 0 => {
                Failure::Broken("an answer began in time and did not end in time".to_owned())
            }
            failure => failure,
        }
    }
}

impl Drop for Connection {
    /// After a plain close the system would go on sending an unanswered command for minutes, and the server would carry it out
    /// long after its repeat on another connection.
    fn drop(&mut self) {
        if self.is_unanswered {
            self.stream.socket().reset_on_close();
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

/// How much of a reply has arrived.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    lines: usize,
}

impl Size {
    /// How it exceeds the limits, if it does.
    fn excess(self) -> Option<String> {
        if self.bytes > BYTES {
            return Some(format!("an answer is longer than {BYTES} bytes"));
        }
        (self.lines > LINES).then(|| format!("an answer has more than {LINES} lines"))
    }
}

/// Counts what arrives, and fails when it is too much.
struct Metered<'a> {
    stream: &'a mut Stream,
    read: Size,
    /// The time from the first byte on, if the reply has no deadline yet.
    limit: Option<Duration>,
}

impl<'a> Metered<'a> {
    fn new(stream: &'a mut Stream, limit: Option<Duration>) -> Metered<'a> {
        Metered { stream, read: Size::default(), limit }
    }
}

impl Read for Metered<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buf)?;
        if read > 0
            && let Some(limit) = self.limit.take()
        {
            self.stream.socket().until(Instant::now() + limit);
        }
        self.read.bytes += read;
        self.read.lines += buf[..read].iter().filter(|byte| **byte == b'\n').count();
        self.read.excess().map_or(Ok(read), |excess| Err(io::Error::other(excess)))
    }
}

#[cfg(test)]
mod tests;
