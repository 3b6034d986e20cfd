//! Connects a backend, with the settings that a user chooses.

use std::error::Error as StdError;
use std::fmt::{self, Debug};
use std::ops::RangeInclusive;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::Error;
use fairlock_core::backend::{Login, Logins, connect_within, in_words};
use fairlock_net::Timeouts;

use crate::backend::PostgresBackend;
use crate::clients::{Clients, WakeUps};
use crate::net::address::{Address, TlsConfig};
use crate::net::{self, Failure, Pool, check, open};
use crate::store::Store;

/// The most connections that carry commands.
const MOST_CONNECTIONS: usize = 64;

impl PostgresBackend {
    /// Connects to a database: `postgres://user[:password]@host[:port][,host…]/database[?options]`. The host may be the directory of
    /// a Unix socket (`?host=/run/postgresql`). Of several hosts the first that takes writes is used. The tables have to be there,
    /// see [`migrate`](PostgresBackend::migrate).
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid address, a missing database, or tables that are missing or of an older layout; `Unsupported` for
    /// tables of a newer version; `Unavailable` when no server can be reached or takes writes; `Denied` for a wrong user or password. No
    /// message contains a password.
    pub fn connect(url: &str) -> Result<Self, Error> {
        PostgresBackend::builder(url).connect()
    }

    /// A builder with further settings, for a URL as for [`connect`](PostgresBackend::connect).
    pub fn builder(url: &str) -> PostgresBuilder {
        let second = Duration::from_secs(1);
        PostgresBuilder {
            url: url.to_owned(),
            listen_on: None,
            tls: TlsConfig::None,
            logins: None,
            wake_ups: WakeUps::Listen,
            connections: 8,
            timeouts: Timeouts { connect: second, response: second },
            connect_within: Duration::ZERO,
        }
    }

    /// Makes the tables of fairlock in this database (the schema `fairlock`), or brings them to this version's layout. Does
    /// nothing if the tables are up to date. The user needs the right to create a schema;
    /// [`migration`](PostgresBackend::migration) is the SQL for another user.
    ///
    /// # Errors
    /// As [`connect`](PostgresBackend::connect); `Unavailable` if another
    /// transaction uses the tables for more than 2 s.
    pub fn migrate(url: &str) -> Result<(), Error> {
        PostgresBackend::builder(url).migrate()
    }

    /// The SQL of [`migrate`](PostgresBackend::migrate), to be run in one transaction: by `psql -1`, or as a migration of sqlx, refinery
    /// or Flyway. Each [`LAYOUT`](PostgresBackend::LAYOUT) has one migration.
    pub fn migration() -> String {
        net::migration()
    }

    /// The number of the layout of the tables that this version makes.
    pub const LAYOUT: i32 = net::LAYOUT;
}

/// The settings of a backend before it connects; see [`PostgresBackend::builder`].
#[must_use = "a builder does nothing until `connect`"]
pub struct PostgresBuilder {
    url: String,
    listen_on: Option<String>,
    tls: TlsConfig,
    logins: Option<Logins>,
    wake_ups: WakeUps,
    connections: usize,
    timeouts: Timeouts,
    connect_within: Duration,
}

// Each setter takes the builder whole: a panic leaves none half set.
impl UnwindSafe for PostgresBuilder {}
impl RefUnwindSafe for PostgresBuilder {}

