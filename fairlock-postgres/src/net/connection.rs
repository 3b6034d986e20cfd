//! A session: sends flights of statements, and reads their answers.
//!
//! A flight is one write: all its statements cost one round trip. A flight has one or two parts, each with its own Sync. If a
//! statement fails, the server skips the rest of its part.
//!
//! Statements are prepared at their first use, since parsing takes the server three times as long as all else. Behind a pooler in
//! transaction mode each transaction has another session, so statements are parsed each time.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::message::backend::Message as Received;
use postgres_protocol::message::frontend;

use super::encoding::Encoding;
use super::failure::Failure;
use super::rows::Row;
use super::statement::Statement;
use super::wire::Wire;

/// The rows of each statement of a flight.
pub(crate) type Rows = Vec<Vec<Row>>;

/// A logged-in connection.
pub(crate) struct Connection {
    wire: Wire,
    pub(super) has_tls: bool,
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

impl Deref for Connection {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

impl Connection {
    pub(super) fn new(wire: Wire, has_tls: bool) -> Connection {
        let (process, unready, is_in_transaction, prepared, known) = Default::default();
        let (is_unsynced, encoding, grace_ends) = Default::default();
        Connection {
            wire,
            has_tls,
            process,
            unready,
            is_in_transaction,
            prepared,
            known,
            is_unsynced,
            encoding,
            grace_ends,
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
}

/// A pooler that spreads reads over standbys (Pgpool-II) sends a statement with this comment to the primary. All of our statements are
/// about what is written there.
fn at_primary(sql: &str) -> Cow<'_, str> {
    if ["select ", "with "].iter().any(|read| sql.starts_with(read)) {
        return Cow::Owned(format!("/*NO LOAD BALANCE*/ {sql}"));
    }
    Cow::Borrowed(sql)
}
