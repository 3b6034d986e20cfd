//! Which server keeps a lock, and where a call goes next if that server does not keep it.
//!
//! A request was not executed if it was never sent, or if the refusal means "not me" or "not now": it is sent again to
//! the right server. The caller judges all other failures; a request that may have been executed is not repeated here.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use redis::{Cmd, Value};

use super::commands::Pool;
use super::connection::{Address, Failure};
use super::subscription::Endpoints;
use crate::keys::{LIFE, life_of_slot};

mod cluster;
mod fan_out;
mod route;
mod sentinel;
mod slot_map;
mod voter;

pub(crate) use cluster::Cluster;
#[cfg(test)]
pub(crate) use fan_out::fan_out;
use route::Described;
pub(crate) use route::Route;
pub(crate) use sentinel::{Said, Sentinel, Surveyed};

/// The servers of a backend.
#[derive(Debug)]
pub(crate) enum Topology {
    /// One server.
    Single(Arc<Pool>),
    /// The master that sentinels name.
    Sentinel(Arc<Sentinel>),
    /// The nodes of a cluster, each of which keeps some of the hash slots.
    Cluster(Arc<Cluster>),
}

/// How [`Topology::ask_all`] asks more than one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// On a thread for each, so that a frozen server delays only its own renewals.
    AtOnce,
    /// On the caller's thread: no thread is started for what is not urgent.
    InTurn,
}

/// A failure, and the server that it came from.
#[derive(Clone, Debug)]
pub(crate) struct ServerFailure {
    pub(crate) failure: Failure,
    at: String,
}

impl Topology {
    /// Runs `ask` on the server that keeps the lock; again only if it was certainly not executed.
    pub(crate) fn ask<T>(
        &self,
        lock: &str,
        ask: impl FnMut(&Route) -> Result<T, Failure>,
    ) -> Result<T, ServerFailure> {
        self.ask_until(Instant::now() + self.patience(), lock, ask)
    }

    fn ask_until<T>(
        &self,
        until: Instant,
        lock: &str,
        mut ask: impl FnMut(&Route) -> Result<T, Failure>,
    ) -> Result<T, ServerFailure> {
        let (mut route, mut tried) = (self.route(lock)?, 0);
        loop {
            let failure = match ask(&route) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            tried += 1;
            match self.next_route(lock, &route, &failure, tried, until) {
                Some(next) => route = next,
                None => return Err(ServerFailure::at(&route.pool, self.settled(failure))),
            }
        }
    }

