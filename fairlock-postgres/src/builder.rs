//! Connects a backend, with the settings that a user chooses.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fairlock_core::Result;
use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_net::Timeouts;

use crate::backend::{Inner, PostgresBackend};
use crate::clients::{Clients, WakeUps};
use crate::net::address::Address;
use crate::net::pool::Pool;
use crate::net::{Failure, open};
use crate::recent::Recent;
use crate::schema;
use crate::step::Store;
use crate::sweep::Sweep;

/// The most connections that carry commands.
const MOST_CONNECTIONS: usize = 64;

impl PostgresBackend {
    /// Connects to a database: `postgres://user[:password]@host[:port][,host…]/database[?options]`. The host may be the directory of
    /// a Unix socket (`?host=/run/postgresql`). Of several hosts the first that takes writes is used. The tables have to be there,
    /// see [`migrate`](PostgresBackend::migrate).
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid address, a missing database, or tables that are missing or of another layout; `Unavailable`
    /// when no server can be reached or takes writes; `Denied` for a wrong user or password. No message contains a password.
    pub fn connect(url: &str) -> Result<Self> {
        PostgresBackend::builder(url).connect()
    }

    /// A builder with further settings, for a URL as for [`connect`](PostgresBackend::connect).
    pub fn builder(url: &str) -> PostgresBuilder {
        let second = Duration::from_secs(1);
        PostgresBuilder {
            url: url.to_owned(),
            listen_on: None,
            wake_ups: WakeUps::Listen,
            connections: 8,
            timeouts: Timeouts { connect: second, response: second },
        }
    }

    /// Makes the tables of fairlock in this database (the schema `fairlock`), or brings them to this version's layout, and does
    /// nothing if they are there. The user needs the right to create a schema; [`migration`](PostgresBackend::migration) is the
    /// same as a text for another one.
    ///
    /// # Errors
    /// As [`connect`](PostgresBackend::connect); `InvalidConfig` if a newer version has made the tables; `Unavailable` if another
    /// transaction uses the tables for more than 2 s.
    pub fn migrate(url: &str) -> Result<()> {
        let address = Address::parse(url).map_err(BackendError::from)?;
        let in_time = || Instant::now() + Duration::from_secs(10);
        let migrated = open(&address, in_time()).and_then(|mut con| schema::migrate(&mut con, in_time()));
        Ok(migrated.map_err(BackendError::from)??)
    }

    /// The SQL of [`migrate`](PostgresBackend::migrate), one transaction, for `psql` and tools for migrations.
    pub fn migration() -> String {
        schema::script()
    }
}

/// The settings of a backend before it connects; see [`PostgresBackend::builder`].
#[must_use = "a builder does nothing until `connect`"]
pub struct PostgresBuilder {
    url: String,
    listen_on: Option<String>,
    wake_ups: WakeUps,
    connections: usize,
    timeouts: Timeouts,
}

impl std::fmt::Debug for PostgresBuilder {
    /// Without the addresses, which have passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PostgresBuilder { wake_ups, connections, timeouts, .. } = self;
        f.debug_struct("PostgresBuilder")
            .field("wake_ups", wake_ups)
            .field("connections", connections)
            .field("timeouts", timeouts)
            .finish_non_exhaustive()
    }
}

impl PostgresBuilder {
    /// Sets another address for wake-ups, which need a session: the server's, where the first address is a pooler in
    /// transaction mode.
    pub fn listen_on(mut self, url: &str) -> Self {
        self.listen_on = Some(url.to_owned());
        self
    }

    /// Sets how the process hears that a lock was granted to it. Default [`WakeUps::Listen`].
    pub fn wake_ups(mut self, wake_ups: WakeUps) -> Self {
        self.wake_ups = wake_ups;
        self
    }

    /// Sets how many connections carry commands at most, 1 to 64. Default 8. They are opened when they are needed.
    pub fn connections(mut self, n: usize) -> Self {
        self.connections = n;
        self
    }

    /// Sets how long connecting may take, all hosts and the login together. From 10 ms to 1 min; default 1 s.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.timeouts.connect = time;
        self
    }

    /// Sets how long a call may take. From 10 ms to 1 min; default 1 s. A client's
    /// [lease](fairlock_core::ClientBuilder::lease) has to be at least twice as long.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.timeouts.response = time;
        self
    }

    /// Connects, so that a wrong address, password or layout shows now.
    ///
    /// # Errors
    /// As [`PostgresBackend::connect`]; `InvalidConfig` for a setting that is out of range.
    pub fn connect(self) -> Result<PostgresBackend> {
        let backend = self.unchecked()?;
        let checked: Result<_, Failure> = backend.0.store.pool.check(schema::check);
        if let Some(longest) = checked.map_err(BackendError::from)?? {
            backend.0.longest_lease.get_or_init(|| longest);
        }
        Ok(backend)
    }

    /// A backend that has not connected.
    pub(crate) fn unchecked(self) -> Result<PostgresBackend> {
        let PostgresBuilder { url, listen_on, wake_ups, connections, timeouts } = self;
        let allowed = Duration::from_millis(10)..=Duration::from_secs(60);
        in_range("connect_timeout", timeouts.connect, &allowed)?;
        in_range("response_timeout", timeouts.response, &allowed)?;
        if let WakeUps::Poll(every) = wake_ups {
            in_range("wake_ups by polling", every, &(Duration::from_millis(1)..=*allowed.end()))?;
        }
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            let what = format!("connections is {connections}, it has to be from 1 to {MOST_CONNECTIONS}");
            return Err(invalid(what).into());
        }
        let parse = |url: &str| Address::parse(url).map_err(BackendError::from);
        let address = parse(&url)?;
        let listen_at = listen_on.as_deref().map_or_else(|| Ok(address.clone()), parse)?;
        let pool = Pool::new(address, timeouts, connections);
        let clients = Clients::new(listen_at, wake_ups);
        let store = Arc::new(Store { pool, clients, recent: Recent::new() });
        Ok(PostgresBackend(Arc::new(Inner { store, longest_lease: OnceLock::new(), sweep: Sweep::new() })))
    }
}

fn in_range(what: &str, time: Duration, allowed: &RangeInclusive<Duration>) -> Result<(), BackendError> {
    if allowed.contains(&time) {
        return Ok(());
    }
    Err(invalid(format!(
        "{what} is {time:?}, it has to be from {:?} to {:?}",
        allowed.start(),
        allowed.end()
    )))
}

fn invalid(what: String) -> BackendError {
    BackendError::new(BackendErrorKind::InvalidConfig, what)
}
