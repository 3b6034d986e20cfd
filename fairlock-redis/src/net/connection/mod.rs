//! One connection to one server. Every step has a deadline: it opens and is returned only once the server has answered on it; commands go
//! out; replies come in as bytes (RESP 2), and their values are read strictly.
//!
//! The connection of the `redis` crate has a time-out for each read only, so a reply that drips in would block a caller for
//! ever. Here a reply has one deadline. After any error the connection is unusable, and if a command is unanswered then, it
//! is closed by a reset.

mod address;
mod failure;

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_net::{Secrets, Stream};
use redis::{Cmd, Value, cmd};

pub(crate) use address::{Address, AddressMap, MustBe, SERVER_PORT};
pub(crate) use failure::{Failure, Meaning, REPLICA};
pub(crate) use fairlock_net::Timeouts;

use failure::{POSTGRES, TLS};

/// Connects, logs in, and checks that the server answers and is ready.
///
/// It takes at most `timeouts.connect`, however many addresses the host has, and however slowly the name server and the
/// server answer.
///
/// # Errors
/// `Refused` with the server's words (`NOAUTH`, `WRONGPASS`, `LOADING`, …), else `NotSent`.
pub(crate) fn open(address: &Address, timeouts: &Timeouts) -> Result<Connection, Failure> {
    open_and_ask(address, timeouts, &[]).map(|(con, _)| con)
}

/// The same with questions that go along with the greeting, and their answers; an error is one, too.
pub(crate) fn open_and_ask(
    address: &Address,
    timeouts: &Timeouts,
    questions: &[Cmd],
) -> Result<(Connection, Vec<Result<Value, Failure>>), Failure> {
    let deadline = Instant::now() + timeouts.connect;
    let opened = connect(address, deadline).and_then(|stream| {
        // Only now: while the server is away nobody is asked for a login.
        let (as_user, renew_at) = address.logged_in(deadline)?;
        let mut con = Connection::new(stream, as_user.secrets());
        let answers =
            greet(&mut con, &as_user, questions, deadline).map_err(|failure| as_user.refused(failure))?;
        as_user.was_accepted();
        con.logged_in(renew_at);
        Ok((con, answers))
    });
    let opened = opened
        .map_err(|failure| address.not_opened(failure).before_sending().within_connect(timeouts.connect));
    if address.has_only_a_user() { opened.map_err(Failure::without_password) } else { opened }
}

fn connect(address: &Address, deadline: Instant) -> Result<Stream, Failure> {
    let to = address.reached(deadline)?;
    let stream =
        Stream::connect(&to, deadline).map_err(|failure| address.not_reached(failure.into(), &to))?;
    match (to.host(), &address.tls) {
        (Some(host), Some(settings)) => Ok(stream.secure_with(host, settings)?),
        _ => Ok(stream),
    }
}

/// Logs in and pings. An accepted connection proves nothing: the server may be frozen, loading, or require a password, and
/// the first real request would find out.
fn greet(
    con: &mut Connection,
    address: &Address,
    questions: &[Cmd],
    deadline: Instant,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let mut needed: Vec<Cmd> = address.auth().into_iter().collect();
    if address.db != 0 {
        needed.push(cmd("SELECT").arg(address.db).to_owned());
    }
    // Before the commands that may be refused: a full or protected server answers the first command, whatever it is, with
    // its reason, and closes the connection.
    needed.push(cmd("PING"));
    let role = (address.must_be != MustBe::Anything).then(|| cmd("ROLE"));
    // For operators who read CLIENT LIST. Servers before 7.2 lack SETINFO, and the user may lack the rights.
    let optional = [
        cmd("CLIENT").arg("SETNAME").arg("fairlock").to_owned(),
        cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("fairlock-redis").to_owned(),
        cmd("CLIENT").arg("SETINFO").arg("LIB-VER").arg(env!("CARGO_PKG_VERSION")).to_owned(),
    ];
    let all = needed.iter().chain(&role).chain(&optional).chain(questions);
    let packed: Vec<u8> = all.flat_map(Cmd::get_packed_command).collect();
    con.send(&packed, deadline)?;
    for _ in &needed {
        let reply = con.receive(deadline)?;
        con.answered(reply)?;
    }
    if role.is_some() {
        let reply = con.receive(deadline)?;
        let told = con.answered(reply).map(|reply| Role::read(&reply));
        if told == Ok(Role::Replica) {
            return Err(Role::refused());
        }
        if address.must_be == MustBe::Master && told? != Role::Master {
            return Err(Failure::refused("READONLY", "ROLE does not say master"));
        }
    }
    for _ in &optional {
        con.receive(deadline)?;
    }
    let mut answers = Vec::with_capacity(questions.len());
    for _ in questions {
        let reply = con.receive(deadline)?;
        answers.push(con.answered(reply));
    }
    con.all_answered();
    Ok(answers)
}

