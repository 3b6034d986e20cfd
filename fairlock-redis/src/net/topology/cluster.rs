//! A cluster: which node keeps a lock's hash slot, and where a call goes next after the wrong node.
//!
//! The `redis` crate's own client repeats scripts that timed out, and never leaves a dead node. Each call about a lock
//! touches one slot, so a map of the slots is enough; it is refreshed when it turns out to be wrong.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use parking_lot::Mutex;
use redis::{Cmd, Value, cmd};

use self::ballot::Report;
use self::quorum::Quorum;
use super::fan_out::{Answer, fan_out};
use super::route::{Described, Mode, Route};
use super::slot_map::{View, redirection};
use super::voter;
use crate::durability::Voting;
use crate::hash_slot::{NO_SLOT, SLOTS, of_lock};
use crate::keys::life_of_slot;
use crate::net::commands::{Pool, PoolSettings};
use crate::net::connection::{Address, Failure, Timeouts};
use crate::net::subscription::Endpoints;

mod ballot;
mod quorum;

/// The least time between two refreshes of the map.
const PAUSE: Duration = Duration::from_millis(100);
/// How many nodes are asked for the map; others the next time.
const MOST_ASKED: usize = 7;
/// How many redirections one call follows.
const MOST_HOPS: u32 = 5;
/// The first pause while the keys of a lock migrate to another node; it doubles each time.
const MIGRATION_PAUSE: Duration = Duration::from_millis(5);

/// The nodes, and which of them keeps which slot.
pub(crate) struct Cluster {
    /// The nodes that the user has named; asked when too few others are known.
    seeds: Vec<Address>,
    pub(super) timeouts: Timeouts,
    pools: PoolSettings,
    map: Mutex<Map>,
    /// With it, a request is sent only to a node that a majority has named.
    quorum: Option<Quorum>,
    /// Held while one caller refreshes the map, over I/O with time-outs; the others go on with the old map.
    asking: Mutex<()>,
    turn: AtomicUsize,
}

struct Map {
    /// By host and port, including replicas: their pools connect when they are used.
    nodes: HashMap<String, Arc<Pool>>,
    slots: Vec<Option<Arc<Pool>>>,
    /// A call has failed since the last refresh.
    doubted: bool,
    refreshed: Option<Instant>,
}

impl Cluster {
    /// Asks the nodes that the user has named for the map.
    ///
    /// # Errors
    /// None of them answers, or they are not in cluster mode.
    pub(crate) fn connect(
        seeds: Vec<Address>,
        timeouts: Timeouts,
        pools: PoolSettings,
        voting: Option<Voting>,
    ) -> Result<Arc<Cluster>, BackendError> {
        let slots = vec![None; usize::from(SLOTS)];
        let map = Map { nodes: HashMap::new(), slots, doubted: true, refreshed: None };
        let cluster = Cluster {
            seeds,
            timeouts,
            pools,
            map: Mutex::new(map),
            quorum: voting.map(Quorum::new),
            asking: Mutex::new(()),
            turn: AtomicUsize::new(0),
        };
        let explain = |failure: Failure| failure.explain(&cluster, "asking for the hash slots");
        cluster.refresh_map().map_err(explain)?;
        if cluster.quorum.is_some() {
            // All nodes vote, and only now they are known.
            cluster.refresh_map().map_err(explain)?;
        }
        Ok(Arc::new(cluster))
    }

    /// The way to the node that keeps the lock's slot, by the map, or as a majority has named it. If a call has failed since the
    /// last refresh, or the majority was asked too long ago, the nodes are asked first: that takes at most connect + response
    /// time-out, and as much again for a caller that waits for another one's round.
    ///
    /// # Errors
    /// `CROSSSLOT` for a name whose keys a cluster can't keep together, `CLUSTERDOWN` if no node keeps the slot, `NotSent` if no
    /// majority names one.
    pub(super) fn route(&self, lock: &str) -> Result<Route, Failure> {
        let Some(slot) = of_lock(lock) else { return Err(Failure::refused("CROSSSLOT", NO_SLOT)) };
        if let Some(quorum) = &self.quorum {
            return self.proven(quorum, slot);
        }
        let mut seen = Ok(());
        if self.map.lock().is_due() {
            seen = self.refresh_map();
        }
        let mut map = self.map.lock();
        match &map.slots[usize::from(slot)] {
            Some(pool) => Ok(Route::to(pool)),
            None => {
                map.doubted = true;
                seen.and(Err(Failure::refused("CLUSTERDOWN", &format!("no node keeps hash slot {slot}"))))
            }
        }
    }

