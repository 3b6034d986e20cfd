//! A cluster: real nodes that know of each other, quick to replace a primary; and slots that are moved step by step.

use std::time::Duration;

use crate::eventually::eventually;
use crate::redis_server::{RedisServer, RedisServerBuilder};
use crate::residue::assert_no_residue;

/// How many slots there are.
const SLOTS: u16 = 16384;
/// Far more than a start or a fail-over takes, on a machine that is busy.
const BOUND: Duration = Duration::from_secs(40);

/// Three primaries, and perhaps a replica for each of them. A node is taken for dead after a second of silence.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries come first; node `n + 3` is the replica of node `n`.
    pub nodes: Vec<RedisServer>,
}

/// Whether primaries have replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// None: quicker to start.
    None,
    /// One each.
    One,
}

impl Cluster {
    /// Starts the nodes, shares the slots among three primaries, and returns when all nodes agree on that.
    pub fn start(replicas: Replicas) -> Cluster {
        Cluster::start_with(replicas, |node| node)
    }

    /// The same, with nodes that are set up further.
    pub fn start_with(
        replicas: Replicas,
        set_up: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Cluster {
        // Where nobody can take over, a machine that is busy must not take a node for dead.
        let (count, node_timeout) = if replicas == Replicas::None { (3, "15000") } else { (6, "1000") };
        let node = || {
            let node = RedisServer::builder()
                .arg("cluster-enabled", "yes")
                .arg("cluster-node-timeout", node_timeout)
                .arg("cluster-replica-validity-factor", "0")
                .arg("repl-diskless-sync-delay", "0");
            set_up(node).start()
        };
        let cluster = Cluster { nodes: (0..count).map(|_| node()).collect() };
        for (number, node) in cluster.nodes.iter().enumerate() {
            // Epochs of their own from the start: nodes that have to settle them later are not ok meanwhile.
            node.query::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number > 0 {
                cluster.nodes[0].query::<()>(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
            }
        }
        for (number, node) in cluster.nodes[..3].iter().enumerate() {
            let third = |n: usize| usize::from(SLOTS) * n / 3;
            let slots: Vec<String> =
                (third(number)..third(number + 1)).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            node.query::<()>(&words);
        }
        let all_know = |what: &str, field: &str, value: &str| {
            for node in &cluster.nodes {
                eventually(BOUND, what, || info(node, field) == value);
            }
        };
        all_know("every node knows the others", "cluster_known_nodes", &count.to_string());
        for (number, replica) in cluster.nodes[3..].iter().enumerate() {
            let primary = &cluster.nodes[number];
            // The replica has to have heard of its primary before.
            eventually(BOUND, "the replica follows", || {
                replica.try_query::<()>(&["CLUSTER", "REPLICATE", &id(primary)]).is_ok()
            });
            eventually(BOUND, "the replica has its primary's data", || {
                replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
            });
        }
        // Where full coverage is not required a node is ok before it has heard of the others' slots.
        all_know("every node knows whose each slot is", "cluster_slots_assigned", &SLOTS.to_string());
        all_know("every node is ok", "cluster_state", "ok");
        // All at the same time: while nodes meet, links come and go, and what is published goes by the links that are there.
        eventually(BOUND, "every node is linked to all others and knows who is whose replica", || {
            cluster.nodes.iter().all(|node| {
                let nodes: String = node.query(&["CLUSTER", "NODES"]);
                let replicas = nodes.lines().filter(|line| line.contains("slave")).count();
                let linked = |line: &str| line.contains(" connected") && !line.contains("handshake");
                nodes.lines().count() == count && nodes.lines().all(linked) && replicas == count - 3
            })
        });
        cluster
    }

    /// The addresses of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The node that keeps this key, as those see it that run.
    #[track_caller]
    pub fn owner_of(&self, key: &str) -> &RedisServer {
        self.try_owner_of(key).expect("somebody keeps the key")
    }

    /// The same while they may not agree.
    pub fn try_owner_of(&self, key: &str) -> Option<&RedisServer> {
        let slot = i64::from(self.slot_of(key));
        let mut owners = self.nodes.iter().filter(|node| node.is_running()).map(|node| {
            let ranges: Vec<(i64, i64, redis::Value)> = node.try_query(&["CLUSTER", "SLOTS"]).ok()?;
            let (.., primary) =
                ranges.into_iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
            let (_, port): (String, u16) = first_two(&primary)?;
            Some(port)
        });
        let first = owners.next()??;
        let agreed = owners.all(|owner| owner == Some(first));
        self.nodes.iter().find(|node| agreed && node.port() == first)
    }

    /// The slot of this key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.nodes.iter().find(|node| node.is_running()).expect("a node that runs");
        node.query(&["CLUSTER", "KEYSLOT", key])
    }

    /// A name whose lock the node keeps.
    pub fn name_at(&self, node: &RedisServer, prefix: &str) -> String {
        let mut names = (0..10_000).map(|number| format!("{prefix}{number}"));
        names.find(|name| self.owner_of(name).port() == node.port()).expect("one of so many")
    }

    /// The first step of moving a slot: from now on its keys may be at either node.
    pub fn begin_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        let slot = slot.to_string();
        to.query::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.query::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// The second step, for at most so many keys; says which.
    pub fn move_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer, most: usize) -> Vec<String> {
        let keys: Vec<String> =
            from.query(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &most.to_string()]);
        for key in &keys {
            let port = to.port().to_string();
            let _: String = from.query(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        keys
    }

    /// The last step: the slot is the other node's, and all know it.
    #[track_caller]
    pub fn end_move(&self, slot: u16, to: &RedisServer) {
        for node in [to].into_iter().chain(self.nodes[..3].iter()) {
            node.query::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id(to)]);
        }
    }

    /// Panics when anything of ours is left at a primary.
    #[track_caller]
    pub fn assert_no_residue(&self) {
        for node in self.nodes[..3].iter().filter(|node| node.is_running()) {
            assert_no_residue(node, &[]);
        }
    }
}

/// The id of a node.
pub fn id(node: &RedisServer) -> String {
    node.query(&["CLUSTER", "MYID"])
}

/// A field of CLUSTER INFO.
fn info(node: &RedisServer, name: &str) -> String {
    let info: String = node.query(&["CLUSTER", "INFO"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

fn first_two(node: &redis::Value) -> Option<(String, u16)> {
    let redis::Value::Array(parts) = node else { return None };
    let [host, port, ..] = &parts[..] else { return None };
    Some((redis::from_redis_value(host.clone()).ok()?, redis::from_redis_value(port.clone()).ok()?))
}
