//! Connects a backend, with the settings that a user chooses.

use std::error::Error as StdError;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::Result;
use fairlock_core::backend::{BackendError, Login, Logins, connect_within};

use crate::backend::{Inner, RedisBackend, Rules};
use crate::doctor;
use crate::durable::{Calls, Durability};
use crate::hand_off::HandOff;
use crate::net::{AddressMap, Arrangement, Servers, Settings, Target, Timeouts, in_range, invalid};
#[cfg(feature = "redisson")]
use crate::redisson::{Channels, Redisson};
use crate::script::Scripts;
use crate::wake_ups::WakeUps;

/// Which waiter of a fair lock is next, and how it learns of its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discipline {
    /// The releaser makes the next waiter the holder: one trip, however long the queue. For Rust programs: Java's fair
    /// lock and this one exclude each other but have separate queues without an order: choose one discipline for a name.
    #[default]
    HandOff,
    /// Redisson's `RedissonFairLock`: one queue for Rust and Java. Needs the feature `redisson`.
    #[cfg(feature = "redisson")]
    Redisson,
}

impl RedisBackend {
    /// Connects to one server: `redis://[user][:password@]host[:port][/db]`, `rediss://…` (feature `tls`) or
    /// `unix:///path[?db=…&user=…&pass=…]`. The URLs of [`connect_sentinel`](RedisBackend::connect_sentinel) and
    /// [`connect_cluster`](RedisBackend::connect_cluster) name several servers.
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid address, a sentinel, or what is no Redis server; `Unavailable` when the server can't be reached
    /// or is not ready; `Denied` for a wrong user or password. No message contains a password.
    pub fn connect(url: &str) -> Result<Self> {
        RedisBackend::builder(url).connect()
    }

    /// Asks these sentinels for the master of this name, connects to the master, and follows a fail-over. The addresses are
    /// `redis://[user][:password@]host[:port][/db]` or `rediss://…`; the default port is 26379. User, password, TLS and database
    /// also apply to the servers; [`RedisBuilder::sentinel_login`] sets another login for the sentinels. As one URL:
    /// `redis+sentinel://[user][:password@]host[:port][,host…]/master[/db]`.
    ///
    /// # Errors
    /// As [`connect`](RedisBackend::connect); `InvalidConfig` when the sentinels know no master of this name, with the names of
    /// the masters that they know. A user needs the rights to ROLE at the servers, and to SUBSCRIBE and SENTINEL at the
    /// sentinels.
    pub fn connect_sentinel(urls: &[&str], master: &str) -> Result<Self> {
        RedisBuilder::sentinel(urls, master).connect()
    }

    /// Connects to the cluster that these nodes belong to; some of its nodes are enough. The addresses are
    /// `redis://[user][:password@]host[:port]` or `rediss://…`; user, password and TLS apply to all nodes. As one URL:
    /// `redis+cluster://[user][:password@]host[:port][,host…]`.
    ///
    /// All keys of a lock have one hash slot. A name whose braces prevent that is refused (`InvalidName`) at its first
    /// call: a name with braces needs some text between the first `{` and the next `}`, and no `}` without a `{`.
    ///
    /// # Errors
    /// As [`connect`](RedisBackend::connect); `InvalidConfig` when the servers are not in cluster mode. A user needs the
    /// right to CLUSTER SLOTS.
    pub fn connect_cluster(urls: &[&str]) -> Result<Self> {
        RedisBuilder::cluster(urls).connect()
    }

    /// A builder with further settings, for a URL as for [`connect`](RedisBackend::connect),
    /// [`connect_sentinel`](RedisBackend::connect_sentinel) or [`connect_cluster`](RedisBackend::connect_cluster).
    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder::to(Target::parse(url))
    }

    /// A builder for the server that a client of the crate `redis` connects to, with feature `redis-1`, which names its version: `builder_from(client.get_connection_info())`. It has
    /// the client's address (TCP, TLS, or a Unix socket), user, password and database.
    ///
    /// The connections are the backend's own, and not those of the client or of a pool: a renewal that queues behind the program's
    /// commands, or behind one that blocks (BLPOP, a slow script), would come after the lease, and the lock would be lost. There are
    /// up to [`connections`](RedisBuilder::connections) for commands, and one for the wake-ups of each [`Client`](fairlock_core::Client).
    ///
    /// Some of a client's settings have no part here: RESP3, the library's name, and the settings of the TCP socket. Time-outs belong
    /// to the connections of the crate, not to its client: those here are the builder's. The crate does not show certificates that were
    /// given to a client (`Client::build_with_tls`), nor a `CredentialsProvider`, in whose place [`login`](RedisBuilder::login)
    /// stands. For a cluster or sentinels use [`builder`](RedisBackend::builder).
    ///
    /// # Errors
    /// [`RedisBuilder::connect`] returns `InvalidConfig` for a client with certificates of its own, or that does not check those of the
    /// server, unless `RedisBuilder::tls` gives a configuration in their place.
    ///
    /// ```no_run
    /// # use fairlock_redis::RedisBackend;
    /// let client = redis::Client::open("redis://app:secret@cache.internal/2")?;
    /// let backend = RedisBackend::builder_from(client.get_connection_info()).connect()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "redis-1")]
    pub fn builder_from(client: &redis::ConnectionInfo) -> RedisBuilder {
        RedisBuilder::to(Target::of(client))
    }
}

