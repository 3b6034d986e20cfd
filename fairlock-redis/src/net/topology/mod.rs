//! Which server keeps a key, and where a call goes next if that server does not keep it.
//!
//! A request was not executed if it was never sent, or if the refusal means "not me" or "not now": it is sent again to
//! the right server. The caller judges all other failures; a request that may have been executed is not repeated here.
//!
//! What `sentinel.rs` and `cluster.rs` share stands at the end: how several servers are asked at once, and when a voter counts.

mod cluster;
mod sentinel;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use fairlock_core::backend::{BackendError, LineLimit};
use redis::{Cmd, Value, cmd};

pub(super) use cluster::Cluster;
pub(crate) use cluster::{slot_of, tag_of_slot};
pub(super) use sentinel::Sentinel;
pub(crate) use sentinel::{SentinelAnswer, Surveyed};

use super::commands::{ALL_ARE_BACK, CommandConnection, Listeners, Pool};
use super::connection::{Address, Failure, REPLICA, Timeouts, field, items, number, open, text};
use super::settings::Settings;
use super::subscription::{Endpoints, OnEvent, Subscriber};

/// The servers of a backend.
pub(crate) type Servers = Arc<dyn Topology>;

/// How the servers are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// One server.
    Single,
    /// The master that sentinels name.
    Sentinels,
    /// The nodes of a cluster, each of which keeps some of the hash slots.
    Cluster,
}

/// What the arrangements differ in. The default methods are those of a single server.
pub(crate) trait Topology: Endpoints + fmt::Display {
    fn settings(&self) -> &Settings;

    fn arrangement(&self) -> Arrangement;

    /// The way to the server that keeps the key, as far as known.
    fn route(&self, key: &str) -> Result<Route, Failure>;

    /// Which server to ask after this failure; none if the request may have been executed, or another attempt is vain.
    fn next_route(&self, _failed: &Failed<'_>) -> Option<Route> {
        None
    }

    /// The failure with which a call ends.
    fn settled(&self, failure: Failure) -> Failure {
        failure
    }

    /// The failure with the server's reason, for which the server is asked: one round trip.
    fn explored(&self, failure: Failure) -> Failure {
        failure
    }

    /// Whether a server that refuses so did nothing, and another attempt on its own may succeed.
    fn was_not_executed(&self, code: &str) -> bool;

    /// After a failure: the server may no longer be the right one.
    fn doubt(&self, _pool: &Arc<Pool>) {}

    /// The way to every server that keeps keys.
    fn servers(&self) -> Result<Vec<Route>, Failure> {
        self.route("").map(|route| vec![route])
    }

    /// The reply of each such server to one command; silent servers may be missing.
    fn each(&self, question: &Cmd) -> Vec<Described> {
        let ask = |route: Route| (route.pool.address().clone(), route.call(&question.get_packed_command()));
        self.route("").into_iter().map(ask).collect()
    }

    /// The hash slots that this server keeps, as far as known; none outside a cluster.
    fn slots_of(&self, _server: &Pool) -> Vec<u16> {
        Vec::new()
    }

    /// For which waiters the server knows whether their clients are subscribed: a client that the server does not see receives nothing.
    fn listeners(&self) -> Listeners;

    /// What each sentinel says, if there are any.
    fn survey(&self) -> Vec<Surveyed> {
        Vec::new()
    }

    /// The commands by which the servers are found.
    fn commands(&self) -> &'static [&'static [&'static str]] {
        &[]
    }
}

/// Which server to ask, and how.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) pool: Arc<Pool>,
    /// With ASKING first: the key's slot is migrating to this node.
    pub(crate) is_asking: bool,
    /// The configuration epoch under which a majority names the server; 0 where none is asked.
    pub(crate) epoch: u64,
    /// The sentinels that named the server: how many are a majority, and a word for each run of a sentinel's process.
    pub(crate) voters: Option<Arc<str>>,
}

impl Route {
    fn to(pool: &Arc<Pool>) -> Route {
        Route { pool: Arc::clone(pool), is_asking: false, epoch: 0, voters: None }
    }

    /// Sends one packed command, see [`Pool::call`].
    pub(crate) fn call(&self, packed: &[u8]) -> Result<Value, Failure> {
        if !self.is_asking {
            return self.pool.call(packed);
        }
        // ASKING holds for the next command of the connection: one call, so that no other command comes in between.
        let asking = cmd("ASKING").get_packed_command();
        let mut answers = self.pool.call_many(&[asking.as_slice(), packed]);
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".into())))
    }
}

/// A server, and its reply to a question about itself.
pub(crate) type Described = (Address, Result<Value, Failure>);

/// An attempt that failed: the way that it took, and how many there were.
pub(crate) struct Failed<'a> {
    key: &'a str,
    route: &'a Route,
    failure: &'a Failure,
    tried: u32,
    until: Instant,
}