/// What a server says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Master,
    Replica,
    Other,
}

impl Role {
    /// Reads the reply to ROLE: `master` or `slave`, and more about the replication.
    pub(crate) fn read(reply: &Value) -> Role {
        let first = items(reply).ok().and_then(|parts| text(parts.first()?).ok());
        match first {
            Some("master") => Role::Master,
            Some("slave") => Role::Replica,
            _ => Role::Other,
        }
    }

    /// The failure of a connection that would lead to a replica.
    pub(crate) fn refused() -> Failure {
        Failure::refused("READONLY", "ROLE says slave")
    }
}

/// A connection that sends commands and reads replies.
pub(crate) struct Connection {
    replies: Decoder<Stream>,
    secrets: Secrets,
    /// When the connection should log in anew, if its login has an end.
    renew_at: Option<Instant>,
}

impl Connection {
    fn new(stream: Stream, secrets: Secrets) -> Connection {
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

/// PostgreSQL's SSLRequest, which it answers by one letter: S, or N without TLS.
const ASKS_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// A greeting by TLS 1.2 with one cipher, which is answered by a handshake or an alert: the first byte is 22 or 21.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03fairlock asks what listens there\x00\x00\x02\xc0\x2f\x01\x00";

/// The failure of a first contact. It says what listens there, as far as that can be told, if the connection was closed without a word.
/// Redis never does that; PostgreSQL and a port with TLS do, and so does a proxy whose server is away.
pub(crate) fn told_apart(failure: Failure, address: &Address, timeouts: &Timeouts) -> Failure {
    if !failure.was_closed() || address.tls.is_some() || address.host().is_none() {
        return failure;
    }
    let deadline = Instant::now() + timeouts.connect;
    let first_byte = |question: &[u8]| {
        let mut stream = Stream::connect(&*address.reached(deadline).ok()?, deadline).ok()?;
        stream.send(question, deadline).ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).ok()?;
        Some(answer[0])
    };
    match first_byte(&ASKS_FOR_TLS) {
        Some(b'S' | b'N') => return Failure::refused(POSTGRES, "answers"),
        // A server of another kind, or one that is busy.
        Some(_) => return failure,
        None => {}
    }
    match first_byte(HELLO) {
        Some(21 | 22) => Failure::refused(TLS, "answers"),
        _ => failure,
    }
}

/// The longest reply. The longest useful one has some megabytes: the slots of a big cluster, in thousands of pieces.
const BYTES: usize = 16 << 20;
/// The most lines of a reply. Each item has one, and four bytes on the wire may take more than fifty in memory.
const LINES: usize = 1 << 20;
/// How deep arrays may be nested, as in `redis`.
const DEPTH: usize = 99;
/// For how many bytes or items memory is reserved before they have arrived: a length may be a lie.
const RESERVED: usize = 256;

/// Reads replies from a stream, one after the other. After an error it can't be used: the rest of a reply would be read as the
/// next reply.
///
/// Own code, since no crate is good enough: the parser of `redis` zeroes a fresh buffer at each read and took half of a cycle's
/// instructions; `redis-protocol` begins a partial reply anew at each read, and an endless nesting overflows its stack.
/// Error replies are rare and have many forms, so they are left to `redis`.
struct Decoder<S> {
    input: BufReader<S>,
    /// The line that was read last, with its end.
    line: Vec<u8>,
    /// How much of the limits is left for this reply.
    bytes_left: usize,
    lines_left: usize,
}

impl<S: Read> Decoder<S> {
    fn new(stream: S) -> Decoder<S> {
        Decoder { input: BufReader::new(stream), line: Vec::new(), bytes_left: 0, lines_left: 0 }
    }

    fn stream(&mut self) -> &mut S {
        self.input.get_mut()
    }

    /// Waits for the first byte of a reply, or for the end of the stream.
    fn wait(&mut self) -> io::Result<()> {
        self.input.fill_buf().map(drop)
    }

