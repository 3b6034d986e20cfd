//! One connection to one server. Every step has a deadline: it opens and is returned only once the server has answered on it; commands go
//! out and replies come in.
//!
//! The connection of the `redis` crate has a time-out for each read only, so a reply that drips in would block a caller for
//! ever. Here a reply has one deadline. After any error the connection is unusable, and if a command is unanswered then, it
//! is closed by a reset.

mod address;
mod decoder;
mod failure;

use std::io::Read;
use std::time::{Duration, Instant};

use fairlock_net::{Secrets, Stream};
use redis::{Cmd, Value, cmd};

pub(crate) use address::{Address, AddressMap, MustBe, SERVER_PORT};
pub(crate) use failure::{Failure, Meaning, REPLICA};
pub(crate) use fairlock_net::Timeouts;

use decoder::Decoder;
use failure::{POSTGRES, TLS};

use super::value::{items, text};

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

#[cfg(test)]
mod tests;