/// How `call_all` asks more than one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// On a thread for each server, so that a frozen server delays only its own renewals.
    AtOnce,
    /// On the caller's thread: a call that is not urgent starts no thread.
    InTurn,
}

/// A failure, and the server that it came from.
#[derive(Clone, Debug)]
pub(crate) struct ServerFailure {
    pub(crate) failure: Failure,
    pub(crate) at: String,
}

impl dyn Topology {
    /// Runs `ask` on the server that keeps the key; again only if it was certainly not executed.
    pub(crate) fn call<T>(
        &self,
        key: &str,
        ask: impl FnMut(&Route) -> Result<T, Failure>,
    ) -> Result<T, ServerFailure> {
        self.call_until(Instant::now() + self.timeouts().response, key, ask)
    }

    fn call_until<T>(
        &self,
        until: Instant,
        key: &str,
        mut ask: impl FnMut(&Route) -> Result<T, Failure>,
    ) -> Result<T, ServerFailure> {
        let (mut route, mut tried) = (self.route(key).map_err(|failure| self.nowhere(failure))?, 0);
        loop {
            let failure = match ask(&route) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            tried += 1;
            self.doubt_after(&failure, &route.pool);
            let failed = Failed { key, route: &route, failure: &failure, tried, until };
            match self.next_route(&failed) {
                Some(next) => route = next,
                None => {
                    let failure = self.explored(self.settled(failure));
                    return Err(ServerFailure::at(&route.pool, failure));
                }
            }
        }
    }

    /// Sends packed commands, each to the server that keeps its key: one round trip a server. Commands that did not run are
    /// retried one by one with `again`. One answer each, in order; `heard` makes it of what the server said.
    pub(crate) fn call_all(
        &self,
        keys: &[&str],
        pack: impl Fn(usize, &Route) -> Vec<u8> + Sync,
        order: Order,
        heard: impl Fn(usize, &Pool, Result<Value, Failure>) -> Result<Value, Failure>,
        again: impl Fn(usize, &Route) -> Result<Value, Failure>,
    ) -> Vec<Result<Value, ServerFailure>> {
        let mut answers: Vec<Option<Result<Value, ServerFailure>>> = keys.iter().map(|_| None).collect();
        let mut servers: Vec<Part> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            match self.route(key) {
                Ok(route) => match servers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &route.pool)) {
                    Some((_, items)) => items.push((at, route)),
                    None => servers.push((Arc::clone(&route.pool), vec![(at, route)])),
                },
                Err(failure) => answers[at] = Some(Err(self.nowhere(failure))),
            }
        }
        let replies = ask_each(&servers, &pack, order);
        let until = Instant::now() + self.timeouts().response;
        // A server has one reason for many commands, and is asked for it once.
        let mut explored: Option<(Failure, Failure)> = None;
        let was_not_executed = |code: &str| code == "NOSCRIPT" || self.was_not_executed(code);
        for ((pool, items), replies) in servers.iter().zip(replies) {
            let none = || Err(Failure::Broken("no answer".into()));
            let replies = replies.into_iter().chain(std::iter::repeat_with(none));
            for ((at, _), reply) in items.iter().zip(replies) {
                answers[*at] = Some(match reply {
                    Err(failure)
                        if failure.code().is_some_and(was_not_executed) || pool.refused_late(&failure) =>
                    {
                        self.call_until(until, keys[*at], |route| again(*at, route))
                    }
                    reply => heard(*at, pool, reply).map_err(|failure| {
                        self.doubt_after(&failure, pool);
                        let failure = self.settled(failure);
                        let reason = match &explored {
                            Some((same, reason)) if *same == failure => reason.clone(),
                            _ => self.explored(failure.clone()),
                        };
                        explored = Some((failure, reason.clone()));
                        ServerFailure::at(pool, reason)
                    }),
                });
            }
        }
        let none = || Err(self.nowhere(Failure::NotSent("no server".into())));
        answers.into_iter().map(|answer| answer.unwrap_or_else(none)).collect()
    }

    /// Listens on a channel, and on further channels on demand, at a server that gets all messages for them.
    ///
    /// # Errors
    /// As [`Subscriber::start`].
    pub(crate) fn listen(
        self: &Arc<Self>,
        channel: String,
        on_event: OnEvent,
    ) -> Result<Subscriber, Failure> {
        Subscriber::start(Arc::clone(self) as _, self.timeouts(), channel, on_event)
    }

    /// Whether one server keeps all keys, so that a script may be about many.
    pub(crate) fn is_one_server(&self) -> bool {
        self.arrangement() != Arrangement::Cluster
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.settings().timeouts
    }

    fn doubt_after(&self, failure: &Failure, pool: &Arc<Pool>) {
        let is_of_a_wrong_one = |code| {
            matches!(code, "MOVED" | "CLUSTERDOWN" | "READONLY" | "LOADING" | "MASTERDOWN" | "OLDEPOCH")
        };
        if failure.code().is_none_or(is_of_a_wrong_one) {
            self.doubt(pool);
        }
    }

    /// The failure without a way to a server: nothing was sent.
    fn nowhere(&self, failure: Failure) -> ServerFailure {
        self.failed(failure.before_sending())
    }

    fn failed(&self, failure: Failure) -> ServerFailure {
        ServerFailure { failure, at: self.to_string() }
    }
}

