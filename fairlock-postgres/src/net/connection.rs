//! A session: sends flights of statements, and reads their answers.
//!
//! A flight is one write: all its statements cost one round trip. A flight has one or two parts, each with its own Sync. If a
//! statement fails, the server skips the rest of its part.
//!
//! Statements are prepared at their first use, since parsing takes the server three times as long as all else. Behind a pooler in
//! transaction mode each transaction has another session, so statements are parsed each time.
//!
//! After a failure of the stream no more can be read: an answer may still be under way.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fairlock_net::{Endpoint, Stream};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{
    ErrorResponseBody, Header, Message as Received, NoticeResponseBody,
};
use postgres_protocol::message::frontend;

use super::address::Address;
use super::failure::Failure;
use super::statement::{Encoding, Row, Statement};

/// The rows of each statement of a flight.
pub(crate) type Rows = Vec<Vec<Row>>;

/// The most bytes of all answers to what was sent together: a queue of some thousands of waiters is below 1 MB. Few in tests, which
/// reach the end.
const LONGEST: usize = if cfg!(test) { 4 } else { 256 } << 20;

/// A logged-in connection.
pub(crate) struct Connection {
    pub(super) stream: Stream,
    incoming: BytesMut,
    /// How many bytes may still come for what was sent last.
    left: usize,
    /// What other sessions have sent by NOTIFY, and was not asked for yet.
    pub(super) messages: Vec<String>,
    /// Nothing more will come.
    is_over: bool,
    /// Where the server is, and who has logged in, to which database.
    pub(super) endpoint: Endpoint,
    pub(crate) address: Address,
    pub(super) has_tls: bool,
    /// How many round trips there were.
    pub(crate) trips: u64,
    /// The number of the server's process, and the key that cancels what the process does, both from the login.
    pub(super) process: (i32, i32),
    /// How many parts of flights are not answered.
    unready: usize,
    /// Whether a transaction is open, or has failed and is not rolled back.
    pub(super) is_in_transaction: bool,
    /// The texts that the session knows; the number of each text is its name. None if each transaction may have another session.
    pub(super) prepared: Option<Vec<&'static str>>,
    /// How many texts the session knew before the last flight.
    known: usize,
    /// Whether the session's commits did not wait for the server's disk when it was opened.
    pub(crate) is_unsynced: bool,
    /// The encoding of its database.
    pub(super) encoding: Encoding,
    /// Until when the server grants nothing; none if each transaction has to ask. Only a crash changes this, and ends all sessions.
    pub(crate) grace_ends: Option<i64>,
}

impl Connection {
    pub(super) fn new(stream: Stream, endpoint: &Endpoint, address: &Address, has_tls: bool) -> Connection {
        Connection {
            stream,
            incoming: BytesMut::new(),
            left: LONGEST,
            messages: Vec::new(),
            is_over: false,
            endpoint: endpoint.clone(),
            address: address.clone(),
            has_tls,
            trips: 0,
            process: (0, 0),
            unready: 0,
            is_in_transaction: false,
            prepared: None,
            known: 0,
            is_unsynced: false,
            encoding: Encoding::default(),
            grace_ends: None,
        }
    }

    /// Whether the session is this connection's, and stays as it is set up.
    pub(crate) fn is_own_session(&self) -> bool {
        self.prepared.is_some()
    }

    /// Runs these statements in turn, in one round trip. Returns the rows of each.
    ///
    /// # Errors
    /// The failure of the first statement that fails. An open transaction has then failed; otherwise nothing has changed since
    /// the last COMMIT.
    pub(crate) fn flight(&mut self, statements: &[Statement], deadline: Instant) -> Result<Rows, Failure> {
        self.send_parts(&[statements], deadline)?;
        self.answer()
    }

    /// The first row of the only statement.
    pub(crate) fn row(&mut self, statement: Statement, deadline: Instant) -> Result<Row, Failure> {
        let rows = self.flight(&[statement], deadline)?.into_iter().flatten().next();
        rows.ok_or_else(Failure::senseless)
    }

    /// Runs these statements, and sends messages behind them, in the same round trip. Waits for the answer to the messages only for
    /// this much longer: without that answer the connection stays busy.
    pub(crate) fn flight_and_tell(
        &mut self,
        statements: &[Statement],
        messages: &[Statement],
        soon: Duration,
        deadline: Instant,
    ) -> Result<Rows, Failure> {
        self.send_parts(&[statements, messages], deadline)?;
        let done = self.answer(); // from here on a close does not take the messages back
        // Without the statements the messages are no more than an error.
        self.is_busy_at(if done.is_ok() { deadline.min(Instant::now() + soon) } else { deadline });
        done
    }

