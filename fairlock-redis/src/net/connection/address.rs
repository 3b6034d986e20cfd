//! Where a server is and which user logs in: URLs, parsed strictly, and shown without user and password; and how a program reaches the
//! servers that others announce.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;
use std::{fmt, thread};

use fairlock_core::backend::{BackendError, BackendErrorKind, Login, Logins};
use fairlock_net::{
    Changeover, Endpoint, Identity, Secrets, TlsSettings, Trust, bare_delimiter, percent_decoded,
};
use redis::{Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, cmd};

use super::failure::Failure;

pub(crate) const SERVER_PORT: u16 = 6379;

/// A server that was named by a URL. `Debug` and `Display` show host and port (or the path) and the database.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) endpoint: Endpoint,
    /// Only over TCP.
    pub(crate) tls: Option<TlsSettings>,
    changeover: Changeover,
    /// Why the TLS of a client of the crate redis can't be taken over: the program has to give a configuration.
    pub(crate) hidden_tls: Option<&'static str>,
    user: Option<String>,
    password: Option<String>,
    /// Gives each connection its login, in place of the password above, and of the user if it names one.
    logins: Option<Logins>,
    pub(crate) db: i64,
    shown: String,
    /// Before a connection is used: a replica still answers reads, and would report a held lock as free.
    pub(crate) must_be: MustBe,
    /// The server that announced this address; none for the user's own.
    announced_by: Option<Arc<str>>,
    pub(crate) map: Option<AddressMap>,
}

/// Which role the server has to have by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MustBe {
    Anything,
    /// A server that does not tell may be a master.
    NoReplica,
    Master,
}

impl Address {
    /// Reads `redis://[user][:password@]host[:port][/db]`, `rediss://…` (feature `tls`) with
    /// `[?sslrootcert=…&sslcert=…&sslkey=…]`, `unix:///path` or
    /// `redis+unix:///path`, both with `[?db=…&user=…&pass=…]`; the scheme may say `valkey` instead of `redis`.
    /// User and password are percent-decoded.
    ///
    /// # Errors
    /// `InvalidConfig`, which names the wrong part and never repeats any of the URL: a password that was not
    /// percent-encoded may have ended up in any part of it.
    pub(crate) fn parse(url: &str) -> Result<Address, BackendError> {
        Address::parse_with(url, SERVER_PORT)
    }

    /// The same with another port for a host that stands without one.
    pub(crate) fn parse_with(url: &str, port: u16) -> Result<Address, BackendError> {
        Address::read(url, port)
            .map_err(|what| refuse(&format!("the server's address can't be read: {what}")))
    }

    /// The address, login and database of a client of the crate `redis`.
    ///
    /// # Errors
    /// `InvalidConfig` for TLS without the feature.
    #[cfg(feature = "redis-1")]
    pub(crate) fn of(info: &ConnectionInfo) -> Result<Address, BackendError> {
        Address::of_client(info)
            .map_err(|what| refuse(&format!("the client's settings can't be used: {what}")))
    }

