//! A cluster: in which hash slot a lock's keys are, which node keeps the slot, and where a call goes next after the wrong node.
//!
//! The `redis` crate's own client repeats scripts that timed out, and never leaves a dead node. Each call about a lock touches
//! one slot, so a map of the slots is enough. A wrong map is refreshed.

mod majority;
mod round;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crc16::{State, XMODEM};
use fairlock_core::backend::BackendError;
use parking_lot::Mutex;
use redis::{Cmd, Value};

use majority::Majority;
use round::{View, redirection};

use super::{Answer, Arrangement, Described, Failed, Route, Topology, fan_out};
use crate::net::commands::{Listeners, Pool};
use crate::net::connection::{Address, Failure};
use crate::net::settings::Settings;
use crate::net::subscription::Endpoints;

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
    settings: Settings,
    map: Mutex<Map>,
    /// With it, a request is sent only to a node that a majority has named.
    majority: Option<Majority>,
    /// Held while one caller refreshes the map, over I/O with time-outs; the others go on with the old map.
    asking: Mutex<()>,
    turn: AtomicUsize,
    /// For the threads that count the nodes' answers.
    this: Weak<Cluster>,
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
    pub(crate) fn connect(seeds: Vec<Address>, settings: &Settings) -> Result<Arc<Cluster>, BackendError> {
        let slots = vec![None; usize::from(SLOTS)];
        let map = Map { nodes: HashMap::new(), slots, doubted: true, refreshed: None };
        let cluster = Arc::new_cyclic(|this| Cluster {
            seeds,
            settings: settings.clone(),
            map: Mutex::new(map),
            majority: settings.majority.map(Majority::new),
            asking: Mutex::new(()),
            turn: AtomicUsize::new(0),
            this: Weak::clone(this),
        });
        let explain = |failure: Failure| failure.explain_first(&*cluster, "asking for the hash slots");
        cluster.refresh_map().map_err(explain)?;
        if let Some(majority) = &cluster.majority {
            // All nodes vote, and only now they are known.
            cluster.begin_round(majority, majority.state.lock());
        }
        Ok(cluster)
    }

    fn after_pause(&self, key: &str, tried: u32, until: Instant) -> Option<Route> {
        let pause = MIGRATION_PAUSE * (1 << tried.min(5));
        thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
        self.route(key).ok()
    }

    /// The nodes that keep slots, by the map.
    fn primaries(&self) -> Vec<Arc<Pool>> {
        let mut primaries: Vec<Arc<Pool>> = Vec::new();
        for pool in self.map.lock().slots.iter().flatten() {
            if !primaries.iter().any(|known| known.address().is_same_server(pool.address())) {
                primaries.push(Arc::clone(pool));
            }
        }
        primaries
    }

    /// Asks the nodes for the map, and accepts the view that most of them share. Does nothing while another caller does.
    fn refresh_map(&self) -> Result<(), Failure> {
        let Some(_asking) = self.asking.try_lock() else { return Ok(()) };
        self.ask_nodes()
    }

    /// Some of the known nodes and the seeds, others each time.
    fn to_be_asked(&self) -> Vec<Address> {
        let mut known: Vec<Address> =
            self.map.lock().nodes.values().map(|pool| pool.address().clone()).collect();
        for seed in &self.seeds {
            if !known.iter().any(|node| node.is_same_server(seed)) {
                known.push(seed.clone());
            }
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
            .map(|(at, node)| {
                // A known node keeps its pool, with its connections and its back-off.
                let known = map.nodes.get(at).cloned();
                (at.clone(), known.unwrap_or_else(|| self.new_pool(node)))
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
        Arc::new(Pool::new(address.clone(), &self.settings))
    }
}

impl Map {
    fn is_due(&self) -> bool {
        self.doubted && self.refreshed.is_none_or(|refreshed| refreshed.elapsed() >= PAUSE)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<String> = self.seeds.iter().map(Address::to_string).collect();
        write!(f, "cluster of {}", seeds.join(", "))
    }
}

impl Topology for Cluster {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn arrangement(&self) -> Arrangement {
        Arrangement::Cluster
    }

    /// The way to the node that keeps the key's slot, by the map, or as a majority has named it. If a call has failed since the
    /// last refresh, or the majority was asked too long ago, the nodes are asked first: that takes at most connect + response
    /// time-out, and as much again for a caller that waits for another one's round.
    ///
    /// # Errors
    /// `CROSSSLOT` for a name whose keys a cluster can't keep together, `CLUSTERDOWN` if no node keeps the slot, `NotSent` if no
    /// majority names one.
    fn route(&self, key: &str) -> Result<Route, Failure> {
        let Some(slot) = slot_of(key) else { return Err(Failure::refused("CROSSSLOT", NO_SLOT)) };
        if let Some(majority) = &self.majority {
            return self.proven(majority, slot);
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

    /// Where a call goes next after this failure; none if the call may have been executed, or another attempt is vain.
    fn next_route(&self, failed: &Failed<'_>) -> Option<Route> {
        let Failed { key, route, failure, tried, until } = *failed;
        if Instant::now() >= until {
            return None;
        }
        match failure {
            Failure::Broken(_) => None,
            // Another node may have taken over the slots of a dead one.
            Failure::NotSent(_) => {
                let next = self.route(key).ok()?;
                (tried < MOST_HOPS && !Arc::ptr_eq(&next.pool, &route.pool)).then_some(next)
            }
            Failure::Refused { code, message, .. } => match code.as_str() {
                // Only a node that a majority names is asked, so the slot's move, or the news of it, has to be over. The target of
                // ASK may never own the slot.
                "MOVED" | "ASK" | "OLDEPOCH" if self.majority.is_some() => {
                    self.after_pause(key, tried, until)
                }
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
                    Some(Route { is_asking: true, ..Route::to(&self.node(&to)) })
                }
                // Some of the script's keys have moved and some have not. Only time helps, so this is no hop.
                "TRYAGAIN" => self.after_pause(key, tried, until),
                _ => None,
            },
        }
    }

    /// The failure with which a call ends. A redirection that is not followed, or not any more, only means that the slot is moving: its
    /// node redirects to the new node, which lacks keys of the script, since some keys don't exist.
    fn settled(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused { code, message, .. } if matches!(code.as_str(), "MOVED" | "ASK") => {
                Failure::refused("TRYAGAIN", &format!("{code} {message}"))
            }
            failure => failure,
        }
    }

    /// Whether a node that refuses so did nothing, and another attempt on its own may succeed.
    fn was_not_executed(&self, code: &str) -> bool {
        match code {
            "MOVED" | "OLDEPOCH" => true,
            "ASK" => self.majority.is_none(),
            // TRYAGAIN is left to the watchdog's next round: here each command would wait on its own.
            _ => false,
        }
    }

    /// After a failure: the map may be wrong, and is refreshed before the next call.
    fn doubt(&self, pool: &Arc<Pool>) {
        self.map.lock().doubted = true;
        if let Some(majority) = &self.majority {
            majority.doubt(pool);
        }
    }

    /// The ways to the nodes that keep slots.
    ///
    /// # Errors
    /// Where a majority counts: it does not name the keeper of each slot.
    fn servers(&self) -> Result<Vec<Route>, Failure> {
        let Some(majority) = &self.majority else {
            return Ok(self.primaries().iter().map(Route::to).collect());
        };
        let mut servers: Vec<Route> = Vec::new();
        for slot in 0..SLOTS {
            let route = self.proven(majority, slot)?;
            if !servers.iter().any(|known| Arc::ptr_eq(&known.pool, &route.pool)) {
                servers.push(route);
            }
        }
        Ok(servers)
    }

    /// The slots that this node keeps, as far as known.
    fn slots_of(&self, node: &Pool) -> Vec<u16> {
        let keeper = |slot: u16| match &self.majority {
            Some(majority) => majority.keeper(slot),
            None => self.map.lock().slots[usize::from(slot)].clone(),
        };
        let keeps =
            |slot: &u16| keeper(*slot).is_some_and(|pool| pool.address().is_same_server(node.address()));
        (0..SLOTS).filter(keeps).collect()
    }

    /// The reply of each primary to one command; silent ones are missing.
    fn each(&self, question: &Cmd) -> Vec<Described> {
        let primaries: Vec<Address> = self.primaries().iter().map(|pool| pool.address().clone()).collect();
        let answers = fan_out(&primaries, self.settings.timeouts, std::slice::from_ref(question), 1);
        let first = |(node, answer): Answer| {
            let reply = answer.and_then(|replies| replies.into_iter().next().unwrap_or(Ok(Value::Nil)));
            (node, reply)
        };
        answers.into_iter().map(first).collect()
    }

    /// A node sees only its own subscribers.
    fn listeners(&self) -> Listeners {
        Listeners::Unknown
    }

    fn commands(&self) -> &'static [&'static [&'static str]] {
        let all: &[&[&str]] = &[&["CLUSTER", "SLOTS"], &["ASKING"], &["CLUSTER", "NODES"]];
        if self.majority.is_some() { all } else { &all[..2] }
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
        nodes.into_iter().nth(turn).ok_or_else(|| Failure::NotSent("no node is known".into()))
    }

    /// A node that was removed from the cluster gets no messages.
    fn serves(&self, at: &Address) -> bool {
        self.map.lock().nodes.contains_key(&at.to_string())
    }

    fn count(&self) -> usize {
        self.map.lock().nodes.len()
    }
}

/// The number of hash slots.
const SLOTS: u16 = 16384;

/// Why a name has no slot.
const NO_SLOT: &str = "because of its braces";

/// The slot of all keys of this name: each key is a prefix and the name, in braces if the name has no `{`. None if the keys have
/// different slots.
pub(crate) fn slot_of(name: &str) -> Option<u16> {
    match name.split_once('{') {
        Some((_, rest)) => match rest.split_once('}') {
            Some((tag, _)) if !tag.is_empty() => Some(slot_of_hashed(tag)),
            // The server hashes the whole key, and the prefixes differ.
            _ => None,
        },
        // In braces, the hashed part would end at the name's own `}`.
        None if name.contains('}') => None,
        None => Some(slot_of_hashed(name)),
    }
}

/// A number whose digits are in this slot. A key with these in braces is there as well.
pub(crate) fn tag_of_slot(slot: u16) -> u32 {
    /// The smallest for each slot, found when the first one is needed.
    static TAGS: LazyLock<HashMap<u16, u32>> = LazyLock::new(|| {
        let (mut tags, mut number) = (HashMap::new(), 0);
        while tags.len() < usize::from(SLOTS) {
            tags.entry(slot_of_hashed(&u32::to_string(&number))).or_insert(number);
            number += 1;
        }
        tags
    });
    TAGS[&(slot % SLOTS)]
}

fn slot_of_hashed(hashed: &str) -> u16 {
    State::<XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

#[cfg(test)]
mod slot_tests;
#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
