//! A cluster: which node keeps a lock's hash slot, and where a call goes next after the wrong node.
//!
//! The `redis` crate's own client repeats scripts that timed out, and never leaves a dead node. Each call about a lock touches
//! one slot, so a map of the slots is enough. A wrong map is refreshed.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use parking_lot::Mutex;

use self::majority::Majority;
use super::Topology;
use super::route::Route;
use super::slot_map::View;
use crate::net::commands::Pool;
use crate::net::connection::{Address, Failure};
use crate::net::hash_slot::SLOTS;
use crate::net::settings::Settings;

mod ballot;
mod majority;
mod round;
mod topology;

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
    pub(super) fn primaries(&self) -> Vec<Arc<Pool>> {
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

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