/// One address, which may belong to one server, or lead to whichever is the master now: a DNS name, a Kubernetes Service, a proxy that
/// checks roles. So when a server turns out to be a replica, all connections are closed ([`Pool`]), the next connections go where
/// the address leads now, and until then there is an outage. Only an address that has never led to a master is a mistake of the
/// configuration.
pub(crate) struct Single {
    pub(crate) pool: Arc<Pool>,
    pub(crate) settings: Settings,
}

impl Topology for Single {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn arrangement(&self) -> Arrangement {
        Arrangement::Single
    }

    fn route(&self, _: &str) -> Result<Route, Failure> {
        Ok(Route::to(&self.pool))
    }

    /// One more attempt only: it connects anew, and reaches the new master or does not.
    fn next_route(&self, failed: &Failed<'_>) -> Option<Route> {
        let is_unexecuted = failed.failure.code().is_some_and(|code| self.was_not_executed(code));
        let may_try = failed.tried == 1 && Instant::now() <= failed.until;
        (is_unexecuted && may_try).then(|| Route::to(&self.pool))
    }

    /// Where the address may be wrong, another attempt is vain.
    fn was_not_executed(&self, code: &str) -> bool {
        matches!(code, "READONLY" | "MASTERDOWN") && !self.pool.may_be_wrong()
    }

    /// Decides whether waiting can help a call that a replica has refused, where there never was a master.
    ///
    /// While its master is well, the server stays a replica, so the call ends at once, and says where the master is. While its master is
    /// away, the server may be about to be promoted, as by a script that has moved an address to it: then the call goes on, as in an
    /// outage, and so it does if the server is a master by now.
    fn explored(&self, failure: Failure) -> Failure {
        if failure.code() != Some("READONLY") || !self.pool.may_be_wrong() {
            return failure;
        }
        let master = self.pool.call(cmd("ROLE").get_packed_command()).ok().and_then(|role| master_of(&role));
        master.map_or(failure, |master| Failure::refused(REPLICA, &format!("of {master}")))
    }

    /// As behind sentinels: after a fail-over the subscribers arrive one by one.
    fn listeners(&self) -> Listeners {
        let has_moved = self.pool.left_since().is_some_and(|since| since <= ALL_ARE_BACK);
        if has_moved { Listeners::Unknown } else { self.pool.listeners() }
    }
}

/// Reads the reply to ROLE of a replica, as far as its master is well: `slave`, host, port, the state of the link, an offset.
fn master_of(role: &Value) -> Option<String> {
    let [role, host, port, link, ..] = items(role).ok()? else { return None };
    let is_well = text(role).ok()? == "slave" && text(link).ok()? == "connected";
    is_well.then_some(format!("{}:{}", text(host).ok()?, number(port).ok()?))
}

impl Endpoints for Single {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.pool.address_in_charge())
    }

    /// A replica hears what is published at its master, but the scripts there count its own subscribers only.
    fn era(&self) -> u64 {
        self.pool.era()
    }
}

impl fmt::Display for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.address().fmt(f)
    }
}

/// A server, and the index and route of each command for it.
type Part = (Arc<Pool>, Vec<(usize, Route)>);

