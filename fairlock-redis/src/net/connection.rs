//! Opens one connection, within a time, and only hands it out when the server has answered on it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, Value, cmd};

use super::address::Demand;
use super::{Address, Failure};

/// How long the server may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a connection that can be used: TCP, TLS and the greeting together.
    pub(crate) connect: Duration,
    /// For the answers to what one caller sent in one go.
    pub(crate) response: Duration,
}

/// Connects, logs in, and makes sure that the server answers and is ready.
///
/// It takes at most `timeouts.connect`, however many addresses the host has, but for what can't be bounded from
/// here: the look-up of the host's name; a unix socket whose server does not accept; with TLS, each address of a
/// host that has several costs the whole time; and a server that sends its answers drop by drop gets the whole
/// time for each drop of one answer.
///
/// # Errors
/// `Refused` with the server's words (`NOAUTH`, `WRONGPASS`, `LOADING`, …), else `NotSent`.
pub(crate) fn open(address: &Address, timeouts: &Timeouts) -> Result<Connection, Failure> {
    choose_crypto();
    let deadline = Instant::now() + timeouts.connect;
    let opened = connect(address.place(), deadline).and_then(|mut con| {
        greet(&mut con, address, deadline)?;
        con.set_read_timeout(Some(timeouts.response))?;
        con.set_write_timeout(Some(timeouts.response))?;
        Ok(con)
    });
    opened.map_err(Failure::before_sending)
}

fn connect(place: &ConnectionInfo, deadline: Instant) -> Result<Connection, Failure> {
    let ConnectionAddr::Tcp(host, port) = place.addr() else {
        // With TLS the crate has to know the host's name for the certificate.
        return attempt(place.clone(), time_until(deadline));
    };
    let found: Vec<SocketAddr> = match (host.as_str(), *port).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => return Err(Failure::NotSent(format!("the host's name is not known ({error})"))),
    };
    // The crate would give each address the whole time.
    let mut last = Failure::NotSent("the host's name has no address".to_owned());
    for (tried, addr) in found.iter().enumerate() {
        let share = time_until(deadline) / u32::try_from(found.len() - tried).unwrap_or(1);
        let host = match addr {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            addr => addr.ip().to_string(),
        };
        match attempt(place.clone().set_addr(ConnectionAddr::Tcp(host, addr.port())), share) {
            Ok(con) => return Ok(con),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// The crate says nothing to the server here (see [`Address::place`]), so it is done when the socket is connected.
fn attempt(place: ConnectionInfo, time: Duration) -> Result<Connection, Failure> {
    let con = Client::open(place)?.get_connection_with_timeout(at_least_something(time))?;
    // With TLS the first write does the handshake, and so has to have an end.
    con.set_write_timeout(Some(at_least_something(time)))?;
    Ok(con)
}

/// Logs in and asks for a sign of life. A connection that was merely accepted proves nothing: the server may be
/// frozen, loading, or want a password, and would say so (or not) to the first real request.
fn greet(con: &mut Connection, address: &Address, deadline: Instant) -> Result<(), Failure> {
    let mut needed: Vec<Cmd> = Vec::new();
    if let Some((user, password)) = address.credentials() {
        needed.push(cmd("AUTH").arg(user).arg(password).to_owned());
    }
    if address.db() != 0 {
        needed.push(cmd("SELECT").arg(address.db()).to_owned());
    }
    // Before what may be refused: a server that is full or protected answers the first command, whatever it is, with
    // its reason, and hangs up.
    needed.push(cmd("PING"));
    if address.demand() == Demand::Master {
        needed.push(cmd("ROLE"));
    }
    // For those who look at CLIENT LIST. Servers before 7.2 don't know SETINFO, and the user may lack the rights.
    let optional = [
        cmd("CLIENT").arg("SETNAME").arg("fairlock").to_owned(),
        cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("fairlock-redis").to_owned(),
        cmd("CLIENT").arg("SETINFO").arg("LIB-VER").arg(env!("CARGO_PKG_VERSION")).to_owned(),
    ];
    let packed: Vec<u8> = needed.iter().chain(&optional).flat_map(Cmd::get_packed_command).collect();
    let mut replies = Replies::until(deadline);
    replies.limit(con)?;
    con.send_packed_command(&packed)?;
    let mut last = Value::Nil;
    for _ in &needed {
        last = replies.next(con)?.extract_error()?;
    }
    if address.demand() == Demand::Master && !is_master(&last) {
        return Err(Failure::refused("READONLY", "ROLE does not say master"));
    }
    for _ in &optional {
        replies.next(con)?;
    }
    Ok(())
}

/// What ROLE says: `master`, an offset and the replicas.
fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(word)) if word == b"master")
}

/// Reads the replies to one write, all of them before one deadline.
///
/// Left to itself the crate waits one whole read time-out for each missing reply, and after a time-out it skips what
/// it takes for the late reply. So: the first error ends it, and the connection with it.
pub(super) struct Replies {
    deadline: Instant,
    /// When the read time-out was last set to what is left; none when it was not set by us.
    limited: Option<Instant>,
}

impl Replies {
    /// How much later than the deadline it may become.
    const SLACK: Duration = Duration::from_millis(5);

    pub(super) fn until(deadline: Instant) -> Replies {
        Replies { deadline, limited: None }
    }

    /// The same for a connection whose read time-out is what is left until then.
    pub(super) fn limited_until(deadline: Instant) -> Replies {
        Replies { deadline, limited: Some(Instant::now()) }
    }

    /// The next reply; an error reply is a reply.
    pub(super) fn next(&mut self, con: &mut Connection) -> Result<Value, Failure> {
        self.limit(con)?;
        Ok(con.recv_response()?)
    }

    /// Sets the read time-out to what is left, and says whether it did: a system call, saved while replies come in
    /// quickly.
    pub(super) fn limit(&mut self, con: &Connection) -> Result<bool, Failure> {
        let now = Instant::now();
        if self.limited.is_some_and(|then| now.duration_since(then) < Replies::SLACK) {
            return Ok(false);
        }
        let left = self.deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Err(Failure::Broken("no answer in time".to_owned()));
        }
        con.set_read_timeout(Some(left))?;
        self.limited = Some(now);
        Ok(true)
    }
}

fn time_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A time-out of zero is an error to the operating system.
fn at_least_something(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
}

/// Without a provider of its own choice rustls panics at the first connection of a program in which two of them are
/// linked, or none is enabled. A provider that the program installed stays.
#[cfg(feature = "tls-rustls")]
fn choose_crypto() {
    use rustls::crypto::{CryptoProvider, ring};
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been first: then there is one, which is all that is wanted.
        let _ = ring::default_provider().install_default();
    }
}

#[cfg(not(feature = "tls-rustls"))]
fn choose_crypto() {}

#[cfg(test)]
mod tests;
