//! Which server keeps a lock, and where a call goes next if that server does not keep it.
//!
//! A request was not executed if it was never sent, or if the refusal means "not me" or "not now": it is sent again to
//! the right server. The caller judges all other failures; a request that may have been executed is not repeated here.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use redis::{Cmd, Value};

use super::commands::Pool;
use super::connection::{Address, Failure};
use super::subscription::Endpoints;

mod cluster;
mod fan_out;
mod hash_slot;
mod route;
mod sentinel;
mod slot_map;

pub(crate) use cluster::Cluster;
#[cfg(test)]
pub(crate) use fan_out::fan_out;
use route::Described;
pub(crate) use route::Route;
pub(crate) use sentinel::Sentinel;

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
                None => return Err(ServerFailure::at(&route.pool, failure)),
            }
        }
    }

    /// Sends packed commands, each to the server that keeps its lock: one round trip a server. What a server did not execute is done `again`, one
    /// by one. One answer each, in order.
    pub(crate) fn ask_all(
        &self,
        locks: &[&str],
        packed: &[&[u8]],
        order: Order,
        again: impl Fn(usize, &Route) -> Result<Value, Failure>,
    ) -> Vec<Result<Value, ServerFailure>> {
        let mut answers: Vec<Option<Result<Value, ServerFailure>>> = locks.iter().map(|_| None).collect();
        let mut servers: Vec<(Arc<Pool>, Vec<usize>)> = Vec::new();
        for (at, lock) in locks.iter().enumerate() {
            match self.route(lock) {
                Ok(Route { pool, .. }) => {
                    match servers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
                        Some((_, items)) => items.push(at),
                        None => servers.push((pool, vec![at])),
                    }
                }
                Err(trouble) => answers[at] = Some(Err(trouble)),
            }
        }
        let replies = ask_each(&servers, packed, order);
        let until = Instant::now() + self.patience();
        for ((pool, items), replies) in servers.iter().zip(replies) {
            let none = || Err(Failure::Broken("no answer".to_owned()));
            let replies = replies.into_iter().chain(std::iter::repeat_with(none));
            for (at, reply) in items.iter().zip(replies) {
                answers[*at] = Some(match reply {
                    Err(failure) if self.was_not_executed(&failure) => {
                        self.ask_until(until, locks[*at], |route| again(*at, route))
                    }
                    Err(failure) => {
                        self.doubt(pool, &failure);
                        Err(ServerFailure::at(pool, failure))
                    }
                    Ok(value) => Ok(value),
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
            Topology::Sentinel(sentinel) => sentinel.master().map(|pool| Route::to(&pool)),
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
        match self {
            Topology::Single(_) => None,
            Topology::Cluster(cluster) => cluster.next_route(lock, route, failure, tried, until),
            // One more attempt only: the sentinels are asked, and name another master or do not.
            Topology::Sentinel(_) if tried > 1 || Instant::now() > until => None,
            Topology::Sentinel(_) => match failure {
                Failure::NotSent(_) => self.route(lock).ok(),
                // A replica takes no writes, so it has executed nothing.
                Failure::Refused { code, .. } if code == "READONLY" => self.route(lock).ok(),
                Failure::Refused { .. } | Failure::Broken(_) => None,
            },
        }
    }

    /// Whether the server did not execute the command, and another attempt on its own may succeed.
    fn was_not_executed(&self, failure: &Failure) -> bool {
        match (self, failure.code()) {
            (_, Some("NOSCRIPT")) => true,
            (Topology::Sentinel(_), code) => code == Some("READONLY"),
            // TRYAGAIN is left to the watchdog's next round: here each command would wait on its own.
            (Topology::Cluster(_), code) => matches!(code, Some("MOVED" | "ASK")),
            (Topology::Single(_), _) => false,
        }
    }

    /// Every server that keeps locks.
    pub(crate) fn servers(&self) -> Result<Vec<Arc<Pool>>, ServerFailure> {
        let servers = match self {
            Topology::Single(pool) => Ok(vec![Arc::clone(pool)]),
            Topology::Sentinel(sentinel) => sentinel.master().map(|pool| vec![pool]),
            Topology::Cluster(cluster) => Ok(cluster.primaries()),
        };
        servers.map_err(|failure| ServerFailure { failure, at: self.to_string() })
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
            (Topology::Cluster(cluster), failure) => cluster.doubt(failure),
            (Topology::Sentinel(sentinel), Failure::Broken(_) | Failure::NotSent(_)) => sentinel.doubt(pool),
            (Topology::Sentinel(sentinel), Failure::Refused { code, .. }) => {
                if matches!(code.as_str(), "READONLY" | "LOADING" | "MASTERDOWN") {
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

/// The replies of each server to its part of the commands.
fn ask_each(
    servers: &[(Arc<Pool>, Vec<usize>)],
    packed: &[&[u8]],
    order: Order,
) -> Vec<Vec<Result<Value, Failure>>> {
    let ask = |(pool, items): &(Arc<Pool>, Vec<usize>)| {
        let packed: Vec<&[u8]> = items.iter().map(|at| packed[*at]).collect();
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