    /// Sends messages, and waits for no answer. What the server says to them does not matter.
    pub(crate) fn tell(&mut self, messages: &[Statement], deadline: Instant) {
        if self.send_parts(&[messages], deadline).is_ok() {
            self.stream.all_answered();
        }
    }

    /// Runs a text of several statements without values.
    pub(crate) fn script(&mut self, sql: &str, deadline: Instant) -> Result<(), Failure> {
        self.unready += 1;
        self.say(deadline, |out| frontend::query(&at_primary(sql), out))?;
        self.answer().map(drop)
    }

    fn send_parts(&mut self, parts: &[&[Statement]], deadline: Instant) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        self.known = self.prepared.as_ref().map_or(0, Vec::len);
        for part in parts {
            let mut last = None;
            for statement in *part {
                self.write(statement, last.replace(&statement.sql) == Some(&statement.sql), &mut out)?;
            }
            frontend::sync(&mut out);
        }
        self.unready += parts.len();
        self.send(&out, deadline)
    }

    fn write(&mut self, statement: &Statement, is_repeated: bool, out: &mut BytesMut) -> Result<(), Failure> {
        let Statement { sql, values } = statement;
        let (name, is_known) = self.name_of(statement);
        // A statement without a name is known until the next such statement is parsed.
        if !(is_known || is_repeated && name.is_empty()) {
            // Closing a name that is not in use does nothing.
            frontend::close(b'S', &name, out)?;
            frontend::parse(&name, &at_primary(sql), [], out)?;
        }
        let bound = frontend::bind("", &name, [1], values, |value, out| Ok(value.write(out)), [1], out);
        bound.map_err(|_| Failure::invalid("a value is too long"))?;
        frontend::execute("", 0, out)?;
        Ok(())
    }

    /// The name of a statement, and whether the session knows it.
    fn name_of(&mut self, statement: &Statement) -> (String, bool) {
        let (Some(prepared), Cow::Borrowed(text)) = (&mut self.prepared, &statement.sql) else {
            return (String::new(), false);
        };
        let known = prepared.iter().position(|known| known == text);
        let number = known.unwrap_or_else(|| {
            prepared.push(text);
            prepared.len() - 1
        });
        (format!("fl{number}"), known.is_some())
    }

    /// The answer to one part, until the server is ready for the next one.
    fn answer(&mut self) -> Result<Rows, Failure> {
        let (mut answers, mut rows, mut failed) = (Vec::new(), Vec::new(), None);
        loop {
            // Behind the reason for which the server ends a session comes the end of the stream, which says less.
            let received = self.receive().map_err(|ended| failed.take().unwrap_or(ended))?;
            match received {
                Received::DataRow(body) => rows.push(Row::read(&body)?),
                Received::CommandComplete(_) | Received::EmptyQueryResponse => {
                    answers.push(std::mem::take(&mut rows))
                }
                Received::ErrorResponse(body) => failed = failed.or_else(|| Some(self.refused(&body))),
                Received::ReadyForQuery(body) => {
                    self.is_ready(body.status());
                    self.stream.all_answered();
                    failed.iter().for_each(|failure| self.doubt(failure));
                    return failed.map_or(Ok(answers), Err);
                }
                Received::CloseComplete
                | Received::ParseComplete
                | Received::BindComplete
                | Received::NoData
                | Received::RowDescription(_) => {}
                _ => return Err(Failure::senseless()),
            }
        }
    }

    fn is_ready(&mut self, status: u8) {
        self.unready = self.unready.saturating_sub(1);
        self.is_in_transaction = status != b'I';
    }

    /// A statement of the last flight failed. It is unknown which new statements were prepared; a later part may lack a statement
    /// that an earlier part should have prepared. If a statement is missing (26000) or exists already (42P05), a hidden pooler
    /// changes the session each time, or the session has dropped its statements. After a change of a table (0A000) all prepared
    /// statements are out of date.
    fn doubt(&mut self, failure: &Failure) {
        if failure.has_code(&["26000", "42P05"]) {
            self.prepared = None;
        } else if let Some(prepared) = &mut self.prepared {
            prepared.truncate(if failure.has_code(&["0A000"]) { 0 } else { self.known });
        }
    }

    /// Whether the server waits for a request.
    pub(super) fn is_idle(&self) -> bool {
        self.unready == 0 && !self.is_over
    }

    /// Whether the server is still at work on a request.
    pub(crate) fn is_busy(&self) -> bool {
        self.unready > 0 && !self.is_over
    }

    /// Reads until then, and drops what comes. Returns whether the server is still at work.
    pub(super) fn is_busy_at(&mut self, until: Instant) -> bool {
        self.stream.until(until);
        while self.is_busy() {
            match self.next() {
                Ok(Received::ReadyForQuery(body)) => self.is_ready(body.status()),
                Ok(Received::ErrorResponse(body)) => {
                    let failure = self.refused(&body);
                    self.doubt(&failure);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return true,
                Err(_) => self.is_over = true,
            }
        }
        false
    }

    /// Sends what this writes.
    pub(super) fn say(
        &mut self,
        deadline: Instant,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        write(&mut out)?;
        self.send(&out, deadline)
    }

    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Failure> {
        self.trips += 1;
        self.left = LONGEST;
        self.stream.send(bytes, deadline).inspect_err(|_| self.is_over = true)?; // what has arrived of it has no end
        Ok(())
    }

    /// The next message, except those that may come at any time.
    pub(super) fn receive(&mut self) -> Result<Received, Failure> {
        loop {
            let message = self.next()?;
            if let Some(message) = self.sift(message)? {
                return Ok(message);
            }
        }
    }

    /// The next message; a refusal is an error.
    pub(super) fn accept(&mut self) -> Result<Received, Failure> {
        match self.receive()? {
            Received::ErrorResponse(body) => Err(self.refused(&body)),
            message => Ok(message),
        }
    }

    /// Keeps messages of NOTIFY, and drops all else that may come at any time.
    fn sift(&mut self, message: Received) -> Result<Option<Received>, Failure> {
        match message {
            Received::NoticeResponse(body) if is_unconfirmed(&body) => {
                return Err(Failure::broken("the wait for the synchronous standby was cancelled"));
            }
            Received::NoticeResponse(_) | Received::ParameterStatus(_) => {}
            Received::NotificationResponse(body) => self.messages.push(body.message()?.to_owned()),
            message => return Ok(Some(message)),
        }
        Ok(None)
    }

    /// A part of a message stays for the next call.
    pub(super) fn next(&mut self) -> io::Result<Received> {
        loop {
            // Only a whole message is parsed: `parse` reserves the length that the first bytes claim.
            let head = Header::parse(&self.incoming)?;
            if head.is_some_and(|head| self.incoming.len() as u64 > head.len() as u64) {
                return Received::parse(&mut self.incoming)?.ok_or_else(|| ErrorKind::InvalidData.into());
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk) {
                Ok(n) if n > 0 => {
                    let too_long = || io::Error::other("the server's answer has no end");
                    self.left = self.left.checked_sub(n).ok_or_else(too_long)?;
                    self.incoming.extend_from_slice(&chunk[..n]);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => return Err(error),
                failed => {
                    self.is_over = true;
                    return Err(failed.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into()));
                }
            }
        }
    }

    /// Messages of NOTIFY, at least one unless the time is over.
    pub(crate) fn listen(&mut self, until: Instant) -> Result<Vec<String>, Failure> {
        self.stream.until(until);
        self.left = LONGEST;
        while self.messages.is_empty() {
            let message = match self.next() {
                Err(error) if error.kind() == ErrorKind::TimedOut => break,
                message => message?,
            };
            match self.sift(message)? {
                None => {}
                Some(Received::ErrorResponse(body)) => return Err(self.refused(&body)),
                Some(_) => return Err(Failure::senseless()),
            }
        }
        Ok(std::mem::take(&mut self.messages))
    }

    /// The server's words, without a password.
    pub(super) fn refused(&self, body: &ErrorResponseBody) -> Failure {
        let (mut code, mut message) = (String::new(), String::new());
        for field in body.fields().iterator().map_while(Result::ok) {
            let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = value(),
                b'M' => message = self.address.secrets.hide(&value()),
                _ => {}
            }
        }
        let place = format!("database `{}` on {}", self.address.database, self.endpoint);
        Failure::refused_to(&self.address.user, &place, code, message)
    }
}

/// A pooler that spreads reads over standbys (Pgpool-II) sends a statement with this comment to the primary. All of our statements are
/// about what is written there.
fn at_primary(sql: &str) -> Cow<'_, str> {
    if ["select ", "with "].iter().any(|read| sql.starts_with(read)) {
        return Cow::Owned(format!("/*NO LOAD BALANCE*/ {sql}"));
    }
    Cow::Borrowed(sql)
}

/// Whether a commit is said to be done here, and perhaps nowhere else. The words depend on the server's language, and the code is that
/// of any warning; the name of the server's function is neither.
fn is_unconfirmed(body: &NoticeResponseBody) -> bool {
    let mut fields = body.fields().iterator().map_while(Result::ok);
    fields.any(|field| field.type_() == b'R' && field.value_bytes() == b"SyncRepWaitForLSN")
}

#[cfg(test)]
mod tests;
