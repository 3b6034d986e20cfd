//! A cluster of real nodes that replaces a primary quickly, and slots that are moved step by step.

use fairlock::settings::{Discipline, RedisBuilder};

use crate::eventually::eventually;
use crate::redis_server::{RedisServer, RedisServerBuilder};
use crate::residue::assert_no_residue;

/// The number of slots.
const SLOTS: u16 = 16384;

/// Three primaries, each with or without a replica. A node counts as failed after a second of silence.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries come first; node `n + 3` is the replica of node `n`.
    pub nodes: Vec<RedisServer>,
}

/// Whether the primaries have replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// None: starts faster.
    None,
    /// One each.
    One,
}

impl Cluster {
    /// Starts the nodes, assigns the slots to three primaries, and returns when all nodes agree.
    pub fn start(replicas: Replicas) -> Cluster {
        Cluster::start_with(replicas, |node| node)
    }

    /// The same, with extra settings for each node.
    pub fn start_with(
        replicas: Replicas,
        set_up: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Cluster {
        // Without replicas, a busy machine must not mark a node as failed.
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
            // Distinct epochs from the start. Nodes that must settle them later report errors meanwhile.
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
                eventually(what, || info(node, field) == value);
            }
        };
        all_know("every node knows the others", "cluster_known_nodes", &count.to_string());
        for (number, replica) in cluster.nodes[3..].iter().enumerate() {
            let primary = &cluster.nodes[number];
            // The replica must have heard of its primary first.
            eventually("the replica follows", || {
                replica.try_query::<()>(&["CLUSTER", "REPLICATE", &id(primary)]).is_ok()
            });
            eventually("the replica has its primary's data", || {
                replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
            });
        }
        // Without full coverage, a node is ok before it knows the other nodes' slots.
        all_know("every node knows the owner of each slot", "cluster_slots_assigned", &SLOTS.to_string());
        all_know("every node is ok", "cluster_state", "ok");
        // All at the same time: while nodes meet, links come and go, and published messages use whichever exist.
        eventually("every node is linked to all others and knows each one's replica", || {
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

    /// For a backend of the hand-off.
    pub fn builder(&self) -> RedisBuilder {
        let urls = self.urls();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        RedisBuilder::cluster(&urls).discipline(Discipline::HandOff)
    }

    /// The node that keeps this key, according to the running nodes.
    #[track_caller]
    pub fn owner_of(&self, key: &str) -> &RedisServer {
        self.try_owner_of(key).expect("a node keeps the key")
    }

    /// The same, or `None` while the nodes disagree.
    pub fn try_owner_of(&self, key: &str) -> Option<&RedisServer> {
        let slot = i64::from(self.slot_of(key));
        let mut owners = self.nodes.iter().filter(|node| node.is_running()).map(|node| {
            // Not as tuples: ranges have as many items as they have replicas, and more.
            let ranges: Vec<Vec<redis::Value>> = node.try_query(&["CLUSTER", "SLOTS"]).ok()?;
            let port = |range: &Vec<redis::Value>| match &range[..] {
                [redis::Value::Int(first), redis::Value::Int(last), primary, ..]
                    if (*first..=*last).contains(&slot) =>
                {
                    first_two(primary).map(|(_, port)| port)
                }
                _ => None,
            };
            ranges.iter().find_map(port)
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

    /// A lock name that belongs to this node.
    pub fn name_at(&self, node: &RedisServer, prefix: &str) -> String {
        let mut names = (0..10_000).map(|number| format!("{prefix}{number}"));
        names.find(|name| self.owner_of(name).port() == node.port()).expect("one of many names")
    }

    /// The first step of moving a slot. From now on its keys may be on either node.
    pub fn begin_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        let slot = slot.to_string();
        to.query::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.query::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// The second step: moves at most `most` keys and returns their names.
    pub fn move_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer, most: usize) -> Vec<String> {
        let keys: Vec<String> =
            from.query(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &most.to_string()]);
        for key in &keys {
            let port = to.port().to_string();
            let _: String = from.query(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        keys
    }

    /// The last step: the slot belongs to the other node, and all nodes know it.
    #[track_caller]
    pub fn end_move(&self, slot: u16, to: &RedisServer) {
        for node in [to].into_iter().chain(self.nodes[..3].iter()) {
            node.query::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id(to)]);
        }
    }

    /// Panics if any of our keys is left on a primary.
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