impl Debug for PostgresBuilder {
    /// Without the addresses, which have passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("wake_ups", &self.wake_ups)
            .field("connections", &self.connections)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl PostgresBuilder {
    /// Sets another address for wake-ups, which need a session: the server's address, if the first address is a pooler in
    /// transaction mode.
    pub fn listen_on(mut self, url: &str) -> Self {
        self.listen_on = Some(url.to_owned());
        self
    }

    /// Makes TLS with a configuration of the program's own: its authorities, client certificate, provider of cryptography (FIPS), in
    /// place of `sslrootcert`, `sslcert` and `sslkey`, which the address then can't have. Without `sslmode` in the address TLS is
    /// required; `sslmode` can make TLS optional, but `disable` is refused. A Unix socket has no TLS. The configuration counts for the
    /// [other address](Self::listen_on), too. The types are those of [`rustls`](fairlock_net::rustls) 0.23. A later
    /// major version of rustls gets its own feature and method here, and fairlock keeps its major version.
    #[cfg(feature = "rustls-0_23")]
    pub fn tls(mut self, config: Arc<fairlock_net::rustls::ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Sets a function that gives the login of each new connection, in place of the password in the addresses, and of the user if the
    /// login names one: for a password that is changed, or a token that ends. A login counts when a connection opens; open
    /// connections stay logged in, so the [end](Login::valid_for) of a login has no part here.
    ///
    /// The function runs on a thread of its own, for one call at a time, and under no lock. Connections that open wait for its answer,
    /// as long as [connecting may take](Self::connect_timeout): after that time, and if the function fails or panics, the
    /// attempt ends as one to a server that is away, and is repeated after a pause; a late answer serves the next attempt. The log
    /// has a line a minute. A login that is refused counts as an outage for two minutes once one was accepted: the password is about to
    /// change at the server, or was changed there.
    pub fn login<E>(mut self, login: impl Fn() -> Result<Login, E> + Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.logins = Some(Logins::new(login));
        self
    }

    /// Sets how the process hears that a lock was granted to it. Default [`WakeUps::Listen`].
    pub fn wake_ups(mut self, wake_ups: WakeUps) -> Self {
        self.wake_ups = wake_ups;
        self
    }

    /// Sets how many connections carry commands at most, 1 to 64. Default 8. They are opened when they are needed. One of them is for
    /// renewals alone; with 1, these may open a second one.
    pub fn connections(mut self, n: usize) -> Self {
        self.connections = n;
        self
    }

    /// Sets how long connecting may take, all hosts and the login together. From 10 ms to 1 min; default 1 s.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.timeouts.connect = time;
        self
    }

    /// Sets how long [`connect`](Self::connect) goes on trying while no server answers, takes writes or has room for another connection
    /// (`too many clients`). An attempt that is under way then may take as long again as one does. A wrong address, user, password,
    /// database or certificate is an error at once. Any time; default 0, one attempt. Building a client then opens no connection.
    pub fn connect_within(mut self, time: Duration) -> Self {
        self.connect_within = time;
        self
    }

    /// Sets how long a call may take. From 10 ms to 1 min; default 1 s. A client's
    /// [lease](fairlock_core::ClientBuilder::lease) has to be at least twice as long.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.timeouts.response = time;
        self
    }

    /// See [`PostgresBackend::migrate`], with the settings for TLS and the [`login`](Self::login).
    ///
    /// # Errors
    /// As there.
    pub fn migrate(self) -> Result<(), Error> {
        let in_time = || Instant::now() + Duration::from_secs(10);
        let mut con = open(&self.address_of(&self.url)?, in_time())?;
        Ok(net::migrate(&mut con, in_time())?)
    }

    /// [`connect`](Self::connect) for tasks: connects on a thread of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_async(self) -> Result<PostgresBackend, Error> {
        fairlock_core::connecting(|| self.connect()).await
    }

    /// Connects, so that a wrong address, password or layout shows now.
    ///
    /// # Errors
    /// As [`PostgresBackend::connect`]; `InvalidConfig` for a setting that is out of range.
    pub fn connect(self) -> Result<PostgresBackend, Error> {
        let within = self.connect_within;
        let backend = self.unchecked()?;
        let pool = &backend.0.pool;
        connect_within(within, || {
            let in_time = Instant::now() + pool.timeouts.connect + pool.timeouts.response;
            Ok(pool.lend(in_time, |con| check(con, pool.deadline()))?)
        })?;
        Ok(backend)
    }

    /// A backend that has not connected.
    pub(crate) fn unchecked(self) -> Result<PostgresBackend, Failure> {
        let PostgresBuilder { wake_ups, connections, timeouts, .. } = self;
        let allowed = Duration::from_millis(10)..=Duration::from_secs(60);
        in_range("connect_timeout", timeouts.connect, &allowed, in_words)?;
        in_range("response_timeout", timeouts.response, &allowed, in_words)?;
        if let WakeUps::Poll(every) = wake_ups {
            in_range("wake_ups", every, &(Duration::from_millis(1)..=*allowed.end()), in_words)?;
        }
        in_range("connections", connections, &(1..=MOST_CONNECTIONS), |n| n.to_string())?;
        let address = self.address_of(&self.url)?;
        let listen_at =
            self.listen_on.as_deref().map_or_else(|| Ok(address.clone()), |url| self.address_of(url))?;
        let (pool, clients) = (Pool::new(address, timeouts, connections), Clients::new(listen_at, wake_ups));
        Ok(PostgresBackend(Arc::new(Store::new(pool, clients))))
    }

    fn address_of(&self, url: &str) -> Result<Address, Failure> {
        Ok(Address { logins: self.logins.clone(), ..Address::parse(url, &self.tls)? })
    }
}

fn in_range<T: PartialOrd + Copy>(
    setting: &'static str,
    set: T,
    allowed: &RangeInclusive<T>,
    shown: impl Fn(T) -> String,
) -> Result<(), Failure> {
    if allowed.contains(&set) {
        return Ok(());
    }
    let [set, from, to] = [set, *allowed.start(), *allowed.end()].map(shown);
    Err(Failure::invalid(format!("the value is {set}, it has to be from {from} to {to}"))
        .about_setting(setting))
}