/// The most connections to a server that carry commands.
const MOST_CONNECTIONS: usize = 8;

/// The settings of a backend before it connects; see [`RedisBackend::builder`].
#[must_use = "a builder does nothing until `connect`"]
#[derive(Debug)]
pub struct RedisBuilder {
    target: Result<Target, BackendError>,
    sentinel_login: Option<Login>,
    logins: Option<Logins>,
    discipline: Discipline,
    #[cfg(feature = "redisson")]
    thread_wait: Option<Duration>,
    settings: Settings,
    durability: Option<Durability>,
}

// Each setter takes the builder whole: a panic leaves none half set.
impl UnwindSafe for RedisBuilder {}
impl RefUnwindSafe for RedisBuilder {}

impl RedisBuilder {
    /// For the master of this name, found through these sentinels; see [`RedisBackend::connect_sentinel`].
    pub fn sentinel(urls: &[&str], master: &str) -> RedisBuilder {
        RedisBuilder::to(Target::sentinel(urls, master))
    }

    /// For the cluster that these nodes belong to; see [`RedisBackend::connect_cluster`].
    pub fn cluster(urls: &[&str]) -> RedisBuilder {
        RedisBuilder::to(Target::cluster(urls))
    }

    fn to(target: Result<Target, BackendError>) -> RedisBuilder {
        let second = Duration::from_secs(1);
        let mut settings = Settings::new(Timeouts { connect: second, response: second }, 2);
        settings.connections_if_far = MOST_CONNECTIONS;
        RedisBuilder {
            target,
            sentinel_login: None,
            logins: None,
            discipline: Discipline::default(),
            #[cfg(feature = "redisson")]
            thread_wait: None,
            settings,
            durability: None,
        }
    }

    /// Sets another user and password for the sentinels than for the servers; two empty strings for sentinels without a
    /// login.
    pub fn sentinel_login(mut self, user: &str, password: &str) -> Self {
        self.sentinel_login = Some(Login::new(password).with_user(user));
        self
    }

    /// Sets a function that gives the login of each new connection, in place of the password in the address, and of the user if the
    /// login names one: for a password that is changed, or a token that ends. It is for all servers, and for sentinels unless
    /// [`sentinel_login`](Self::sentinel_login) says otherwise.
    ///
    /// Before the [end](Login::valid_for) of a login, connections for commands log in again when they are used, and another connection
    /// for wake-ups takes over, since a connection that listens can't log in. No message is lost meanwhile.
    ///
    /// The function runs on a thread of its own, for one call at a time, and under no lock. Connections that open wait for its answer,
    /// as long as [connecting may take](Self::connect_timeout): after that time, and if the function fails or panics, the
    /// attempt ends as one to a server that is away, and is repeated after a pause; a late answer serves the next attempt. The log
    /// has a line a minute. Sentinels are asked by a new connection each time, so a function that asks another server should keep
    /// its answer.
    ///
    /// A login that is refused counts as an outage for two minutes once one was accepted: the password is about to change at the server,
    /// or was changed there. Open connections stay logged in.
    pub fn login<E>(mut self, login: impl Fn() -> Result<Login, E> + Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.logins = Some(Logins::new(login));
        self
    }

    /// Makes TLS with a configuration of the program's own: its authorities, client certificate, provider of cryptography (FIPS), in
    /// place of `sslrootcert`, `sslcert` and `sslkey`, which the address then can't have. The address has to be a `rediss://…`. The
    /// configuration counts for all servers and sentinels. The types are those of [`rustls`](fairlock_net::rustls) 0.23. A later
    /// major version of rustls gets its own feature and method here, and fairlock keeps its major version.
    #[cfg(feature = "rustls-0_23")]
    pub fn tls(mut self, config: Arc<fairlock_net::rustls::ClientConfig>) -> Self {
        self.target = self.target.and_then(|target| target.with_tls(&config));
        self
    }

