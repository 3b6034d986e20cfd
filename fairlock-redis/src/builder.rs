//! Connects a backend, with the settings that a user chooses.

use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind};

use crate::inner::RedisBackend;
use crate::net::advice::log_advice;
use crate::net::connection::Timeouts;
use crate::net::target::Target;
use crate::settings::{Discipline, Settings, WaitReplicas};

impl RedisBackend {
    /// Connects to `redis://[user][:password@]host[:port][/db]`, `rediss://…` (feature `tls-rustls`) or
    /// `unix:///path[?db=…&user=…&pass=…]`; or to several servers, see [`connect_sentinel`](RedisBackend::connect_sentinel) and
    /// [`connect_cluster`](RedisBackend::connect_cluster).
    ///
    /// # Errors
    /// `InvalidConfig` for an address that can't be read, `Unavailable` when the server can't be reached or is not
    /// ready, `Denied` for a wrong user or password. No message holds a password.
    pub fn connect(url: &str) -> Result<Self, BackendError> {
        RedisBackend::builder(url).connect()
    }

    /// Connects to the master of this name, by the word of these sentinels, and follows it when it is replaced. The
    /// addresses are `redis://[user][:password@]host[:port][/db]` or `rediss://…`, with port 26379 if they say none. User,
    /// password, TLS and database are the servers' as well; [`RedisBuilder::sentinel_login`] tells them apart. In one
    /// text it is `redis+sentinel://[user][:password@]host[:port][,host…]/master[/db]`.
    ///
    /// # Errors
    /// As [`connect`](RedisBackend::connect); `InvalidConfig` when the sentinels know no such master. A user needs
    /// the rights to ROLE at the servers, and to SUBSCRIBE and SENTINEL at the sentinels.
    pub fn connect_sentinel(urls: &[&str], master: &str) -> Result<Self, BackendError> {
        RedisBuilder::sentinel(urls, master).connect()
    }

    /// Connects to the cluster that these nodes belong to; some of them are enough. The addresses are
    /// `redis://[user][:password@]host[:port]` or `rediss://…`; user, password and TLS are those of all nodes. In one text
    /// it is `redis+cluster://[user][:password@]host[:port][,host…]`.
    ///
    /// A lock lives in one hash slot. A name whose braces prevent that is refused (`InvalidName`) at its first call: of a
    /// name with braces there must be something between the first `{` and the next `}`, and no `}` without a `{`.
    ///
    /// # Errors
    /// As [`connect`](RedisBackend::connect); `InvalidConfig` when the servers are not of a cluster. A user needs the
    /// right to CLUSTER SLOTS.
    pub fn connect_cluster(urls: &[&str]) -> Result<Self, BackendError> {
        RedisBuilder::cluster(urls).connect()
    }

    /// Connects with settings of its own, to an address as for [`connect`](RedisBackend::connect) or as given at
    /// [`connect_sentinel`](RedisBackend::connect_sentinel) and [`connect_cluster`](RedisBackend::connect_cluster).
    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder::new(url)
    }
}

/// Sets a backend up; see [`RedisBackend::builder`].
#[must_use = "a builder does nothing until `connect`"]
#[derive(Debug)]
pub struct RedisBuilder {
    target: Result<Target, BackendError>,
    discipline: Discipline,
    thread_wait: Option<Duration>,
    refresh_on_retry: bool,
    connections: usize,
    connect_timeout: Duration,
    response_timeout: Duration,
    replicas: Option<WaitReplicas>,
}

impl RedisBuilder {
    pub(crate) fn new(url: &str) -> RedisBuilder {
        RedisBuilder::to(Target::parse(url))
    }

    /// For the master of this name, by the word of these sentinels; see [`RedisBackend::connect_sentinel`].
    pub fn sentinel(urls: &[&str], master: &str) -> RedisBuilder {
        RedisBuilder::to(Target::sentinel(urls, master))
    }

    /// For the cluster that these nodes belong to; see [`RedisBackend::connect_cluster`].
    pub fn cluster(urls: &[&str]) -> RedisBuilder {
        RedisBuilder::to(Target::cluster(urls))
    }

    fn to(target: Result<Target, BackendError>) -> RedisBuilder {
        RedisBuilder {
            target,
            discipline: Discipline::default(),
            thread_wait: None,
            refresh_on_retry: false,
            connections: 2,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            replicas: None,
        }
    }