    /// Sends packed scripts, each to the server that keeps its lock: one round trip a server. What a server did not execute is done `again`, one
    /// by one. One answer each, in order; `heard` makes it of a reply.
    pub(crate) fn ask_all<'p>(
        &self,
        locks: &[&str],
        pack: impl Fn(usize, &Route) -> Cow<'p, [u8]>,
        order: Order,
        heard: impl Fn(usize, &Pool, Value) -> Value,
        again: impl Fn(usize, &Route) -> Result<Value, Failure>,
    ) -> Vec<Result<Value, ServerFailure>> {
        let mut answers: Vec<Option<Result<Value, ServerFailure>>> = locks.iter().map(|_| None).collect();
        let mut servers: Vec<Part<'p>> = Vec::new();
        for (at, lock) in locks.iter().enumerate() {
            match self.route(lock) {
                Ok(route) => {
                    let item = (at, pack(at, &route));
                    match servers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &route.pool)) {
                        Some((_, items)) => items.push(item),
                        None => servers.push((route.pool, vec![item])),
                    }
                }
                Err(trouble) => answers[at] = Some(Err(trouble)),
            }
        }
        let replies = ask_each(&servers, order);
        let until = Instant::now() + self.patience();
        for ((pool, items), replies) in servers.iter().zip(replies) {
            let none = || Err(Failure::Broken("no answer".to_owned()));
            let replies = replies.into_iter().chain(std::iter::repeat_with(none));
            for ((at, _), reply) in items.iter().zip(replies) {
                answers[*at] = Some(match reply {
                    Err(failure) if self.was_not_executed(&failure) || pool.refused_late(&failure) => {
                        self.ask_until(until, locks[*at], |route| again(*at, route))
                    }
                    Err(failure) => {
                        self.doubt(pool, &failure);
                        if let Topology::Cluster(cluster) = self {
                            cluster.end_life_of_open_slot(locks[*at], pool, &failure);
                        }
                        Err(ServerFailure::at(pool, self.settled(failure)))
                    }
                    Ok(reply) => Ok(heard(*at, pool, reply)),
                });
            }
        }
        let nowhere =
            || Err(ServerFailure { failure: Failure::NotSent("no server".to_owned()), at: self.to_string() });
        answers.into_iter().map(|answer| answer.unwrap_or_else(nowhere)).collect()
    }

    /// The way to the server that keeps the lock, as far as known.
    fn route(&self, lock: &str) -> Result<Route, ServerFailure> {
        let route = match self {
            Topology::Single(pool) => Ok(Route::to(pool)),
            Topology::Sentinel(sentinel) => sentinel.route(),
            Topology::Cluster(cluster) => cluster.route(lock),
        };
        route.map_err(|failure| ServerFailure { failure, at: self.to_string() })
    }

    /// Where to ask after this failure; none if the request may have been executed, or another attempt is vain.
    fn next_route(
        &self,
        lock: &str,
        route: &Route,
        failure: &Failure,
        tried: u32,
        until: Instant,
    ) -> Option<Route> {
        self.doubt(&route.pool, failure);
        if let Topology::Cluster(cluster) = self {
            cluster.end_life_of_open_slot(lock, &route.pool, failure);
        }
        match self {
            Topology::Single(_) => None,
            Topology::Cluster(cluster) => cluster.next_route(lock, route, failure, tried, until),
            // One more attempt only: the sentinels are asked, and name another master or do not.
            Topology::Sentinel(_) if tried > 1 || Instant::now() > until => None,
            Topology::Sentinel(_) => match failure {
                Failure::NotSent(_) => self.route(lock).ok(),
                // A replica takes no writes, and a script that is refused for its epoch does none: nothing was executed.
                Failure::Refused { code, .. } if is_not_executed(code) => self.route(lock).ok(),
                Failure::Refused { .. } | Failure::Broken(_) => None,
            },
        }
    }

    fn settled(&self, failure: Failure) -> Failure {
        match self {
            Topology::Single(_) | Topology::Sentinel(_) => failure,
            Topology::Cluster(cluster) => cluster.settled(failure),
        }
    }

    /// Whether the server did not execute the command, and another attempt on its own may succeed.
    fn was_not_executed(&self, failure: &Failure) -> bool {
        match (self, failure.code()) {
            (_, Some("NOSCRIPT")) => true,
            (Topology::Sentinel(_), code) => code.is_some_and(is_not_executed),
            (Topology::Cluster(cluster), code) => code.is_some_and(|code| cluster.was_not_executed(code)),
            (Topology::Single(_), _) => false,
        }
    }

    /// The way to every server that keeps locks.
    pub(crate) fn servers(&self) -> Result<Vec<Route>, ServerFailure> {
        let servers = match self {
            Topology::Single(pool) => Ok(vec![Route::to(pool)]),
            Topology::Sentinel(sentinel) => sentinel.route().map(|route| vec![route]),
            Topology::Cluster(cluster) => cluster.servers(),
        };
        servers.map_err(|failure| ServerFailure { failure, at: self.to_string() })
    }

    /// The keys of the lives of this server: one, or one for each hash slot that it keeps.
    pub(crate) fn lives(&self, server: &Route) -> Vec<String> {
        match self {
            Topology::Single(_) | Topology::Sentinel(_) => vec![LIFE.to_owned()],
            Topology::Cluster(cluster) => {
                cluster.slots_of(&server.pool).into_iter().map(life_of_slot).collect()
            }
        }
    }

    /// The reply of each server that keeps locks to one command.
    pub(super) fn describe(&self, question: &Cmd) -> Vec<Described> {
        let pool = match self {
            Topology::Single(pool) => Ok(Arc::clone(pool)),
            Topology::Sentinel(sentinel) => sentinel.master(),
            Topology::Cluster(cluster) => return cluster.describe(question),
        };
        let describe = |pool: Arc<Pool>| (pool.address().clone(), pool.call(question.get_packed_command()));
        pool.into_iter().map(describe).collect()
    }

    /// After a failure: the server may no longer be the right one.
    fn doubt(&self, pool: &Arc<Pool>, failure: &Failure) {
        match (self, failure) {
            (Topology::Single(_), _) => {}
            (Topology::Cluster(cluster), failure) => cluster.doubt(pool, failure),
            (Topology::Sentinel(sentinel), Failure::Broken(_) | Failure::NotSent(_)) => sentinel.doubt(pool),
            (Topology::Sentinel(sentinel), Failure::Refused { code, .. }) => {
                if matches!(code.as_str(), "READONLY" | "LOADING" | "MASTERDOWN" | "OLDEPOCH") {
                    sentinel.doubt(pool);
                }
            }
        }
    }

    /// Whether the server that keeps a lock sees every subscriber: then a client that it does not see receives nothing.
    pub(crate) fn sees_all_subscribers(&self) -> bool {
        match self {
            Topology::Single(_) => true,
            Topology::Sentinel(sentinel) => sentinel.sees_all_subscribers(),
            // A node sees only its own subscribers.
            Topology::Cluster(_) => false,
        }
    }

    /// Whether one server keeps all locks, so that a script may be about many.
    pub(crate) fn is_one_server(&self) -> bool {
        !matches!(self, Topology::Cluster(_))
    }

    /// How long a call tries again.
    fn patience(&self) -> Duration {
        match self {
            Topology::Single(_) => Duration::ZERO,
            Topology::Sentinel(sentinel) => sentinel.timeouts.response,
            Topology::Cluster(cluster) => cluster.timeouts.response,
        }
    }
}