    fn read(url: &str, default_port: u16) -> Result<Address, Cow<'static, str>> {
        if url.is_empty() {
            return Err("it is empty".into());
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err("it has no scheme such as redis://".into());
        };
        let unix = matches!(scheme, "unix" | "redis+unix" | "valkey+unix");
        let tls = matches!(scheme, "rediss" | "valkeys");
        if !unix && !tls && !matches!(scheme, "redis" | "valkey") {
            let schemes = "redis, rediss, valkey, valkeys, unix, redis+unix, redis+sentinel, redis+cluster (for postgres:// take PostgresBackend)";
            return Err(format!("the scheme is none of {schemes}").into());
        }
        if tls && cfg!(not(feature = "tls")) {
            return Err("a TLS connection needs the feature tls".into());
        }
        if !unix && let Some(bare) = bare_delimiter(rest) {
            return Err(bare.into());
        }
        let (before, options) = rest.split_once('?').filter(|_| !unix).unwrap_or((rest, ""));
        let settings = tls_settings(options)?;
        if !tls && settings.is_some() {
            return Err(
                "it has no TLS: write rediss for redis, or leave out sslrootcert, sslcert and sslkey".into(),
            );
        }
        // The crate is built without TLS and would refuse the scheme.
        let without_tls = if unix { url.to_owned() } else { format!("redis://{before}") };
        let mut parsed = redis::parse_redis_url(&without_tls).ok_or_else(|| unreadable(rest))?;
        match parsed.fragment() {
            None => {}
            Some("insecure") => {
                return Err("certificates are always checked, #insecure is not supported".into());
            }
            Some(_) => return Err("there is a # in it; in a password write %23".into()),
        }
        if unix {
            if parsed.has_authority() && parsed.authority() != "" {
                let what = "a socket's path stands after three slashes, user and password in ?user=…&pass=…";
                return Err(what.into());
            }
            if parsed.query_pairs().any(|(name, _)| !matches!(&*name, "db" | "user" | "pass")) {
                return Err("for a socket only db, user and pass can be set after the ?".into());
            }
        } else if parsed.port().is_none() {
            // An error means that there is no host, which the crate says as well.
            let _ = parsed.set_port(Some(default_port));
        }
        let database = match unix {
            true => parsed.query_pairs().find(|(name, _)| name == "db").map(|(_, db)| db.into_owned()),
            false => Some(parsed.path().trim_matches('/').to_owned()).filter(|db| !db.is_empty()),
        };
        database.map_or(Ok(()), |database| check_database(&database))?;
        let info = parsed.into_connection_info().map_err(|error| wrong_part(&error))?;
        let tls = tls.then(|| settings.unwrap_or_default());
        Address::of_client(&info).map(|address| Address { tls, ..address })
    }

    /// Where a client of the crate `redis` connects to, and as whom.
    fn of_client(info: &ConnectionInfo) -> Result<Address, Cow<'static, str>> {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.to_owned(), port };
        let (endpoint, tls, hidden_tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (tcp(host, *port), None, None),
            ConnectionAddr::Unix(path) => (Endpoint::Unix(path.clone()), None, None),
            ConnectionAddr::TcpTls { .. } if cfg!(not(feature = "tls")) => {
                return Err("a TLS connection needs the feature tls".into());
            }
            ConnectionAddr::TcpTls { host, port, insecure, tls_params } => {
                let hidden = match tls_params {
                    _ if *insecure => Some("it does not check certificates"),
                    Some(_) => Some("it has certificates of its own, which the crate redis does not show"),
                    None => None,
                };
                (tcp(host, *port), Some(TlsSettings::default()), hidden)
            }
            _ => return Err("the way to the server is not supported".into()),
        };
        let own = info.redis_settings();
        let (user, password) = (own.username().map(str::to_owned), own.password().map(str::to_owned));
        let (db, logins, must_be) = (own.db(), None, MustBe::Anything);
        let shown = shown(&endpoint, db);
        let (announced_by, map) = (None, None);
        Ok(Address {
            endpoint,
            tls,
            changeover: Changeover::default(),
            hidden_tls,
            user,
            password,
            logins,
            db,
            shown,
            must_be,
            announced_by,
            map,
        })
    }

    /// The address with the login of a connection that opens, and when the connection should log in anew.
    ///
    /// # Errors
    /// `NotSent` if there is no login until then.
    pub(super) fn logged_in(&self, until: Instant) -> Result<(Address, Option<Instant>), Failure> {
        let Some(logins) = &self.logins else { return Ok((self.clone(), None)) };
        let login = logins.get(until);
        login
            .map(|login| self.by(&login))
            .map_err(|cause| Failure::NotSent(format!("no login: {cause}").into()))
    }

    /// The same for a connection whose login is about to end; none while there is no other login. It does not block.
    pub(crate) fn next_login(&self) -> Option<(Address, Option<Instant>)> {
        Some(self.by(&self.logins.as_ref()?.next()?))
    }

    fn by(&self, login: &Login) -> (Address, Option<Instant>) {
        let user = login.user().map(str::to_owned).or_else(|| self.user.clone());
        let password = Some(login.password().to_owned());
        (Address { user, password, ..self.clone() }, login.renew_at())
    }

    /// The server has accepted the login, and the certificates were accepted before.
    pub(crate) fn was_accepted(&self) {
        self.logins.iter().for_each(Logins::accepted);
        if self.tls.is_some() {
            self.changeover.accepted();
        }
    }

    /// The failure of a connection that opens. It is an outage while certificates may be about to change.
    pub(super) fn not_opened(&self, failure: Failure) -> Failure {
        let may_pass = failure.is_of_certificate() && self.changeover.may_pass();
        if may_pass { Failure::NotSent(failure.text()) } else { failure }
    }

    /// The failure of a connection that opens or logs in again. If the login was refused, the failure names the user, and is an outage
    /// while the password may be about to change.
    pub(crate) fn refused(&self, failure: Failure) -> Failure {
        if !failure.is_of_login() || self.has_only_a_user() {
            return failure;
        }
        // What stands before the colon in an address may be the beginning of a password that was not encoded.
        let failure = match &self.user {
            None => failure.of_user("default"),
            Some(user) if self.logins.is_some() => failure.of_user(user),
            Some(_) => failure,
        };
        match &self.logins {
            Some(logins) if logins.refused() => {
                let what = "if the password is being changed, the next connection asks `login` for it again";
                Failure::NotSent(format!("{failure}; {what}").into())
            }
            _ => failure,
        }
    }

    /// AUTH, if there is a login.
    pub(crate) fn auth(&self) -> Option<Cmd> {
        self.credentials().map(|(user, password)| cmd("AUTH").arg(user).arg(password).to_owned())
    }

    /// The arguments of AUTH: none, a password, or a user and a password (empty for a user without one).
    pub(crate) fn credentials(&self) -> Option<(Option<&str>, &str)> {
        match (&self.user, &self.password) {
            (None, None) => None,
            (user, password) => Some((user.as_deref(), password.as_deref().unwrap_or_default())),
        }
    }

    /// What the server's words must not show. A user alone may be a password.
    pub(crate) fn secrets(&self) -> Secrets {
        let lone_user = self.user.as_deref().filter(|_| self.has_only_a_user());
        lone_user.or(self.password.as_deref()).map_or_else(Secrets::default, Secrets::of)
    }

    /// Probably a password that lacks the colon before it. (The path of a socket has its login after the `?`.)
    pub(super) fn has_only_a_user(&self) -> bool {
        let has_password = self.password.as_deref().is_some_and(|password| !password.is_empty());
        self.host().is_some() && self.user.is_some() && !has_password && self.logins.is_none()
    }

    /// Another server of the same kind, which `by` announces: the same login, transport and database.
    pub(crate) fn announced(&self, host: &str, port: u16, by: &Address) -> Address {
        let endpoint = Endpoint::Tcp { host: host.to_owned(), port };
        let (shown, announced_by) = (shown(&endpoint, self.db), Some(Arc::from(&*by.shown)));
        Address { endpoint, shown, announced_by, ..self.clone() }
    }

    /// Another login; two empty strings stand for none.
    pub(crate) fn set_login(&mut self, user: &str, password: &str) {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        (self.user, self.password, self.logins) = (given(user), given(password), None);
    }

    /// The same address; its certificates are replaced apart.
    pub(crate) fn changing_apart(self) -> Address {
        Address { changeover: Changeover::default(), ..self }
    }

    /// The certificates of both are replaced together.
    pub(crate) fn changes_with(&mut self, other: &Address) {
        self.changeover = other.changeover.clone();
    }

    /// Logs each connection in as this says.
    pub(crate) fn set_logins(&mut self, logins: &Logins) {
        self.logins = Some(logins.clone());
    }

    /// The same server without a database: for sentinels, which have none.
    pub(crate) fn without_db(mut self) -> Address {
        (self.db, self.shown) = (0, shown(&self.endpoint, 0));
        self
    }

    /// Where a connection to this server goes.
    ///
    /// # Errors
    /// As [`AddressMap::lead`].
    pub(super) fn reached(&self, until: Instant) -> Result<Cow<'_, Endpoint>, Failure> {
        match (&self.announced_by, &self.map, &self.endpoint) {
            (Some(_), Some(map), Endpoint::Tcp { host, port }) => {
                map.lead(host, *port, until).map(Cow::Owned)
            }
            _ => Ok(Cow::Borrowed(&self.endpoint)),
        }
    }

    /// The failure to connect to this endpoint. It also names the server that announced the address, and where `map_address` led instead.
    pub(super) fn not_reached(&self, failure: Failure, to: &Endpoint) -> Failure {
        let Some(by) = &self.announced_by else { return failure };
        let led =
            if *to == self.endpoint { String::new() } else { format!(", and `map_address` leads to {to}") };
        match failure.before_sending() {
            Failure::NotSent(cause) => Failure::NotSent(cause.reworded(|cause| {
                format!("{cause} ({by} announces this address{led}; if it can't be reached from here, set `map_address`)")
            })),
            refused => refused,
        }
    }

    /// The host, if it is reached over TCP.
    pub(crate) fn host(&self) -> Option<&str> {
        self.endpoint.host()
    }

    pub(crate) fn is_same_server(&self, other: &Address) -> bool {
        self.shown == other.shown
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

/// What stands after the `?`; none if nothing is set.
fn tls_settings(options: &str) -> Result<Option<TlsSettings>, Cow<'static, str>> {
    let (mut authorities, mut certificate, mut key) = (None, None, None);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let set = match name {
            "sslrootcert" => &mut authorities,
            "sslcert" => &mut certificate,
            "sslkey" => &mut key,
            // The crate drops `?db=2` silently: the locks would be in another database than asked for.
            _ => {
                return Err("only sslrootcert, sslcert and sslkey can be set after a ?; write the database as /2, and a ? in a \
                            password as %3F"
                    .into());
            }
        };
        let value = percent_decoded(value).ok_or("a file after the ? has an invalid %")?;
        *set = Some(value).filter(|value| !value.is_empty());
    }
    if [&authorities, &certificate, &key].iter().all(|file| file.is_none()) {
        return Ok(None);
    }
    let trust = match authorities {
        Some(file) if file != "system" => Trust::File(file.into()),
        _ => Trust::System,
    };
    Ok(Some(TlsSettings::Files { trust, identity: Identity::of(certificate, key)? }))
}

