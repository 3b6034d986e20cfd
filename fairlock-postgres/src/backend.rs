//! The backend: connects with the settings that a user chooses, and answers the operations of the store, in the order of the trait: each
//! asks questions about locks, and steps answer them. The list of locks comes last.

use std::error::Error as StdError;
use std::fmt::{self, Debug};
use std::ops::{Range, RangeInclusive};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId, LockState,
    Login, Logins, Place, Released, Renew, Renewal, Subscription, WakeSink, Withdrawn, connect_within,
    in_words,
};
use fairlock_core::{ClientId, Error, LockKind, LockName, OwnerId};
use fairlock_net::Timeouts;
use fairlock_rules::{Presence, StoreContext, fits_pattern};

use crate::clients::{Clients, WakeUps};
use crate::command::Command;
use crate::net::address::{Address, TlsConfig};
use crate::net::statement::LIST;
use crate::net::{self, Failure, Pool, Row, Statement, check, open};
use crate::row::{AFTER, Loaded, NEVER, changed};
use crate::step::{ask, ask_one, renew};
use crate::store::Store;
use crate::wake_ups::{ask_and_hear, place_renewed};

/// The most connections that carry commands.
const MOST_CONNECTIONS: usize = 64;
/// How many rows `list.sql` reads.
const PAGE: usize = 500;

/// The longest lease where a crash of the server forgets what was done last: it grants nothing for this time afterwards.
const LONGEST_UNSYNCED: Duration = Duration::from_secs(30);

/// Locks in a PostgreSQL database: one row a lock, written by compare and swap.
///
/// The program's own transaction in that database can ask `select fairlock.still_held(name, token)`, with a guard's name and
/// [token](fairlock_core::FencingToken::as_i64). If that is true, no other owner gets the lock before the transaction has ended.
#[derive(Clone)]
pub struct PostgresBackend(pub(crate) Arc<Store>);

// No call runs code of the program on its thread: no panic of the program leaves the middle of one.
impl UnwindSafe for PostgresBackend {}
impl RefUnwindSafe for PostgresBackend {}

impl Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { endpoints, user, database, .. } = &self.0.pool.address; // not the password
        f.debug_tuple("PostgresBackend").field(endpoints).field(user).field(database).finish()
    }
}

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

impl Backend for PostgresBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let (store, deadline) = (&self.0, self.0.pool.deadline());
        let asked = |at: &usize| (&asks[*at].place.lock.name, Command::acquire(&asks[*at]));
        let places: Vec<_> = asks.iter().map(|ask| ask.place).collect();
        ask_and_hear(store, &places, deadline, |these| ask(store, these.iter().map(asked), deadline))
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        let asked = holds.iter().map(|hold| (&hold.lock.name, Command::Release(hold.into())));
        let answers = ask(&self.0, asked, self.0.pool.deadline());
        self.0.sweep_if_due();
        answers
    }

    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Result<Renewal, BackendError> {
        ask_one(&self.0, &hold.lock.name, Command::Adopt(hold.into(), owner.clone(), lease))
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let answers = renew(&self.0, items);
        for (item, answer) in items.iter().zip(&answers) {
            if let (Renew::Place { place, .. }, Ok(answer)) = (item, answer) {
                place_renewed(&self.0, place, answer);
            }
        }
        self.0.sweep_if_due();
        answers
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        let asked = places.iter().map(|place| (&place.lock.name, Command::Withdraw(place.into())));
        let answers = ask(&self.0, asked, self.0.pool.deadline());
        for (place, _) in places.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()) {
            self.0.clients.waits_no_longer(place);
        }
        answers
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        ask_one(&self.0, &lock.name, Command::ForceRelease(lock.clone()))
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        ask_one(&self.0, &hold.lock.name, Command::TakeHold(hold.into()))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        let pool = &self.0.pool;
        let rows = pool.ask(changed([(lock.name.as_str().as_bytes(), NEVER)]), pool.deadline())?;
        let Loaded { entry, last, now } = rows.first().map_or_else(|| Ok(Loaded::default()), Loaded::read)?;
        entry.inspect(
            &StoreContext::after(last).operation(&lock.name, now, &|_| Presence::Present),
            lock,
            part,
        )
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        let (store, name) = (&self.0, client.to_string());
        store.clients.add(&name, sink);
        Ok(Subscription::new(Subscribed { store: Arc::downgrade(store), name }))
    }

    fn reconnects(&self) -> u64 {
        self.0.pool.broken()
    }

    fn supports(&self, _: LockKind) -> bool {
        true
    }

    fn response_timeout(&self) -> Option<Duration> {
        Some(self.0.pool.timeouts.response)
    }

    fn longest_lease(&self) -> Option<Duration> {
        (!self.0.pool.is_synced()).then_some(LONGEST_UNSYNCED)
    }

    fn why_no_longer_lease(&self) -> &'static str {
        "with `synchronous_commit = off` the database may forget a grant in a crash, and then grants nothing for this time; shorten the lease, \
         or set `synchronous_commit` to `on` for the role"
    }

    fn attempt_ttl(&self) -> Option<Duration> {
        Some(self.0.pool.attempt_ttl())
    }
}

/// Ends the client's listening when it is dropped.
struct Subscribed {
    store: Weak<Store>,
    name: String,
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.clients.remove(&self.name);
        }
    }
}

impl PostgresBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Admin::inspect) reads the others). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all rows of locks in use, 500 in each round trip. The list is not a snapshot. A damaged row is left out.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of fairlock keeps one of the locks; `Unavailable` when the server can't be reached; `Denied` without
    /// the right to read.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let (pool, mut found, mut after) = (&self.0.pool, Vec::new(), Vec::new());
        loop {
            let rows = pool.ask(Statement::new(&LIST, [after.as_slice().into()]), pool.deadline())?;
            for row in &rows {
                let text = std::str::from_utf8(row.bytes(AFTER)?).ok();
                let text = text.filter(|name| fits_pattern(pattern.unwrap_or("*"), name));
                if let Some(name) = text.and_then(|name| LockName::new(name).ok())
                    && let Some(state) = state_of(&name, row).map_err(|error| Error::about(&name, error))?
                {
                    found.push((name, state));
                }
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE => after = last.bytes(AFTER)?.to_vec(),
                _ => return Ok(found),
            }
        }
    }
}

/// None for an unused lock, and for a damaged row.
fn state_of(name: &LockName, row: &Row) -> Result<Option<LockState>, BackendError> {
    let Loaded { entry, last, now } = match Loaded::read(row) {
        Err(failure) if failure.kind == BackendErrorKind::Corrupt => return Ok(None),
        loaded => loaded?,
    };
    let mut store_context = StoreContext::after(last);
    let context = store_context.operation(name, now, &|_| Presence::Present);
    Ok(entry.listed(&context, name))
}
