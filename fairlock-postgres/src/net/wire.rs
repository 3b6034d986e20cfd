//! One connection: sends flights of statements, and reads their answers.
//!
//! A flight is one write and one Sync, so all its statements cost one round trip. The server skips what follows a statement that
//! failed. After a failure of the connection it must not be used again: an answer may still be under way.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use bytes::BytesMut;
use fairlock_net::Stream;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorResponseBody, Message as Received, NoticeResponseBody};
use postgres_protocol::message::frontend;

use super::failure::Failure;
use super::rows::Row;
use super::secrets::Secrets;
use super::statement::Statement;

/// The most bytes that one message can have: a line of some thousands of waiters is below 1 MB.
const LONGEST: usize = 256 << 20;

/// What another session has sent by NOTIFY.
#[derive(Debug)]
pub(crate) struct Message(pub(crate) String);

/// A logged-in connection.
pub(crate) struct Connection {
    stream: Stream,
    incoming: BytesMut,
    secrets: Secrets,
    /// Messages that came between answers.
    messages: Vec<Message>,
}

impl Connection {
    pub(super) fn new(stream: Stream, secrets: Secrets) -> Connection {
        Connection { stream, incoming: BytesMut::new(), secrets, messages: Vec::new() }
    }

    /// Runs these statements one after the other, in one round trip. The rows of each.
    ///
    /// # Errors
    /// `Server` from the first that fails; then a transaction that was open is failed, and one that was not has changed nothing
    /// since its last COMMIT.
    pub(crate) fn flight(
        &mut self,
        statements: &[Statement<'_>],
        deadline: Instant,
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let mut out = BytesMut::new();
        for statement in statements {
            write_statement(statement, &mut out)?;
        }
        frontend::sync(&mut out);
        self.send(&out, deadline)?;
        self.answers()
    }

    /// The same, and then others that stand alone, in the same round trip: what the server says to those does not matter.
    pub(crate) fn flight_and(
        &mut self,
        statements: &[Statement<'_>],
        afterwards: &[Statement<'_>],
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        for part in [statements, afterwards] {
            for statement in part {
                write_statement(statement, &mut out)?;
            }
            frontend::sync(&mut out);
        }
        self.send(&out, deadline)?;
        let done = self.answers();
        match self.answers() {
            Ok(_) | Err(Failure::Server { .. }) => done.map(|_| ()),
            Err(broken) => Err(broken),
        }
    }

    /// Runs a text of several statements without values.
    pub(crate) fn script(&mut self, sql: &str, deadline: Instant) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out)?;
        self.send(&out, deadline)?;
        self.answers().map(|_| ())
    }

    /// The rows of all statements, until the server is ready for the next flight.
    fn answers(&mut self) -> Result<Vec<Vec<Row>>, Failure> {
        let (mut answers, mut rows, mut failed) = (Vec::new(), Vec::new(), None);
        loop {
            match self.receive()? {
                Received::DataRow(body) => rows.push(Row::read(&body)?),
                Received::CommandComplete(_) | Received::EmptyQueryResponse => {
                    answers.push(std::mem::take(&mut rows))
                }
                Received::ErrorResponse(body) => {
                    let failure = self.refused(&body);
                    failed.get_or_insert(failure);
                }
                Received::ReadyForQuery(_) => {
                    self.stream.all_answered();
                    return failed.map_or(Ok(answers), Err);
                }
                Received::ParseComplete
                | Received::BindComplete
                | Received::NoData
                | Received::RowDescription(_) => {}
                _ => return Err(Failure::senseless()),
            }
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Failure> {
        Ok(self.stream.send(bytes, deadline)?)
    }

    /// The next message, except those that may come at any time.
    pub(super) fn receive(&mut self) -> Result<Received, Failure> {
        loop {
            match self.next()? {
                Received::NoticeResponse(body) if is_unconfirmed(&body) => {
                    let message = "the wait for the synchronous standby was cancelled".to_owned();
                    return Err(Failure::Broken(message));
                }
                Received::NoticeResponse(_) | Received::ParameterStatus(_) => {}
                Received::NotificationResponse(body) => {
                    self.messages.push(Message(body.message()?.to_owned()))
                }
                message => return Ok(message),
            }
        }
    }

    fn next(&mut self) -> Result<Received, Failure> {
        loop {
            if let Some(message) = Received::parse(&mut self.incoming)? {
                return Ok(message);
            }
            if self.incoming.len() > LONGEST {
                return Err(Failure::senseless());
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk)? {
                0 => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                n => self.incoming.extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// Messages of NOTIFY, at least one unless the time is over. What has come in part stays for the next call.
    pub(crate) fn listen(&mut self, until: Instant) -> Result<Vec<Message>, Failure> {
        self.stream.until(until);
        while self.messages.is_empty() {
            if Instant::now() >= until {
                break;
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(n) => self.incoming.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::TimedOut => break,
                Err(error) => return Err(error.into()),
            }
            while let Some(message) = Received::parse(&mut self.incoming)? {
                match message {
                    Received::NotificationResponse(body) => {
                        self.messages.push(Message(body.message()?.to_owned()));
                    }
                    Received::NoticeResponse(_) | Received::ParameterStatus(_) => {}
                    Received::ErrorResponse(body) => return Err(self.refused(&body)),
                    _ => return Err(Failure::senseless()),
                }
            }
        }
        Ok(std::mem::take(&mut self.messages))
    }

    /// The server's words, without a password.
    pub(super) fn refused(&self, body: &ErrorResponseBody) -> Failure {
        let (mut code, mut message) = (String::new(), String::new());
        let mut fields = body.fields();
        while let Ok(Some(field)) = fields.next() {
            let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = value(),
                b'M' => message = self.secrets.hide(&value()),
                _ => {}
            }
        }
        Failure::Server { code, message }
    }
}

/// Whether a commit is said to be done here, and perhaps nowhere else. The words depend on the server's language, and the code is that
/// of any warning; the name of the server's function is neither.
fn is_unconfirmed(body: &NoticeResponseBody) -> bool {
    let mut fields = body.fields();
    std::iter::from_fn(|| fields.next().ok().flatten())
        .any(|field| field.type_() == b'R' && field.value_bytes() == b"SyncRepWaitForLSN")
}

fn write_statement(statement: &Statement<'_>, out: &mut BytesMut) -> Result<(), Failure> {
    let Statement { sql, values } = statement;
    frontend::parse("", sql, values.iter().map(super::statement::Value::oid), out)?;
    let bound = frontend::bind("", "", [1], values, |value, out| Ok(value.write(out)), [1], out);
    bound.map_err(|_| Failure::Invalid("a value is too long".to_owned()))?;
    frontend::execute("", 0, out)?;
    Ok(())
}
