//! One connection: sends flights of statements, and reads their answers.
//!
//! A flight is one write, so all its statements cost one round trip. It has parts, each with its own Sync: the server skips what
//! follows in the part of a statement that failed. After a failure of the connection it must not be used again: an answer may still be
//! under way.
//!
//! Statements are prepared at their first use, since parsing takes the server three times as long as all else. A pooler in
//! transaction mode gives each transaction another session, which does not know them, so they are parsed each time there.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fairlock_net::{Endpoint, Secrets, Stream};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorResponseBody, Message as Received, NoticeResponseBody};
use postgres_protocol::message::frontend;

use super::encoding::Encoding;
use super::failure::Failure;
use super::rows::Row;
use super::statement::Statement;

/// The most bytes that one message can have: a line of some thousands of waiters is below 1 MB.
const LONGEST: usize = 256 << 20;

/// Makes the commit of this transaction wait for the disk.
const SYNC: &str =
    "select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'";

/// The rows of each statement of a part.
pub(crate) type Rows = Vec<Vec<Row>>;

/// A logged-in connection.
pub(crate) struct Connection {
    stream: Stream,
    incoming: BytesMut,
    secrets: Secrets,
    /// Who has logged in, and to which database, for errors.
    pub(crate) user: String,
    pub(crate) database: String,
    /// Where the server is.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) has_tls: bool,
    /// What other sessions have sent by NOTIFY, and was not asked for yet.
    messages: Vec<String>,
    /// How many round trips there were.
    #[cfg(test)]
    pub(crate) trips: u64,
    /// The number of the server's process, and the key by which what it does can be cancelled, as told at the login.
    pub(super) process: Option<(i32, i32)>,
    /// How many parts of flights are not answered.
    unready: usize,
    /// How many texts the session knew before the last flight.
    known: usize,
    /// Nothing more will come.
    is_over: bool,
    /// Whether a transaction is open, also a failed one.
    pub(super) is_in_transaction: bool,
    /// The texts that the session knows; the number of each is its name. None where it may be another session each time.
    pub(super) prepared: Option<Vec<&'static str>>,
    /// Whether its commits did not wait for the server's disk when it was opened.
    pub(crate) is_unsynced: bool,
    /// Whether it sees to it, in each transaction, that commits do.
    pub(super) syncs: bool,
    /// The encoding of its database.
    pub(super) encoding: Encoding,
    /// Until when the server grants nothing; none if that is to be asked each time. A crash, after which that changes, ends all sessions.
    pub(crate) grace_ends: Option<i64>,
}

impl Connection {
    pub(super) fn new(stream: Stream, secrets: Secrets) -> Connection {
        Connection {
            stream,
            incoming: BytesMut::new(),
            secrets,
            user: String::new(),
            database: String::new(),
            endpoint: None,
            has_tls: false,
            messages: Vec::new(),
            #[cfg(test)]
            trips: 0,
            process: None,
            unready: 0,
            known: 0,
            is_over: false,
            is_in_transaction: false,
            prepared: None,
            is_unsynced: false,
            syncs: false,
            encoding: Encoding::default(),
            grace_ends: None,
        }
    }

    /// Whether the session is this connection's, and stays as it is set up.
    pub(crate) fn is_own_session(&self) -> bool {
        self.prepared.is_some()
    }

    /// Runs these statements one after the other, in one round trip. The rows of each.
    ///
    /// # Errors
    /// `Server` from the first that fails; then a transaction that was open is failed, and one that was not has changed nothing
    /// since its last COMMIT.
    pub(crate) fn flight(&mut self, statements: &[Statement], deadline: Instant) -> Result<Rows, Failure> {
        self.flights(&[statements], deadline)?.pop().unwrap_or_else(|| Err(Failure::senseless()))
    }

    /// The first row of the only statement.
    pub(crate) fn row(&mut self, statement: Statement, deadline: Instant) -> Result<Row, Failure> {
        let rows = self.flight(&[statement], deadline)?.into_iter().flatten().next();
        rows.ok_or_else(Failure::senseless)
    }

    /// Runs these parts one after the other, in one round trip. What each came to: one that fails does not keep the others from being
    /// run.
    ///
    /// # Errors
    /// Only of the connection.
    pub(crate) fn flights(
        &mut self,
        parts: &[&[Statement]],
        deadline: Instant,
    ) -> Result<Vec<Result<Rows, Failure>>, Failure> {
        self.send_parts(parts, deadline)?;
        let mut answers = parts.iter().map(|_| self.answers()).collect::<Result<Vec<_>, _>>()?;
        self.stream.all_answered();
        for (answer, part) in answers.iter_mut().zip(parts) {
            if let (Ok(rows), Some(at)) = (answer, self.syncs_at(part)) {
                rows.remove(at);
            }
        }
        if let Some(first) = answers.iter().find_map(|answer| answer.as_ref().err()) {
            self.doubt(first);
        }
        Ok(answers)
    }

    /// Runs these statements, and sends messages behind them, in the same round trip. It waits for the answer to the messages only for this
    /// much longer: if it is busy then, that has not come.
    pub(crate) fn flight_and_tell(
        &mut self,
        statements: &[Statement],
        messages: &[Statement],
        soon: Duration,
        deadline: Instant,
    ) -> Result<(), Failure> {
        self.send_parts(&[statements, messages], deadline)?;
        let done = self.answers()?;
        // Without the statements the messages are no more than an error.
        let until = if done.is_ok() { deadline.min(Instant::now() + soon) } else { deadline };
        if done.is_ok() {
            self.stream.all_answered(); // so that a close does not take the messages back
        }
        self.is_busy_at(until);
        if let Err(failure) = &done {
            self.stream.all_answered();
            self.doubt(failure);
        }
        done.map(drop)
    }

