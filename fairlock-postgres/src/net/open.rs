//! Opens one connection to the first of the hosts that takes writes, within a time.

use std::io::Read;
use std::time::Instant;

use bytes::BytesMut;
use fairlock_core::backend::{BackendErrorKind, Logins};
use fairlock_net::{Endpoint, Stream, TlsSettings};
use postgres_protocol::message::frontend;

use super::address::Address;
use super::connection::Connection;
use super::encoding::Encoding;
use super::failure::Failure;
use super::login::log_in;
use super::statement::Statement;
use super::tls::{self, Asked, Mode};
use super::wire::Wire;
use crate::sql::OPENED;

/// Each host gets a fair part of the time that is left. A host that takes no writes is passed over.
///
/// # Errors
/// The error of the last host that may recover, or else of the last host. `InvalidConfig` of any host that refuses before it
/// tells its role: the other hosts would refuse as well.
pub(crate) fn open(address: &Address, deadline: Instant) -> Result<Connection, Failure> {
    let mut failed: Option<Failure> = None;
    for (tried, endpoint) in address.endpoints.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(address.endpoints.len() - tried).unwrap_or(1);
        let by = Instant::now() + share;
        let failure = match log_in_at(endpoint, address, by) {
            Ok(con) => match taking_writes(con, by) {
                Ok(con) => return Ok(con),
                Err(failure) => failure.at(endpoint),
            },
            Err(failure) if failure.kind == BackendErrorKind::InvalidConfig => return Err(failure),
            Err(failure) => failure,
        };
        if failure.kind != BackendErrorKind::InvalidConfig || failed.is_none() {
            failed = Some(failure);
        }
    }
    Err(failed.unwrap_or_else(|| Failure::invalid("the address names no host")))
}

/// A session at this host, whatever its role.
pub(crate) fn log_in_at(
    endpoint: &Endpoint,
    address: &Address,
    deadline: Instant,
) -> Result<Connection, Failure> {
    let log_in = |stream, has_tls| {
        // Only now: while the server is away nobody is asked for a login.
        let as_user = address.logged_in(deadline)?;
        let mut con = Connection::new(Wire::new(stream, endpoint, &as_user), has_tls);
        log_in(&mut con, &as_user, deadline).map_err(|failure| as_user.refused(failure, has_tls))?;
        as_user.logins.iter().for_each(Logins::accepted);
        if has_tls {
            as_user.tls.changeover.accepted();
        }
        Ok(con)
    };
    let without = || log_in(Stream::connect(endpoint, deadline)?, false);
    let (mode, settings) = (address.tls.mode_at(endpoint), &address.tls.settings);
    let with = || match tls::ask(Stream::connect(endpoint, deadline)?, endpoint, settings, deadline)? {
        Ok(Asked::Secured(stream)) => log_in(stream, true),
        Ok(Asked::HasNone(stream)) if mode == Mode::Prefer => log_in(stream, false),
        Ok(Asked::HasNone(_)) => Err(Failure::of_tls("the server has no TLS")),
        Err(failure) if mode == Mode::Prefer && !tls::is_of_a_file(&failure, settings) => without(),
        Err(failure) => Err(failure.into()),
    };
    let logged_in = match mode {
        Mode::Never => without(),
        Mode::Always => with(),
        Mode::Allow => without().or_else(|failure| if is_for_tls(&failure) { with() } else { Err(failure) }),
        Mode::Prefer => with().or_else(|failure| if is_for_tls(&failure) { without() } else { Err(failure) }),
    };
    logged_in.map_err(|failure| {
        let may_pass = failure.is_of_tls() && address.tls.changeover.may_pass();
        let failure = if may_pass { failure.passing() } else { failure };
        failure.at(endpoint)
    })
}

/// Whether the server refuses sessions with TLS, or without TLS: by a line of pg_hba.conf, or in PgBouncer's words.
fn is_for_tls(failure: &Failure) -> bool {
    failure.has_code(&["28000", "08P01"])
}

fn taking_writes(mut con: Connection, deadline: Instant) -> Result<Connection, Failure> {
    // Parsed each time, since nothing is known of the session yet.
    let row = con.row(Statement::new(&OPENED, [i64::from(con.process.0).into()]), deadline)?;
    if row.flag(0)? {
        return Err(Failure::broken("it takes no writes: it is a standby"));
    }
    if row.flag(1)? {
        let what = "it takes no writes: default_transaction_read_only is on for the server, the database or the user";
        return Err(Failure::invalid(what));
    }
    con.is_unsynced = row.flag(3)?;
    con.encoding = Encoding::of(row.text(4)?);
    // A pooler has another number than the session, and may give the connection another session after each transaction.
    con.prepared = (row.count(2)? == con.process.0).then(Vec::new);
    Ok(con)
}

/// Asks the server to cancel what this session does. It is done, or there was nothing to cancel, when the server closes.
pub(super) fn cancel(con: &Connection, settings: &TlsSettings, deadline: Instant) -> Result<(), Failure> {
    let ((process, key), endpoint) = (con.process, &con.endpoint);
    if process == 0 {
        return Ok(());
    }
    let mut stream = Stream::connect(endpoint, deadline)?;
    if con.has_tls {
        let (Asked::Secured(asked) | Asked::HasNone(asked)) =
            tls::ask(stream, endpoint, settings, deadline)??;
        stream = asked;
    }
    let mut out = BytesMut::new();
    frontend::cancel_request(process, key, &mut out);
    stream.send(&out, deadline)?;
    let said = stream.read(&mut [0])?;
    stream.all_answered();
    if said == 0 { Ok(()) } else { Err(Failure::senseless()) }
}