    /// Where a call goes next after this failure; none if it may have been executed, or another attempt is vain.
    pub(super) fn next_route(
        &self,
        lock: &str,
        route: &Route,
        failure: &Failure,
        tried: u32,
        until: Instant,
    ) -> Option<Route> {
        if Instant::now() >= until {
            return None;
        }
        match failure {
            Failure::Broken(_) => None,
            // Another node may have taken over the slots of a dead one.
            Failure::NotSent(_) => {
                let next = self.route(lock).ok()?;
                (tried < MOST_HOPS && !Arc::ptr_eq(&next.pool, &route.pool)).then_some(next)
            }
            Failure::Refused { code, message } => match code.as_str() {
                // Only a node that a majority names is asked, so the slot's move, or the news of it, has to be over. The target of
                // ASK may never own the slot.
                "MOVED" | "ASK" | "OLDEPOCH" if self.quorum.is_some() => self.after_pause(lock, tried, until),
                "MOVED" | "ASK" if tried > MOST_HOPS => None,
                "MOVED" => {
                    let (slot, to) = redirection(route.pool.address(), message)?;
                    let pool = self.node(&to);
                    self.map.lock().slots[usize::from(slot)] = Some(Arc::clone(&pool));
                    Some(Route::to(&pool))
                }
                // For this call only: the slot still belongs to the first node.
                "ASK" => {
                    let (_, to) = redirection(route.pool.address(), message)?;
                    Some(Route { mode: Mode::Asking, ..Route::to(&self.node(&to)) })
                }
                // Some of the lock's keys have moved and some have not. Only time helps, so this is no hop.
                "TRYAGAIN" => self.after_pause(lock, tried, until),
                _ => None,
            },
        }
    }

    /// The slot is on its way to another node: keys of it may be gone, with the holds in them. If the move is broken off, the node that
    /// keeps the slot must not count as one that knows them. So its life ends as soon as a durable client hears of the move, and no
    /// script begins one before the move is over: some of its keys are missing. (A deletion that comes late costs a grace.)
    pub(super) fn end_life_of_open_slot(&self, lock: &str, node: &Arc<Pool>, failure: &Failure) {
        let is_open = matches!(failure.code(), Some("ASK" | "TRYAGAIN"));
        if let (true, true, Some(slot)) = (self.pools.is_durable, is_open, of_lock(lock)) {
            let _ = node.call(cmd("DEL").arg(life_of_slot(slot)).get_packed_command());
        }
    }

    fn after_pause(&self, lock: &str, tried: u32, until: Instant) -> Option<Route> {
        let pause = MIGRATION_PAUSE * (1 << tried.min(5));
        thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
        self.route(lock).ok()
    }

    /// Whether a node that refuses so did nothing, and another attempt on its own may succeed.
    pub(super) fn was_not_executed(&self, code: &str) -> bool {
        match code {
            "MOVED" | "OLDEPOCH" => true,
            "ASK" => self.quorum.is_none(),
            // TRYAGAIN is left to the watchdog's next round: here each command would wait on its own.
            _ => false,
        }
    }

    /// After a failure: the map may be wrong, and is refreshed before the next call.
    pub(super) fn doubt(&self, pool: &Arc<Pool>, failure: &Failure) {
        let doubtful = match failure {
            Failure::Broken(_) | Failure::NotSent(_) => true,
            Failure::Refused { code, .. } => {
                matches!(
                    code.as_str(),
                    "MOVED" | "CLUSTERDOWN" | "READONLY" | "LOADING" | "MASTERDOWN" | "OLDEPOCH"
                )
            }
        };
        if doubtful {
            self.map.lock().doubted = true;
            if let Some(quorum) = &self.quorum {
                quorum.doubt(pool);
            }
        }
    }

