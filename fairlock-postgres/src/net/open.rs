//! How a client comes to a database: opens one connection to the first of the hosts that takes writes, within a time, with TLS or without,
//! and with a login; then makes the tables, or says whether the client may use them.

use std::io::Read;
use std::time::Instant;

use bytes::BytesMut;
use fairlock_core::backend::{BackendErrorKind, Logins};
use fairlock_net::{Endpoint, Stream, TlsFailure, TlsSettings};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::address::{Address, Mode};
use super::connection::Connection;
use super::failure::{Failure, identifier};
use super::statement::{Encoding, OPENED, Statement};

/// The most rounds of hashing that a server may ask for. PostgreSQL asks for 4,096 unless it is set up otherwise; a million take a
/// second, which no deadline ends.
const MOST_ROUNDS: u32 = 1_000_000;

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
        let mut con = Connection::new(stream, endpoint, &as_user, has_tls);
        start(&mut con, &as_user, deadline).map_err(|failure| as_user.refused(failure, has_tls))?;
        as_user.logins.iter().for_each(Logins::accepted);
        if has_tls {
            as_user.tls.changeover.accepted();
        }
        Ok(con)
    };
    let without = || log_in(Stream::connect(endpoint, deadline)?, false);
    let (mode, settings) = (address.tls.mode_at(endpoint), &address.tls.settings);
    let with = || match ask_for_tls(Stream::connect(endpoint, deadline)?, endpoint, settings, deadline)? {
        Ok(Asked::Secured(stream)) => log_in(stream, true),
        Ok(Asked::HasNone(stream)) if mode == Mode::Prefer => log_in(stream, false),
        Ok(Asked::HasNone(_)) => Err(Failure::of_tls("the server has no TLS")),
        Err(failure) if mode == Mode::Prefer && !is_of_a_file(&failure, settings) => without(),
        Err(failure) => Err(failure.into()),
    };
    let logged_in = match mode {
        Mode::Never => without(),
        Mode::Always => with(),
        Mode::Allow => without().or_else(|failure| if is_for_tls(&failure) { with() } else { Err(failure) }),
        Mode::Prefer => with().or_else(|failure| if is_for_tls(&failure) { without() } else { Err(failure) }),
    };
    logged_in.map_err(|failure| {
        let may_pass = failure.is_of_tls && address.tls.changeover.may_pass();
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

/// What a server answers to a request for TLS.
enum Asked {
    Secured(Stream),
    /// The server has no TLS, and goes on without it.
    HasNone(Stream),
}

/// Asks the server for TLS, and shakes hands.
///
/// # Errors
/// `TlsFailure` if the handshake fails, or can't begin.
fn ask_for_tls(
    mut stream: Stream,
    endpoint: &Endpoint,
    settings: &TlsSettings,
    deadline: Instant,
) -> Result<Result<Asked, TlsFailure>, Failure> {
    let Some(host) = endpoint.host() else { return Ok(Ok(Asked::HasNone(stream))) };
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    stream.send(&out, deadline)?;
    // One byte and no more: what came behind it in cleartext would be taken for the server's.
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    stream.all_answered();
    match &answer {
        b"S" => Ok(stream.secure_with(host, settings).map(Asked::Secured)),
        b"N" => Ok(Ok(Asked::HasNone(stream))),
        _ => Err(Failure::of_tls("the server has no TLS")),
    }
}

/// Whether a file of the settings is at fault, which no other way to connect mends.
fn is_of_a_file(failure: &TlsFailure, settings: &TlsSettings) -> bool {
    matches!(failure, TlsFailure::NotBegun(_)) && !settings.names_no_file()
}

/// Starts the session: parameters, and the password as the server asks for it. A pooler refuses other parameters than these, so all else
/// is set in transactions.
pub(super) fn start(con: &mut Connection, address: &Address, deadline: Instant) -> Result<(), Failure> {
    let mut parameters = vec![
        ("user", address.user.as_str()),
        ("database", &address.database),
        ("client_encoding", "UTF8"),
        ("application_name", &address.application_name),
    ];
    parameters.extend(address.options.as_deref().map(|options| ("options", options)));
    con.say(deadline, |out| frontend::startup_message(parameters, out))?;
    loop {
        match con.accept()? {
            Message::AuthenticationOk => {}
            Message::BackendKeyData(body) => con.process = (body.process_id(), body.secret_key()),
            Message::ReadyForQuery(_) => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                let password = password_of(address)?.as_bytes();
                con.say(deadline, |out| frontend::password_message(password, out))?;
            }
            Message::AuthenticationMd5Password(body) => {
                let (user, password) = (address.user.as_bytes(), password_of(address)?.as_bytes());
                let hashed = md5_hash(user, password, body.salt());
                con.say(deadline, |out| frontend::password_message(hashed.as_bytes(), out))?;
            }
            Message::AuthenticationSasl(body) => scram(con, address, &body, deadline)?,
            _ => {
                let message = "the server asks for an unsupported kind of login: SCRAM, md5 and passwords are supported";
                return Err(Failure::invalid(message));
            }
        }
    }
}

fn scram(
    con: &mut Connection,
    address: &Address,
    body: &AuthenticationSaslBody,
    deadline: Instant,
) -> Result<(), Failure> {
    if !body.mechanisms().any(|mechanism| Ok(mechanism == SCRAM_SHA_256))? {
        return Err(Failure::invalid("the server asks for a SASL login other than SCRAM-SHA-256"));
    }
    let mut scram = ScramSha256::new(password_of(address)?.as_bytes(), ChannelBinding::unsupported());
    con.say(deadline, |out| frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out))?;
    let Message::AuthenticationSaslContinue(body) = con.accept()? else { return Err(Failure::senseless()) };
    let mut fields = body.data().split(|byte| *byte == b',');
    let rounds = fields.find_map(|field| str::from_utf8(field.strip_prefix(b"i=")?).ok()?.parse().ok());
    if rounds.is_some_and(|rounds: u32| rounds > MOST_ROUNDS) {
        let message = format!("the server asks for more than {MOST_ROUNDS} rounds of SCRAM");
        return Err(Failure::invalid(message));
    }
    scram.update(body.data())?;
    con.say(deadline, |out| frontend::sasl_response(scram.message(), out))?;
    let Message::AuthenticationSaslFinal(body) = con.accept()? else { return Err(Failure::senseless()) };
    Ok(scram.finish(body.data())?) // the server has to prove that it knows the password, too
}

