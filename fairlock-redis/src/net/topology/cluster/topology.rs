//! How a cluster answers as the servers of a backend: the way to a key's node, and where a call goes next after the wrong node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use redis::{Cmd, Value};

use super::{Cluster, MOST_HOPS};
use crate::net::commands::{Listeners, Pool};
use crate::net::connection::{Address, Failure};
use crate::net::hash_slot::{NO_SLOT, SLOTS, of_name};
use crate::net::settings::Settings;
use crate::net::subscription::Endpoints;
use crate::net::topology::fan_out::{Answer, fan_out};
use crate::net::topology::route::{Described, Route};
use crate::net::topology::slot_map::redirection;
use crate::net::topology::{Arrangement, Failed, Topology};

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
        let Some(slot) = of_name(key) else { return Err(Failure::refused("CROSSSLOT", NO_SLOT)) };
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