    /// The nodes that keep slots, by the map.
    pub(super) fn primaries(&self) -> Vec<Arc<Pool>> {
        let mut primaries: Vec<Arc<Pool>> = Vec::new();
        for pool in self.map.lock().slots.iter().flatten() {
            if !primaries.iter().any(|known| known.address().is_same_server(pool.address())) {
                primaries.push(Arc::clone(pool));
            }
        }
        primaries
    }

    /// The ways to the nodes that keep slots.
    ///
    /// # Errors
    /// With a quorum: it does not name the keeper of each slot.
    pub(super) fn servers(&self) -> Result<Vec<Route>, Failure> {
        let Some(quorum) = &self.quorum else { return Ok(self.primaries().iter().map(Route::to).collect()) };
        let mut servers: Vec<Route> = Vec::new();
        for slot in 0..SLOTS {
            let route = self.proven(quorum, slot)?;
            if !servers.iter().any(|known| Arc::ptr_eq(&known.pool, &route.pool)) {
                servers.push(route);
            }
        }
        Ok(servers)
    }

    /// The slots that this node keeps, as far as known.
    pub(super) fn slots_of(&self, node: &Arc<Pool>) -> Vec<u16> {
        let keeper = |slot: u16| match &self.quorum {
            Some(quorum) => quorum.keeper(slot),
            None => self.map.lock().slots[usize::from(slot)].clone(),
        };
        let keeps =
            |slot: &u16| keeper(*slot).is_some_and(|pool| pool.address().is_same_server(node.address()));
        (0..SLOTS).filter(keeps).collect()
    }

    /// The reply of each primary to one command; silent ones are missing.
    pub(super) fn describe(&self, question: &Cmd) -> Vec<Described> {
        let primaries: Vec<Address> = self.primaries().iter().map(|pool| pool.address().clone()).collect();
        let answers = fan_out(&primaries, self.timeouts, std::slice::from_ref(question), 1);
        let first = |(node, answer): Answer| {
            let reply = answer.and_then(|replies| replies.into_iter().next().unwrap_or(Ok(Value::Nil)));
            (node, reply)
        };
        answers.into_iter().map(first).collect()
    }

    /// Asks the nodes for the map, and accepts the view that most of them share. Does nothing while another caller does.
    fn refresh_map(&self) -> Result<(), Failure> {
        let Some(_asking) = self.asking.try_lock() else { return Ok(()) };
        self.ask_nodes()
    }

    /// The same for one who holds `asking`. With a quorum, the votes are counted as well.
    fn ask_nodes(&self) -> Result<(), Failure> {
        let (nodes, asked) = (self.to_be_asked(), Instant::now());
        // Before the nodes are asked: a doubt that comes up while they answer causes another refresh.
        self.map.lock().doubted = false;
        let mut question = vec![cmd("CLUSTER").arg("SLOTS").to_owned()];
        let mut enough = 1;
        if let Some(quorum) = &self.quorum {
            quorum.begin(asked);
            question.extend([cmd("CLUSTER").arg("NODES").to_owned(), voter::question()]);
            enough = nodes.len() / 2 + 1;
        }
        let answers = fan_out(&nodes, self.timeouts, &question, enough);
        let mut failure = Failure::NotSent("no node answers".to_owned());
        let (mut views, mut reports) = (Vec::new(), Vec::new());
        for (node, answer) in answers {
            let mut replies = answer.unwrap_or_else(|failure| vec![Err(failure)]).into_iter();
            let slots = replies.next().unwrap_or_else(|| Err(failure.clone()));
            let view = slots.and_then(|reply| View::read(&node, &reply));
            let report = match (replies.next(), replies.next()) {
                (Some(nodes), Some(info)) => nodes
                    .and_then(|nodes| Report::read(&node, &nodes, &info?))
                    .map(|report| reports.push(report)),
                _ => Ok(()),
            };
            match view.map(|view| views.push(view)).and(report) {
                Ok(()) => {}
                // A refusal says more than the silence of another node.
                Err(said @ Failure::Refused { .. }) => failure = said,
                Err(said) if !matches!(failure, Failure::Refused { .. }) => failure = said,
                Err(_) => {}
            }
        }
        let are_no_votes = self.quorum.is_some() && reports.is_empty();
        if let Some(quorum) = &self.quorum {
            quorum.count(asked, reports, |node| self.node(node));
        }
        let mut map = self.map.lock();
        map.refreshed = Some(Instant::now());
        match View::most_common(&views) {
            Some(view) => {
                self.accept(&mut map, view);
                if are_no_votes { Err(failure) } else { Ok(()) }
            }
            None => {
                map.doubted = true;
                Err(failure)
            }
        }
    }