fn password_of(address: &Address) -> Result<&str, Failure> {
    let message = "the server asks for a password, and the address has none";
    address.password.as_deref().ok_or_else(|| Failure::new(BackendErrorKind::Denied, message))
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
            ask_for_tls(stream, endpoint, settings, deadline)??;
        stream = asked;
    }
    let mut out = BytesMut::new();
    frontend::cancel_request(process, key, &mut out);
    stream.send(&out, deadline)?;
    let said = stream.read(&mut [0])?;
    stream.all_answered();
    if said == 0 { Ok(()) } else { Err(Failure::senseless()) }
}

/// The layout that this version writes. Its number says which clients may use the tables (`docs/versions.md`).
///
/// `least_client` is the oldest layout whose clients may write to the tables:
///
/// | the database has | the client |
/// | --- | --- |
/// | no layout, or an older one | refuses, and names the command that helps |
/// | its own layout | works |
/// | a newer layout that the client's layout may still write to | works |
/// | a newer layout that the client's layout may not write to | refuses |
///
/// A migration that raises `least_client` gives `fairlock.lock` another name: so the next statement of each client that is connected
/// fails, and the client looks at the number ([`explained`]).
pub(crate) const LAYOUT: i32 = 1;

const SCHEMA: &str = include_str!("../../sql/schema.sql");

/// Two clients that migrate at the same moment would fail, so they take turns. DDL waits for old transactions, and later transactions
/// wait behind the DDL: so the DDL gives up soon.
const BEGIN_TO_MIGRATE: &str = "begin isolation level read committed; set local lock_timeout = '2s'";
const FIRST: &str = "select pg_advisory_xact_lock(7378700441894417)";
const RIGHTS: &str = include_str!("../../sql/rights.sql");