    /// Another user and password for the sentinels than for the servers; two empty texts for sentinels without one.
    pub fn sentinel_login(mut self, user: &str, password: &str) -> Self {
        self.target = self.target.and_then(|target| target.with_sentinel_login(user, password));
        self
    }

    /// Who is next in the line of fair locks. All clients of a lock have to agree on it.
    pub fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    /// For how long a waiter counts as alive without a sign of life, beyond those ahead of him; each wait with a
    /// time-out of its own uses that. Default 5 min, as Redisson since 3.13.3, and 5 s with
    /// [`refresh_on_retry`](Self::refresh_on_retry). Shared with every peer on the lock: they all count by it.
    pub fn thread_wait(mut self, wait: Duration) -> Self {
        self.thread_wait = Some(wait);
        self
    }

    /// Whether each attempt moves the time of its own waiter, the rule of Redisson 3.8.1. Default false.
    pub fn refresh_on_retry(mut self, refresh: bool) -> Self {
        self.refresh_on_retry = refresh;
        self
    }

    /// How many connections carry commands, 1 to 8. Default 2: callers share them, and more bring nothing.
    pub fn connections(mut self, n: usize) -> Self {
        self.connections = n;
        self
    }

    /// How long connecting may take: looking up the host's name, all its addresses, TLS and login together. Default 1 s.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// How long an answer may take, the whole of it. Default 1 s: two attempts fit into a place's period.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// A grant counts only when so many replicas have it within this time; else the lock is given back at once, and
    /// asked for again for as long as the call lasts. It narrows the window in which a fail-over forgets a lock, and
    /// costs a round trip to the replicas for each grant. A hand-off's message is then only a reason to ask. Users need
    /// the right to WAIT.
    pub fn wait_replicas(mut self, n: usize, within: Duration) -> Self {
        self.replicas = Some(WaitReplicas { count: n, within });
        self
    }

    /// Connects, so that a wrong address or password is known now. It takes one look at the servers (INFO, if the user
    /// may) and logs a warning, target `fairlock::net`, for what ought to be changed there: an eviction policy, an old
    /// version, a replica.
    ///
    /// # Errors
    /// As [`RedisBackend::connect`]; `InvalidConfig` for a time-out outside 10 ms to 1 min, a thread wait outside
    /// 10 ms to a day, connections outside 1 to 8, or no replica to wait for.
    pub fn connect(self) -> Result<RedisBackend, BackendError> {
        let target = self.target?;
        let minute = Duration::from_secs(60);
        in_range("connect_timeout", self.connect_timeout, minute)?;
        in_range("response_timeout", self.response_timeout, minute)?;
        let default_wait = if self.refresh_on_retry { Duration::from_secs(5) } else { minute * 5 };
        let thread_wait = self.thread_wait.unwrap_or(default_wait);
        in_range("thread_wait", thread_wait, minute * 60 * 24)?;
        if let Some(wait) = &self.replicas {
            in_range("wait_replicas", wait.within, minute)?;
            if wait.count == 0 {
                return Err(invalid("wait_replicas is for 0 replicas, it has to be at least 1".to_owned()));
            }
        }
        if !(1..=8).contains(&self.connections) {
            return Err(invalid(format!("connections is {}, it has to be from 1 to 8", self.connections)));
        }
        let timeouts = Timeouts { connect: self.connect_timeout, response: self.response_timeout };
        let servers = target.connect(timeouts, self.connections.into())?;
        log_advice(&servers);
        let settings = Settings {
            discipline: self.discipline,
            thread_wait,
            refresh_on_retry: self.refresh_on_retry,
            timeouts,
            replicas: self.replicas,
        };
        Ok(RedisBackend::new(servers, settings))
    }
}

fn in_range(what: &str, time: Duration, longest: Duration) -> Result<(), BackendError> {
    if (Duration::from_millis(10)..=longest).contains(&time) {
        return Ok(());
    }
    Err(invalid(format!("{what} is {time:?}, it has to be from 10ms to {longest:?}")))
}

fn invalid(what: String) -> BackendError {
    BackendError::new(BackendErrorKind::InvalidConfig, what)
}