    /// Reads one reply; an error reply counts as one.
    fn reply(&mut self) -> Result<Value, Failure> {
        (self.bytes_left, self.lines_left) = (BYTES, LINES);
        self.value(DEPTH)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        self.read_line()?;
        let Some((kind, text)) = self.line[..self.line.len() - 2].split_first() else {
            return Err(Failure::garbled("an empty line"));
        };
        match kind {
            b':' => Ok(Value::Int(digits(text)?)),
            b'+' if text == b"OK" => Ok(Value::Okay),
            b'+' => Ok(Value::SimpleString(characters(text)?.to_owned())),
            b'-' => {
                characters(text)?;
                redis::parse_redis_value(&self.line).map_err(|_| Failure::garbled("an error has no form"))
            }
            b'$' => match length(text)? {
                Some(length) => Ok(Value::BulkString(self.bulk(length)?)),
                None => Ok(Value::Nil),
            },
            b'*' => match length(text)? {
                Some(length) => self.array(length, depth),
                None => Ok(Value::Nil),
            },
            _ => Err(Failure::garbled("no reply begins so")),
        }
    }

    /// Reads a line. A bare LF is a part of the line, as in `redis`.
    fn read_line(&mut self) -> Result<(), Failure> {
        self.lines_left = self.lines_left.checked_sub(1).ok_or_else(too_many_lines)?;
        self.line.clear();
        while !self.line.ends_with(b"\r\n") {
            let arrived = self.input.fill_buf()?;
            let end = arrived.iter().position(|byte| *byte == b'\n').map_or(arrived.len(), |at| at + 1);
            self.line.extend_from_slice(&arrived[..end]);
            self.input.consume(end);
            self.read(end)?;
        }
        Ok(())
    }

    fn bulk(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let whole = length.saturating_add(2);
        let mut bytes = Vec::with_capacity(whole.min(RESERVED));
        // One more than is allowed shows that there are too many.
        let most = whole.min(self.bytes_left + 1);
        let read = (&mut self.input).take(most as u64).read_to_end(&mut bytes)?;
        self.read(read)?;
        if read < whole {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        if !bytes.ends_with(b"\r\n") {
            return Err(Failure::garbled("a text has another length"));
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn array(&mut self, length: usize, depth: usize) -> Result<Value, Failure> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Failure::garbled("too many arrays within arrays"));
        };
        let mut items = Vec::with_capacity(length.min(RESERVED));
        for _ in 0..length {
            items.push(self.value(depth)?);
        }
        Ok(Value::Array(items))
    }

    /// Counts what was read; nothing is read at the stream's end only.
    fn read(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes == 0 {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        let too_long = || Failure::Broken(format!("an answer is longer than {BYTES} bytes").into());
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }
}

fn too_many_lines() -> Failure {
    Failure::Broken(format!("an answer has more than {LINES} lines").into())
}

fn characters(text: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(text).map_err(|_| Failure::garbled("a line is no text"))
}

fn digits(text: &[u8]) -> Result<i64, Failure> {
    match text {
        // Quicker than a text's `parse`, and exact: these are less than 10 to the 18th.
        [b'0'..=b'9', rest @ ..] if rest.len() < 18 && rest.iter().all(u8::is_ascii_digit) => {
            Ok(text.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0')))
        }
        _ => characters(text)?.parse().map_err(|_| Failure::garbled("a number was expected")),
    }
}

/// A length; none if there is no value.
fn length(text: &[u8]) -> Result<Option<usize>, Failure> {
    digits(text).map(|length| usize::try_from(length).ok())
}

pub(crate) fn items(value: &Value) -> Result<&[Value], BackendError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(unintelligible(other)),
    }
}

pub(crate) fn text(value: &Value) -> Result<&str, BackendError> {
    let text = match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    };
    text.ok_or_else(|| unintelligible(value))
}

pub(crate) fn number(value: &Value) -> Result<i64, BackendError> {
    match value {
        Value::Int(number) => Ok(*number),
        other => text(other)?.parse().map_err(|_| unintelligible(other)),
    }
}

/// The reply to TIME, in microseconds since 1970.
pub(crate) fn micros(time: &Value) -> Result<u64, BackendError> {
    let [seconds, micros] = items(time)? else { return Err(unintelligible(time)) };
    let micros = number(seconds)?.saturating_mul(1_000_000).saturating_add(number(micros)?);
    Ok(u64::try_from(micros).unwrap_or(0))
}

/// A field of the reply to INFO.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The error for a reply with an unknown shape, which must never pass for "granted" or "free".
pub(crate) fn unintelligible(reply: &Value) -> BackendError {
    let shown: String = format!("{reply:?}").chars().take(100).collect();
    BackendError::new(BackendErrorKind::Unavailable, format!("the server's reply makes no sense: {shown}"))
}

#[cfg(test)]
mod tests;