    /// Sets how this program reaches announced servers: the nodes of a cluster, and the master that sentinels name. In containers, or
    /// behind NAT, servers announce addresses of their own network. The function gets the announced host and port, and returns host and
    /// port to connect to; the certificate has to be for the returned host. The function is called before each connection to an
    /// announced server, on a thread of its own; if the function panics, or does not return within the connect time-out, the connection
    /// fails. Addresses that the program names stay as they are.
    ///
    /// ```no_run
    /// # use fairlock_redis::RedisBuilder;
    /// let backend = RedisBuilder::cluster(&["redis://localhost:7001"])
    ///     .map_address(|_, port| ("localhost".to_owned(), port))
    ///     .connect()?;
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    pub fn map_address(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        let map = AddressMap::new(map);
        self.target = self.target.map(|target| target.with_map(&map));
        self
    }

    /// Sets which waiter of a fair lock is next, and how it learns of its turn. All clients of a lock must use the same discipline.
    pub fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    /// Sets how long a silent waiter in Redisson's queue counts as alive, on top of the waits ahead. A wait with a time-out uses
    /// that time-out instead. Default 5 min, as in Redisson since 3.13.3. All clients of a lock must use the same value, Java's
    /// included. From 10 ms to a day, and with [`Discipline::Redisson`] only: the hand-off keeps places by heartbeats.
    #[cfg(feature = "redisson")]
    pub fn thread_wait(mut self, wait: Duration) -> Self {
        self.thread_wait = Some(wait);
        self
    }

    /// Sets how many connections to each server carry commands, 1 to 8. Default 2, which callers share: more bring no gain
    /// with a near server. A server more than half a millisecond away, as round trips show, gets up to 8, as many as are in use at
    /// once.
    pub fn connections(mut self, n: usize) -> Self {
        self.settings.connections = n;
        self.settings.connections_if_far = n;
        self
    }

    /// Sets how long connecting may take: look-up of the host's name, all its addresses, TLS and login together. From 10 ms
    /// to 1 min; default 1 s.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.settings.timeouts.connect = time;
        self
    }

    /// Sets how long [`connect`](Self::connect) goes on trying while no server answers, or the server is full (`maxclients`), loads its
    /// data or restarts. [`ClientBuilder::build`](fairlock_core::ClientBuilder::build) then goes on as long again, counted from its own
    /// call: each client opens a connection of its own for wake-ups. An attempt that is under way when the time is over still ends by
    /// its own time-outs. A wrong address, user, password or certificate is an error at once. Any time; default 0, one attempt each.
    pub fn connect_within(mut self, time: Duration) -> Self {
        self.settings.connect_within = time;
        self
    }

    /// Sets how long a complete answer may take. From 10 ms to 1 min; default 1 s, so that two attempts fit between two
    /// heartbeats of a place. A client's [lease](fairlock_core::ClientBuilder::lease) has to be at least twice as long.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.settings.timeouts.response = time;
        self
    }

    /// Makes locks survive a server that forgets: a server that restarts, is flushed, or dies and is replaced by its replica.
    /// Such a server grants nothing for one [grace](Durability), 10.6 s by default, and 18.2 s behind sentinels or in a cluster. In the
    /// grace holders reclaim their locks by their renewals, and waiters get their places back. A server that sees its first durable
    /// client also begins with a grace: it can't know whether it has a past.
    ///
    /// All clients of the server have to use this, with the same times: a client with another grace is refused. It covers locks with
    /// a queue and [`Discipline::HandOff`] only; no Redisson client may use these locks, since Redisson grants them in the grace. A
    /// client's default [lease](fairlock_core::ClientBuilder::lease) is the [longest](Self::longest_lease) one (10 s; behind sentinels, and
    /// in a cluster, 7.5 s) if that is shorter. A master that was deposed and still answers grants nothing either, since a majority of
    /// the sentinels or nodes has to name it. An attempt in a grace finds the lock busy; the log and
    /// [`grace_left`](RedisBackend::grace_left) tell of the grace. Users need the rights to INFO and to the key `fairlock_life` (in a
    /// cluster to the keys `fairlock_life:*`), and to SENTINEL MYID at the sentinels or to CLUSTER NODES. Default: off, without any
    /// further command.
    pub fn durable(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The longest lease of a lock on these servers. None, if there is no limit: without [`durable`](Self::durable).
    pub fn longest_lease(&self) -> Option<Duration> {
        let servers = self.target.as_ref().ok()?.arrangement();
        self.durability.map(|durability| durability.among(servers).longest_lease())
    }

    /// [`connect`](Self::connect) for tasks: connects on a thread of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_async(self) -> Result<RedisBackend> {
        fairlock_core::connecting(|| self.connect()).await
    }

    /// Connects, so that a wrong address or password shows now. Reads INFO from the servers, if the user may, and logs a
    /// warning, target `fairlock::net`, for each unsafe setting: an eviction policy, an old version, a replica.
    ///
    /// # Errors
    /// As [`RedisBackend::connect`]; `InvalidConfig` for a time-out outside 10 ms to 1 min, a thread wait outside
    /// 10 ms to a day, a setting of Redisson's queue without [`Discipline::Redisson`], connections outside 1 to 8, or a
    /// [`durable`](Self::durable) that does not suit the servers or the discipline.
    pub fn connect(self) -> Result<RedisBackend> {
        let (mut target, mut settings) = (self.target.clone()?, self.settings.clone());
        self.logins.iter().for_each(|logins| target.set_logins(logins));
        if let Some(login) = &self.sentinel_login {
            target = target.with_sentinel_login(login)?;
        }
        let minute = Duration::from_secs(60);
        let shortest = Duration::from_millis(10);
        in_range("connect_timeout", settings.timeouts.connect, shortest..=minute)?;
        in_range("response_timeout", settings.timeouts.response, shortest..=minute)?;
        #[cfg(feature = "redisson")]
        let thread_wait = self.places_last()?;
        let (arrangement, has_own_queue) = (target.arrangement(), self.discipline == Discipline::HandOff);
        let durability = self.durability.map(|durability| durability.among(arrangement));
        if let Some(durability) = &durability {
            durability.check()?;
            if !has_own_queue {
                let what = "it is for the discipline HandOff: Redisson's clients share that queue, and grant the lock in the grace";
                return Err(invalid(what.to_owned()).about_setting("durable").into());
            }
        }
        if !(1..=MOST_CONNECTIONS).contains(&settings.connections) {
            let (n, most) = (settings.connections, MOST_CONNECTIONS);
            let what = format!("the number is {n}, it has to be from 1 to {most}");
            return Err(invalid(what).about_setting("connections").into());
        }
        let is_cluster = arrangement == Arrangement::Cluster;
        let calls = Calls::new(durability, is_cluster, has_own_queue, &mut settings);
        let servers = connect_within(settings.connect_within, || target.clone().connect(&settings))?;
        doctor::check(&servers)?;
        if has_own_queue {
            calls.meet(is_cluster, &servers);
        }
        #[cfg(feature = "redisson")]
        return Ok(RedisBackend::of(servers, calls, self.discipline, thread_wait));
        #[cfg(not(feature = "redisson"))]
        Ok(RedisBackend::of(servers, calls))
    }

    /// How long places in Redisson's queue last.
    #[cfg(feature = "redisson")]
    fn places_last(&self) -> Result<Duration> {
        let minute = Duration::from_secs(60);
        let thread_wait = self.thread_wait.unwrap_or(minute * 5);
        in_range("thread_wait", thread_wait, Duration::from_millis(10)..=minute * 60 * 24)?;
        if self.discipline == Discipline::HandOff && self.thread_wait.is_some() {
            let what = "it is a setting of Redisson's queue, and the discipline is HandOff, which does not use it: choose \
                        `.discipline(Discipline::Redisson)` if Java's fair locks share this queue, else leave the setting out";
            return Err(invalid(what.to_owned()).about_setting("thread_wait").into());
        }
        Ok(thread_wait)
    }
}