fn refuse(what: &str) -> BackendError {
    BackendError::new(BackendErrorKind::InvalidConfig, what)
}

fn shown(endpoint: &Endpoint, db: i64) -> String {
    if db == 0 { endpoint.to_string() } else { format!("{endpoint}/{db}") }
}

/// Which part makes the URL unreadable, as far as can be told.
fn unreadable(rest: &str) -> &'static str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    match host_and_port.rsplit_once(':') {
        None if host_and_port.is_empty() => "the host is missing",
        Some(("", _)) => "the host is missing",
        Some((_, port)) if !port.ends_with(']') && port.parse::<u16>().is_err() => {
            "the port is not a number up to 65535 (in a password / ? # @ : are written %2F %3F %23 %40 %3A)"
        }
        _ => "the host is not valid",
    }
}

/// It is shown, since it stands behind the host: a password with its own delimiter was refused before.
fn check_database(text: &str) -> Result<(), String> {
    let shown: String = text.chars().take(40).collect();
    match text.parse::<i64>() {
        Err(_) => Err(format!("the database {shown:?} is not a number")),
        Ok(number) if !(0..=i64::from(i32::MAX)).contains(&number) => {
            Err(format!("there is no database {number}, most servers have 0 to 15"))
        }
        Ok(_) => Ok(()),
    }
}