/// Whether a master that sentinels name refuses so what another one may take.
fn is_not_executed(code: &str) -> bool {
    matches!(code, "READONLY" | "OLDEPOCH")
}

/// A server, and its part of the commands, with the index of each.
type Part<'p> = (Arc<Pool>, Vec<(usize, Cow<'p, [u8]>)>);

/// The replies of each server.
fn ask_each(servers: &[Part<'_>], order: Order) -> Vec<Vec<Result<Value, Failure>>> {
    let ask = |(pool, items): &Part<'_>| {
        let packed: Vec<&[u8]> = items.iter().map(|(_, packed)| &**packed).collect();
        pool.call_many(&packed)
    };
    if order == Order::InTurn || servers.len() == 1 {
        return servers.iter().map(ask).collect();
    }
    thread::scope(|scope| {
        let start = |server| {
            let builder = thread::Builder::new().name("fairlock-renew".to_owned());
            (server, builder.spawn_scoped(scope, move || ask(server)))
        };
        let started: Vec<_> = servers.iter().map(start).collect();
        let ended = started.into_iter().map(|(server, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_default(),
            // Without a thread: one server after the other.
            Err(_) => ask(server),
        });
        ended.collect()
    })
}

impl Endpoints for Topology {
    fn next(&self) -> Result<Address, Failure> {
        match self {
            Topology::Single(pool) => Ok(pool.address().clone()),
            Topology::Sentinel(sentinel) => sentinel.next(),
            Topology::Cluster(cluster) => cluster.next(),
        }
    }

    fn serves(&self, at: &Address) -> bool {
        match self {
            Topology::Single(_) => true,
            Topology::Sentinel(sentinel) => sentinel.serves(at),
            Topology::Cluster(cluster) => cluster.serves(at),
        }
    }

    fn count(&self) -> usize {
        match self {
            Topology::Single(_) | Topology::Sentinel(_) => 1,
            Topology::Cluster(cluster) => cluster.count(),
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Single(pool) => write!(f, "{}", pool.address()),
            Topology::Sentinel(sentinel) => write!(f, "{sentinel}"),
            Topology::Cluster(cluster) => write!(f, "{cluster}"),
        }
    }
}

impl ServerFailure {
    pub(crate) fn at(pool: &Pool, failure: Failure) -> ServerFailure {
        ServerFailure { failure, at: pool.address().to_string() }
    }

    /// The error for the backend's caller; `asked` says in a few words what the server was asked for.
    pub(crate) fn explain(&self, asked: &str) -> BackendError {
        self.failure.explain(&self.at, asked)
    }
}
