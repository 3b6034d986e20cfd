//! The Redis backend: each method of the trait is a few keys, one script, one reply.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::ClientId;
use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};

use crate::builder::{Discipline, RedisBuilder, Settings};
use crate::ears::Ears;
use crate::hand_off::By;
use crate::net::topology::Topology;
use crate::run::run_all;
use crate::two_lines::TwoLines;
use crate::{answers, fair, hand_off, hold, inspect, plain};

/// Keeps locks on a Redis (or Valkey) server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct RedisBackend(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) servers: Arc<Topology>,
    pub(crate) settings: Settings,
    pub(crate) ears: Ears,
    pub(crate) two_lines: TwoLines,
}

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

    pub(crate) fn with_servers(servers: Topology, settings: Settings) -> RedisBackend {
        let servers = Arc::new(servers);
        RedisBackend(Arc::new(Inner {
            servers,
            settings,
            ears: Ears::default(),
            two_lines: TwoLines::default(),
        }))
    }
}

/// The rules that a lock follows.
enum Rules {
    HandOff,
    Redisson,
    Plain,
}

impl Inner {
    fn rules(&self, lock: &LockId) -> Rules {
        match (lock.kind, self.settings.discipline) {
            (LockKind::Plain, _) => Rules::Plain,
            (LockKind::Fair, Discipline::Redisson) => Rules::Redisson,
            (LockKind::Fair, Discipline::HandOff) => Rules::HandOff,
        }
    }

    /// How long the place of a waiter lasts by Redisson's rule: as long as he waits, or the thread wait.
    pub(crate) fn wait_of(&self, place: &Place<'_>) -> Duration {
        match place.wait {
            fairlock_core::backend::Wait::UpTo(time) => time,
            _ => self.settings.thread_wait,
        }
    }
}