/// The crate's words for the error. They are constants; the text that it found follows them.
fn wrong_part(error: &redis::RedisError) -> String {
    let words = error.to_string();
    words.split(" - ").next().unwrap_or("unknown").to_owned()
}

/// How many calls of the function are under way, at most.
const MOST_CALLS: usize = 16;

/// Leads from an announced host and port to those that reach the server, by a function of the program.
///
/// A thread of its own makes each call, without any of our mutexes, and the connection that opens waits for the call until its deadline. A
/// panic is a failure to connect. Calls that don't return keep a few threads, no more.
#[derive(Clone)]
pub(crate) struct AddressMap(Arc<Map>);

type MapFn = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

struct Map {
    function: Box<MapFn>,
    /// How many calls are under way.
    calls: AtomicUsize,
}

impl AddressMap {
    pub(crate) fn new(function: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> AddressMap {
        AddressMap(Arc::new(Map { function: Box::new(function), calls: AtomicUsize::new(0) }))
    }

    /// The host and port to connect to for this announced server.
    ///
    /// # Errors
    /// `NotSent` if the program's function panics, or has not returned by then.
    pub(super) fn lead(&self, host: &str, port: u16, until: Instant) -> Result<Endpoint, Failure> {
        let failed = |why: &str| Err(Failure::NotSent(format!("the function of `map_address` {why}").into()));
        let (map, host, (tells, told)) = (Arc::clone(&self.0), host.to_owned(), sync_channel(1));
        if map.calls.fetch_add(1, Ordering::Relaxed) >= MOST_CALLS {
            map.calls.fetch_sub(1, Ordering::Relaxed);
            return failed("has not returned from earlier calls");
        }
        let call = move || {
            let mapped = catch_unwind(AssertUnwindSafe(|| (map.function)(&host, port)));
            map.calls.fetch_sub(1, Ordering::Relaxed);
            // The connection may wait no longer. The drop of a panic may panic as well.
            let _ = tells.send(mapped.map_err(std::mem::forget));
        };
        if let Err(error) = thread::Builder::new().name("fairlock-map".to_owned()).spawn(call) {
            self.0.calls.fetch_sub(1, Ordering::Relaxed);
            return failed(&format!("got no thread ({error})"));
        }
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok((host, port))) => Ok(Endpoint::Tcp { host, port }),
            Ok(Err(())) => failed("has panicked"),
            Err(_) => failed("has not returned in time"),
        }
    }
}

#[cfg(test)]
mod tests;