    /// Sends messages, and waits for no answer. What the server says to them does not matter.
    pub(crate) fn tell(&mut self, messages: &[Statement], deadline: Instant) {
        if self.send_parts(&[messages], deadline).is_ok() {
            self.stream.all_answered();
        }
    }

    fn send_parts(&mut self, parts: &[&[Statement]], deadline: Instant) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        self.known = self.prepared.as_ref().map_or(0, Vec::len);
        for part in parts {
            let (before, after) = part.split_at(self.syncs_at(part).unwrap_or(part.len()));
            for statement in before {
                self.write(statement, &mut out)?;
            }
            if self.syncs_at(part).is_some() {
                self.write(&Statement::new(SYNC, []), &mut out)?;
            }
            for statement in after {
                self.write(statement, &mut out)?;
            }
            frontend::sync(&mut out);
        }
        self.unready += parts.len();
        self.send(&out, deadline)
    }

    /// Where in this part it sees to it that the commit waits for the disk: behind all that asks whether the server has forgotten commits,
    /// which depends on the setting. A part that begins no transaction and ends one has an earlier part that has done so.
    fn syncs_at(&self, part: &[Statement]) -> Option<usize> {
        let commits = part.last().is_some_and(|last| last.sql == "commit");
        let begins = part.first().is_some_and(|first| first.sql.starts_with("begin"));
        (self.syncs && (begins || !commits)).then(|| part.len() - usize::from(commits))
    }

    /// A statement of the last flight failed. Which of the new ones were prepared is not known, and a later part has missed one that an
    /// earlier one was to prepare. After a table was altered none is as it was.
    fn doubt(&mut self, failure: &Failure) {
        if failure.is_of_another_session() {
            self.prepared = None;
        } else if let Some(prepared) = &mut self.prepared {
            prepared.truncate(if failure.is_of_an_altered_table() { 0 } else { self.known });
        }
    }

    fn write(&mut self, statement: &Statement, out: &mut BytesMut) -> Result<(), Failure> {
        let Statement { sql, values } = statement;
        let (name, is_known) = self.name_of(statement);
        if !is_known {
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

    /// Runs a text of several statements without values.
    pub(crate) fn script(&mut self, sql: &str, deadline: Instant) -> Result<(), Failure> {
        self.unready += 1;
        self.say(deadline, |out| frontend::query(&at_primary(sql), out))?;
        let answer = self.answers()?;
        self.stream.all_answered();
        answer.map(|_| ())
    }

    /// The answer to one part, until the server is ready for the next one.
    fn answers(&mut self) -> Result<Result<Rows, Failure>, Failure> {
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
                Received::ReadyForQuery(body) => {
                    self.unready = self.unready.saturating_sub(1);
                    self.is_in_transaction = body.status() != b'I';
                    return Ok(failed.map_or(Ok(answers), Err));
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

    /// Sends one message.
    pub(super) fn say(
        &mut self,
        deadline: Instant,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        write(&mut out)?;
        self.send(&out, deadline)
    }

    fn send(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Failure> {
        #[cfg(test)]
        {
            self.trips += 1;
        }
        self.stream.send(bytes, deadline).inspect_err(|_| self.is_over = true)?; // what has arrived of it has no end
        Ok(())
    }

    /// Whether it can be used for more.
    pub(super) fn is_of_use(&self) -> bool {
        !self.is_over
    }

    /// Whether the server is still at what it was asked for.
    pub(super) fn is_busy(&self) -> bool {
        self.unready > 0 && !self.is_over
    }

    /// Reads on until then, and drops what comes. Whether the server is still at it.
    pub(super) fn is_busy_at(&mut self, until: Instant) -> bool {
        self.stream.until(until);
        while self.is_busy() {
            match self.next() {
                Ok(Received::ReadyForQuery(body)) => {
                    self.unready -= 1;
                    self.is_in_transaction = body.status() != b'I';
                }
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

    /// The next message, except those that may come at any time.
    fn receive(&mut self) -> Result<Received, Failure> {
        loop {
            let message = self.next()?;
            if let Some(message) = self.sift(message)? {
                return Ok(message);
            }
        }
    }

    /// The same, where a refusal is an error.
    pub(super) fn accept(&mut self) -> Result<Received, Failure> {
        match self.receive()? {
            Received::ErrorResponse(body) => Err(self.refused(&body)),
            message => Ok(message),
        }
    }

    /// Keeps what was sent by NOTIFY, and drops what else may come at any time.
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

    /// What has come in part stays for the next call.
    fn next(&mut self) -> io::Result<Received> {
        loop {
            if let Some(message) = Received::parse(&mut self.incoming)? {
                return Ok(message);
            }
            if self.incoming.len() > LONGEST {
                return Err(io::Error::other("the server's answer has no end"));
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk) {
                Ok(n) if n > 0 => self.incoming.extend_from_slice(&chunk[..n]),
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

    /// Drops messages that came between answers: a pooler may lend a session that listens for another client.
    pub(super) fn forget_messages(&mut self) {
        self.messages.clear();
    }

    /// The server's words, without a password.
    fn refused(&self, body: &ErrorResponseBody) -> Failure {
        let (mut code, mut message) = (String::new(), String::new());
        for field in body.fields().iterator().map_while(Result::ok) {
            let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = value(),
                b'M' => message = self.secrets.hide(&value()),
                _ => {}
            }
        }
        let host = self.endpoint.as_ref().map_or_else(String::new, |endpoint| format!(" on {endpoint}"));
        Failure::refused_to(&self.user, &format!("database `{}`{host}", self.database), code, message)
    }
}

/// A pooler that spreads reads over standbys (Pgpool-II) sends one with this comment to the primary. All of ours are about what is written
/// there.
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