impl Backend for RedisBackend {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let answer = match self.0.rules(ask.place.lock) {
            Rules::HandOff => hand_off::acquire(&self.0, ask),
            Rules::Redisson => fair::acquire(&self.0, ask),
            Rules::Plain => plain::acquire(&self.0, ask),
        }?;
        if let Acquired::Granted { token, lease } = answer {
            self.confirm(&ask.place, token, lease)?;
        }
        Ok(answer)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        match self.0.rules(hold.lock) {
            // The client counts, and the next renewal tells the server.
            Rules::HandOff => Ok(HoldCountSet::Set),
            Rules::Redisson | Rules::Plain => hold::set_hold_count(&self.0, hold, holds),
        }
    }

    fn release(&self, hold: &Hold<'_>, again: Option<&Acquire<'_>>) -> Result<Released, BackendError> {
        match self.0.rules(hold.lock) {
            Rules::HandOff => hand_off::release(&self.0, hold, again),
            Rules::Redisson => fair::release(&self.0, hold, again),
            Rules::Plain => plain::release(&self.0, hold, again),
        }
    }

    /// One pipeline: a script for each hold, and one for all places of a lock.
    fn renew(&self, _client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers: Vec<Option<Result<Renewal, BackendError>>> = items.iter().map(|_| None).collect();
        let (mut calls, mut asked) = (Vec::new(), Vec::new());
        for (indices, call) in self.renewals(items) {
            match call {
                Ok(call) => {
                    calls.push(call);
                    asked.push(indices);
                }
                Err(error) => indices.into_iter().for_each(|at| answers[at] = Some(Err(error.clone()))),
            }
        }
        for (indices, reply) in asked.into_iter().zip(run_all(&self.0.servers, &calls)) {
            let rows = reply.and_then(|reply| match &items[indices[0]] {
                Renew::Hold { .. } => Ok(vec![hold::renewed(&reply)]),
                Renew::Place { .. } => answers::renewed(&reply, indices.len()),
            });
            match rows {
                Ok(rows) => indices.into_iter().zip(rows).for_each(|(at, row)| answers[at] = Some(row)),
                Err(error) => indices.into_iter().for_each(|at| answers[at] = Some(Err(error.clone()))),
            }
        }
        let mut unconfirmed = None;
        for (item, answer) in items.iter().zip(&mut answers) {
            let (Renew::Place { place, .. }, Some(Ok(Renewal::Granted { token, lease }))) = (item, &*answer)
            else {
                continue;
            };
            // One wait in vain a round: the others are asked about in the next one.
            let confirmed = unconfirmed.clone().map_or_else(|| self.confirm(place, *token, *lease), Err);
            match confirmed {
                Ok(()) => self.0.ears.forget(place),
                Err(error) => {
                    unconfirmed = Some(error.clone());
                    *answer = Some(Err(error));
                }
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(crate::reply::missing()))).collect()
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        let withdrawn = match self.0.rules(place.lock) {
            Rules::HandOff => hand_off::withdraw(&self.0, place, By::Waiter),
            Rules::Redisson => fair::withdraw(&self.0, place),
            Rules::Plain => plain::withdraw(&self.0, place),
        }?;
        self.0.ears.forget(place);
        if let Withdrawn::WasGranted { token, lease } = withdrawn {
            self.confirm(place, token, lease)?;
        }
        Ok(withdrawn)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        match self.0.rules(place.lock) {
            Rules::HandOff => hand_off::withdraw(&self.0, place, By::Operator),
            // No place is put back there.
            Rules::Redisson => fair::withdraw(&self.0, place),
            Rules::Plain => plain::withdraw(&self.0, place),
        }
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        match self.0.rules(lock) {
            Rules::HandOff => hand_off::force_release(&self.0, lock),
            Rules::Redisson => fair::force_release(&self.0, lock),
            Rules::Plain => plain::force_release(&self.0, lock),
        }
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        // A plain handle, too, shows the line that this backend's fair locks have.
        match self.0.settings.discipline {
            Discipline::HandOff => hand_off::inspect(&self.0, lock, part),
            Discipline::Redisson => inspect::inspect(&self.0, lock, part),
        }
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        Ears::subscribe(&self.0, client, sink)
    }

    fn reconnects(&self) -> u64 {
        self.0.servers.reconnects()
    }
}

impl RedisBackend {
    /// The scripts that renew these items, and which items each is about.
    fn renewals(&self, items: &[Renew<'_>]) -> Vec<(Vec<usize>, Result<crate::run::Call, BackendError>)> {
        let mut calls = Vec::new();
        let mut places: HashMap<&LockId, Vec<usize>> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            match item {
                Renew::Hold { hold, holds, lease } => {
                    let call = match self.0.rules(hold.lock) {
                        Rules::HandOff => hand_off::renew_hold(hold, *holds, *lease),
                        Rules::Redisson | Rules::Plain => hold::renew(hold, *holds, *lease),
                    };
                    calls.push((vec![at], call));
                }

                Renew::Place { place, .. } => places.entry(place.lock).or_default().push(at),
            }
        }
        for (lock, mut waiting) in places {
            while !waiting.is_empty() {
                let rest = waiting.split_off(waiting.len().min(MOST_PLACES));
                let of_lock = waiting.iter().filter_map(|at| match &items[*at] {
                    Renew::Place { place, lease } => Some((place, *lease)),
                    Renew::Hold { .. } => None,
                });
                let call = match self.0.rules(lock) {
                    Rules::HandOff => hand_off::renew(&self.0, lock, of_lock),
                    Rules::Redisson => fair::renew(&self.0, lock, of_lock),
                    Rules::Plain => plain::renew(lock, of_lock),
                };
                calls.push((waiting, call));
                waiting = rest;
            }
        }
        calls
    }
}

/// How many places go into one call, so that none keeps the server for long.
const MOST_PLACES: usize = 200;

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend").field("servers", &self.0.servers.to_string()).finish_non_exhaustive()
    }
}
