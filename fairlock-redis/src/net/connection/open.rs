//! Opens one connection, within a time, and returns it only once the server has answered on it.

use std::time::Instant;

use fairlock_net::{Stream, Timeouts};
use redis::{Cmd, Value, cmd};

use super::address::{Address, MustBe};
use super::failure::Failure;
use super::wire::Connection;
use crate::net::value::{items, text};

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

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
