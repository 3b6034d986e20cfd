//! One connection's two directions: commands go out, replies come in, each within a time and a size.
//!
//! The `redis` crate packs and parses; its own connection has a time-out for each read only, so a reply that drips in
//! or never ends holds a caller for good and fills the memory. Here a reply has one deadline, and what it may take is
//! counted while it comes in. After an error of any kind the connection can't be used any more.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use redis::{Parser, RedisError, Value};

use super::failure::Failure;
use super::socket::Socket;
#[cfg(feature = "tls-rustls")]
use super::tls::Tls;

/// The longest reply. The longest that is meant: the slots of a big cluster whose nodes own them in thousands of
/// pieces, some megabytes.
const BYTES: usize = 16 << 20;
/// The most lines of a reply. Each item has one, and four bytes on the wire may be more than fifty in memory.
const LINES: usize = 1 << 20;

/// What bytes go through.
pub(super) enum Stream {
    Cleartext(Socket),
    #[cfg(feature = "tls-rustls")]
    Tls(Box<Tls>),
}

/// A connection that sends commands and reads replies.
pub(crate) struct Connection {
    stream: Stream,
    parser: Parser,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Connection {
        Connection { stream, parser: Parser::new() }
    }

    /// Writes packed commands, all of it until then.
    pub(crate) fn send(&mut self, packed: &[u8], until: Instant) -> Result<(), Failure> {
        self.stream.socket().until(until);
        self.stream.write_all(packed)?;
        // TLS may still have some of it.
        self.stream.flush()?;
        Ok(())
    }

    /// Reads one reply, which has to be whole by then; an error reply is a reply.
    pub(crate) fn receive(&mut self, until: Instant) -> Result<Value, Failure> {
        self.stream.socket().until(until);
        let mut reader = Metered::new(&mut self.stream, None);
        let reply = self.parser.parse_value(&mut reader);
        let read = reader.read;
        reply.map_err(|error| self.ended(&read, error))
    }

    /// Waits for a message until a time; none if none began to come. One that has begun has to be whole within `limit`.
    ///
    /// If it began together with the one before it and nothing more comes, that looks as if none had: a ping will tell.
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

    /// Why a reply was not read to its end.
    fn ended(&mut self, read: &Size, error: RedisError) -> Failure {
        if let Some(excess) = read.excess() {
            // At once, and what was kept of it as well: it may take a while until the connection is dropped.
            self.stream.socket().shut_down();
            self.parser = Parser::new();
            return Failure::Broken(excess);
        }
        match Failure::from(error) {
            late if late == Failure::no_answer() && read.bytes > 0 => {
                Failure::Broken("an answer began in time and did not end in time".to_owned())
            }
            failure => failure,
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

/// How much has come in for one reply.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    lines: usize,
}

impl Size {
    /// In which way it is too much, if it is.
    fn excess(self) -> Option<String> {
        if self.bytes > BYTES {
            return Some(format!("an answer is longer than {BYTES} bytes"));
        }
        (self.lines > LINES).then(|| format!("an answer has more than {LINES} lines"))
    }
}

/// Counts what comes in, and ends it when that is too much.
struct Metered<'a> {
    stream: &'a mut Stream,
    read: Size,
    /// The time from the first byte on, if the reply's deadline is not set before.
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