impl RedisBackend {
    #[cfg(feature = "redisson")]
    fn of(servers: Servers, calls: Calls, discipline: Discipline, thread_wait: Duration) -> RedisBackend {
        let (channels, confirms): (Arc<Channels>, _) = (Arc::default(), calls.confirms_messages());
        let scripts = Arc::new(Scripts::new(servers, calls.wrapper()));
        let others = Some(Arc::clone(&channels) as _);
        let (calls, wake_ups) = (Arc::new(calls), Arc::new(WakeUps::new(&scripts, confirms, others)));
        let ours = Rules::HandOff(HandOff::new(&scripts, &calls, &wake_ups));
        let redisson = Redisson::new(&scripts, &calls, &wake_ups, channels, thread_wait);
        let (theirs, plain) = (Rules::Redisson(redisson.clone()), Some(Rules::Redisson(redisson)));
        let (fair, other) = match discipline {
            Discipline::HandOff => (ours, theirs),
            Discipline::Redisson => (theirs, ours),
        };
        RedisBackend(Arc::new(Inner { scripts, calls, wake_ups, fair, other: Some(other), plain }))
    }

    #[cfg(not(feature = "redisson"))]
    fn of(servers: Servers, calls: Calls) -> RedisBackend {
        let scripts = Arc::new(Scripts::new(servers, calls.wrapper()));
        let wake_ups = Arc::new(WakeUps::new(&scripts, calls.confirms_messages(), None));
        let calls = Arc::new(calls);
        let fair = Rules::HandOff(HandOff::new(&scripts, &calls, &wake_ups));
        RedisBackend(Arc::new(Inner { scripts, calls, wake_ups, fair, other: None, plain: None }))
    }
}