/// The replies of each server.
fn ask_each(
    servers: &[Part],
    pack: &(impl Fn(usize, &Route) -> Vec<u8> + Sync),
    order: Order,
) -> Vec<Vec<Result<Value, Failure>>> {
    let ask = |(pool, items): &Part| {
        pool.call_many_as_known(items.len(), |item| {
            let (at, route) = &items[item];
            pack(*at, route)
        })
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

impl ServerFailure {
    pub(crate) fn at(pool: &Pool, failure: Failure) -> ServerFailure {
        ServerFailure { failure, at: pool.address().to_string() }
    }

    /// The error for the backend's caller; `asked` says in a few words what the server was asked for.
    pub(crate) fn explain(&self, asked: &str) -> BackendError {
        self.failure.explain(&self.at, asked)
    }
}

/// How long the slower servers have after enough answers.
const LONGER: Duration = Duration::from_millis(100);

/// The lines about threads that can't be started.
static NO_THREAD: LineLimit = LineLimit::new();

/// One server's answer: a reply to each command; an error reply counts as one.
type Answer = (Address, Result<Vec<Result<Value, Failure>>, Failure>);

/// Asks each server on its own connection, at the same time: a frozen server does not delay the others. Returns [`LONGER`] after `enough` answers, or with the last one, at the
/// latest after connect + response time-out; servers without an answer are missing.
pub(super) fn fan_out(
    addresses: &[Address],
    timeouts: Timeouts,
    question: &[Cmd],
    enough: usize,
) -> Vec<Answer> {
    let (sender, answers) = channel();
    ask_all(addresses, timeouts, question, move |answer| {
        // The caller may no longer wait for it.
        let _ = sender.send(answer);
    });
    let mut until = Instant::now() + timeouts.connect + timeouts.response;
    let (mut found, mut good) = (Vec::new(), 0);
    while let Ok(answer) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        good += usize::from(answer.1.is_ok());
        if good >= enough {
            until = until.min(Instant::now() + LONGER);
        }
        found.push(answer);
    }
    found
}

/// Asks each server on a thread of its own (`fairlock-fanout`), which calls `heard` with the answer, once and after connect + response
/// time-out at the latest, and ends.
fn ask_all(
    addresses: &[Address],
    timeouts: Timeouts,
    question: &[Cmd],
    heard: impl Fn(Answer) + Clone + Send + 'static,
) {
    let packed: Arc<[u8]> = question.iter().flat_map(Cmd::get_packed_command).collect();
    let count = question.len();
    for address in addresses {
        let (to, packed, hears) = (address.clone(), Arc::clone(&packed), heard.clone());
        let ask = move || {
            let answer = ask(&to, timeouts, &packed, count);
            hears((to, answer));
        };
        let thread = thread::Builder::new().name("fairlock-fanout".to_owned()).spawn(ask);
        if let Err(error) = thread {
            if let Some(count) = NO_THREAD.count(1, Instant::now()) {
                log::warn!(
                    target: "fairlock::net",
                    event = "no thread", count = count, error:% = error;
                    "can't start {count} thread(s) to ask a server: {error}"
                );
            }
            heard((address.clone(), Err(Failure::NotSent("no thread to ask it".into()))));
        }
    }
}

fn ask(
    address: &Address,
    timeouts: Timeouts,
    packed: &[u8],
    replies: usize,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let (mut connection, mut answers) = (CommandConnection::new(), Vec::new());
    connection.connect(open(address, &timeouts)?);
    connection.exchange(packed, replies, Instant::now(), timeouts.response, |reply| answers.push(reply))?;
    Ok(answers)
}

/// How much of a run's id is told to the servers: enough to tell the runs of a few processes apart.
const DIGITS: usize = 12;

/// One run of the process of a voter, which is a server whose majority counts.
///
/// A voter whose file was lost may name a server that the voter had given up. While its former vote is part of a proof for one server,
/// the voter must not count for another server. So a voter counts only a trust after its start: every earlier proof has then ended.
/// The voter's clock tells its start; after that clock was set back, the client's first meeting with this run of the voter does.
#[derive(Clone, Debug)]
struct Run {
    /// The id of the run, which changes with each restart, with or without a file.
    id: String,
    /// How long the voter has been up by its wall clock, in seconds. Both ends were rounded down, so it may be a second less. 0 if the
    /// clock was set back to before the start.
    uptime: u64,
}

/// The question about the run, asked in one round trip with the vote.
fn run_question() -> Cmd {
    cmd("INFO").arg("server").to_owned()
}

impl Run {
    /// Reads the reply to [`run_question`].
    fn read(reply: &Value) -> Result<Run, Failure> {
        let unintelligible = || Failure::Broken("an unintelligible answer to INFO".into());
        let info = text(reply).map_err(|_| unintelligible())?;
        let id = field(info, "run_id").and_then(|id| id.get(..DIGITS));
        let id = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let uptime = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse::<i64>().ok());
        match (id, uptime) {
            (Some(id), Some(uptime)) => Ok(Run { id: id.to_owned(), uptime: uptime.try_into().unwrap_or(0) }),
            _ => Err(unintelligible()),
        }
    }
}

/// The present run of each voter that a client has met, and since when it knows that run.
#[derive(Default)]
struct Runs(HashMap<String, (String, Instant)>);

impl Runs {
    /// Whether a run lasts for longer than this, as the voter says, or as the client has seen.
    fn is_older(&mut self, voter: &str, run: &Run, least: Duration, now: Instant) -> bool {
        let (known, since) = self.0.entry(voter.to_owned()).or_insert_with(|| (run.id.clone(), now));
        if *known != run.id {
            (*known, *since) = (run.id.clone(), now);
        }
        Duration::from_secs(run.uptime) > least || now.saturating_duration_since(*since) > least
    }
}

#[cfg(test)]
mod run_tests;
#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