/// What `migrate` runs, for a transaction of another program, which keeps its own time-outs; and the rights that `migrate` does not
/// give, for those whose roles may not.
pub(crate) fn migration() -> String {
    format!("{FIRST};\n{SCHEMA}{RIGHTS}")
}

/// Makes the tables, or brings them to this version's layout, in one transaction, when a program asks for that: connecting changes nothing.
/// Does nothing if the tables are up to date: even
/// DDL without effect waits for each transaction on the tables, and all later ones wait behind.
pub(crate) fn migrate(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    match migrate_on(con, deadline) {
        Err(failure) if failure.has_code(&["55P03"]) => {
            let message = "another transaction uses fairlock's tables, or makes them, for more than 2 s: try again when it has ended";
            Err(Failure::broken(message))
        }
        // The SQL makes what is missing, but for parts of what is there.
        Err(failure) if failure.is_of_missing_table() => {
            let message = "the schema `fairlock` has a table or a function that lacks something that fairlock's own has: it is another \
                           program's, or half restored; drop it, or use another database";
            Err(Failure::invalid(message))
        }
        done => done,
    }
}

fn migrate_on(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    con.script(&format!("{BEGIN_TO_MIGRATE}; {FIRST}"), deadline)?;
    let there = "select to_regclass('fairlock.meta') is not null";
    if con.row(Statement::new(there, []), deadline)?.flag(0)? {
        let rows = con.flight(&[Statement::new("select layout from fairlock.meta", [])], deadline)?;
        let layout = rows.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| row.count(0))?;
        if layout >= LAYOUT {
            return if layout > LAYOUT { Err(newer(layout)) } else { Ok(()) };
        }
    }
    con.script(SCHEMA, deadline).map_err(|failure| match failure.has_code(&["42501"]) {
        true => failure.advising(who_may(con)),
        false => failure,
    })?;
    con.script("commit", deadline)
}

/// Who may make the tables.
fn who_may(con: &Connection) -> String {
    let Address { user, database, .. } = &con.address;
    let [to, database] = [user, database].map(|name| identifier(name));
    format!(
        "user {user} may not make fairlock's tables (`grant create on database {database} to {to}`); another user may run what \
         `fairlock migrate --print` prints"
    )
}

/// Looks whether this client may use the tables.
///
/// # Errors
/// `InvalidConfig` if the tables have to be migrated first, `Unsupported` if a newer version has made them.
pub(crate) fn check(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    let sql = "select layout, least_client from fairlock.meta";
    let rows = con.flight(&[Statement::new(sql, [])], deadline)?;
    let Some(row) = rows.first().and_then(|rows| rows.first()) else {
        let what = "the table fairlock.meta has no row, which names the layout: `fairlock migrate --postgres URL` writes it, or \
                    PostgresBackend::migrate";
        return Err(Failure::invalid(what));
    };
    let (layout, least_client) = (row.count(0)?, row.count(1)?);
    if layout < LAYOUT {
        return Err(Failure::invalid(format!(
            "the database has layout {layout} of fairlock's tables, and this version needs {LAYOUT}: run `fairlock migrate \
             --postgres URL`, or the backend's `migrate`"
        )));
    }
    if least_client > LAYOUT {
        return Err(newer(layout));
    }
    Ok(())
}

/// The failure of a statement. If that has found no table, a newer version may have migrated the tables since this client connected.
pub(super) fn explained(con: &mut Connection, failure: Failure, deadline: Instant) -> Failure {
    if !failure.is_of_missing_table() {
        return failure;
    }
    let asked = con.script("rollback", deadline).and_then(|()| check(con, deadline));
    asked.err().filter(|why| why.kind == BackendErrorKind::Unsupported).unwrap_or(failure)
}

fn newer(layout: i32) -> Failure {
    let message = format!(
        "the database has layout {layout} of fairlock's tables, and this version knows them up to {LAYOUT}: use a newer version of \
         fairlock"
    );
    Failure::new(BackendErrorKind::Unsupported, message)
}