    /// Some of the known nodes and the seeds, others each time; with a quorum all of them.
    fn to_be_asked(&self) -> Vec<Address> {
        let mut known: Vec<Address> =
            self.map.lock().nodes.values().map(|pool| pool.address().clone()).collect();
        let voters = self.quorum.as_ref().map_or_else(Vec::new, Quorum::voters);
        for other in voters.iter().chain(&self.seeds) {
            if !known.iter().any(|node| node.is_same_server(other)) {
                known.push(other.clone());
            }
        }
        if self.quorum.is_some() {
            return known;
        }
        known.sort_by_key(Address::to_string);
        let start = self.turn.fetch_add(MOST_ASKED, Ordering::Relaxed) % known.len().max(1);
        known.rotate_left(start);
        known.truncate(MOST_ASKED);
        known
    }

    fn accept(&self, map: &mut Map, view: &View) {
        let nodes: HashMap<String, Arc<Pool>> = view
            .nodes
            .iter()
            .map(|node| {
                // A known node keeps its pool, with its connections and its back-off.
                let known = map.nodes.get(&node.to_string()).cloned();
                (node.to_string(), known.unwrap_or_else(|| self.new_pool(node)))
            })
            .collect();
        map.slots.fill(None);
        for (first, last, node) in &view.ranges {
            let pool = nodes.get(&node.to_string());
            map.slots[usize::from(*first)..=usize::from(*last)].fill(pool.cloned());
        }
        map.nodes = nodes;
    }

    fn node(&self, address: &Address) -> Arc<Pool> {
        let mut map = self.map.lock();
        let node = map.nodes.entry(address.to_string()).or_insert_with(|| self.new_pool(address));
        Arc::clone(node)
    }

    fn new_pool(&self, address: &Address) -> Arc<Pool> {
        Arc::new(Pool::new(address.clone(), self.timeouts, self.pools.clone()))
    }
}

impl Map {
    fn is_due(&self) -> bool {
        self.doubted && self.refreshed.is_none_or(|refreshed| refreshed.elapsed() >= PAUSE)
    }
}

/// A message published at one node reaches the subscribers of every node, including replicas. So any node will do, and
/// the next one when it fails.
impl Endpoints for Cluster {
    fn next(&self) -> Result<Address, Failure> {
        let mut nodes: Vec<Address> =
            self.map.lock().nodes.values().map(|pool| pool.address().clone()).collect();
        nodes.sort_by_key(Address::to_string);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1);
        nodes.into_iter().nth(turn).ok_or_else(|| Failure::NotSent("no node is known".to_owned()))
    }

    /// A node that was removed from the cluster gets no messages.
    fn serves(&self, at: &Address) -> bool {
        self.map.lock().nodes.contains_key(&at.to_string())
    }

    fn count(&self) -> usize {
        self.map.lock().nodes.len()
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<String> = self.seeds.iter().map(Address::to_string).collect();
        write!(f, "cluster of {}", seeds.join(", "))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({self})")
    }
}

#[cfg(test)]
mod tests;
