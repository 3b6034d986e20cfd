//! Servers with replicas behind gates: a master watched by three sentinels, or a cluster. Server 0 keeps the locks first.

use std::thread;

use fairlock_tests::redis_server::RedisServerBuilder;
use fairlock_tests::sentinel::MASTER;
use fairlock_tests::{RedisServer, eventually};

use crate::clocks::Clock;
use crate::faults::{About, Fault};
use crate::network::{Gate, Network, Node, PASSWORD};
use crate::setting::{DOWN_AFTER, NODE_TIMEOUT};

/// The most workers of a run.
const WORKERS: u8 = 8;
/// The hash slots of a cluster's first node: a third of all.
const SLOTS: u16 = 16384;

/// Who replaces a server that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A master, two replicas, three sentinels.
    Sentinels,
    /// Three primaries with a replica each: server `n + 3` follows server `n`.
    Cluster,
    /// A primary and its standby, see `postgres.rs`.
    Postgres,
}

/// The servers of a round, as it sees them.
pub(crate) trait Servers {
    /// The addresses for one worker, or for this process.
    fn url(&self, worker: u8) -> String;
    /// Names of locks that the first server keeps: two, and the probe.
    fn locks(&self) -> [String; 3];
    /// Before the holder asks. Returns whether the first server is in charge.
    fn prepare(&self, fault: Fault) -> bool;
    /// Injects the fault, and returns when a server is in charge again. Nothing is injected where the first one was replaced already;
    /// returns whether.
    fn inject(&self, about: About<'_>, clock: Option<Clock>) -> bool;
    /// A lock was granted again.
    fn settle(&self, _: Fault) {}
    /// Mends all links.
    fn heal(&self);
    /// Whether a master was replaced more often than this demands.
    fn is_deposed(&self, _: Fault) -> bool {
        false
    }
}

impl Servers for Deployment {
    /// Each logs in as its own user everywhere.
    fn url(&self, worker: u8) -> String {
        let (scheme, named, path) = match self.kind {
            Kind::Sentinels => ("redis+sentinel", &self.sentinels, format!("/{MASTER}")),
            _ => ("redis+cluster", &self.servers, String::new()),
        };
        let hosts: Vec<String> =
            named.iter().map(|member| format!("127.0.0.1:{}", member.gate_port())).collect();
        format!("{scheme}://{}:{PASSWORD}@{}{path}", self.network.user(worker), hosts.join(","))
    }

    fn locks(&self) -> [String; 3] {
        let is_here = |name: &String| {
            self.kind == Kind::Sentinels
                || self.servers[0].server.query::<u16>(&["CLUSTER", "KEYSLOT", name]) < SLOTS / 3
        };
        ["lock:", "other:", "probe:"].map(|prefix| {
            (0..10_000).map(|number| format!("{prefix}{number}")).find(is_here).expect("one of many names")
        })
    }

    fn prepare(&self, fault: Fault) -> bool {
        let is_ready = self.master() == Some(0);
        if is_ready {
            fault.prepare(self);
        }
        is_ready
    }

    fn inject(&self, about: About<'_>, clock: Option<Clock>) -> bool {
        about.fault.inject(self, about, clock)
    }

    fn heal(&self) {
        self.network.heal();
    }

    fn is_deposed(&self, fault: Fault) -> bool {
        self.fail_overs() > fault.fail_overs()
    }
}

/// A process behind its gates.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) server: RedisServer,
    gate: Gate,
    /// The gate of a cluster node's second port.
    bus: Option<Gate>,
}

impl Member {
    /// `set_up` gets the port that the process has to announce.
    fn start(
        network: &Network,
        node: Node,
        set_up: impl FnOnce(RedisServerBuilder, &str) -> RedisServerBuilder,
    ) -> Member {
        let gate = Gate::open(network, node);
        let announced = gate.port().to_string();
        let server = RedisServer::builder().arg("bind-source-addr", &network.source(node));
        let server = (0..WORKERS).fold(server, |server, n| {
            server.acl(&format!("user {} on >{PASSWORD} ~* &* +@all", network.user(n)))
        });
        let server = set_up(server.arg("repl-diskless-sync-delay", "0"), &announced);
        let member = Member { server: server.start(), gate, bus: None };
        member.gate.lead_to(member.server.port());
        member
    }

    fn gate_port(&self) -> String {
        self.gate.port().to_string()
    }

    /// A field of INFO replication, empty while the server does not answer.
    pub(crate) fn replication(&self, name: &str) -> String {
        let info: String = self.server.try_query(&["INFO", "replication"]).unwrap_or_default();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }
}

/// All servers of a round.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) kind: Kind,
    pub(crate) network: Network,
    pub(crate) servers: Vec<Member>,
    pub(crate) sentinels: Vec<Member>,
}

impl Deployment {
    /// Starts all processes, and returns when each knows the others and the replicas have what the masters have.
    pub(crate) fn start(kind: Kind) -> Deployment {
        match kind {
            Kind::Sentinels => Deployment::start_sentinels(),
            _ => Deployment::start_cluster(),
        }
    }

    fn start_sentinels() -> Deployment {
        let network = Network::new();
        let mut servers: Vec<Member> = Vec::new();
        for number in 0..3 {
            let node = Node::Server(number);
            let master = servers.first().map(Member::gate_port);
            servers.push(Member::start(&network, node, |server, announced| {
                let server =
                    server.arg("replica-announce-ip", "127.0.0.1").arg("replica-announce-port", announced);
                match &master {
                    Some(master) => server.arg("replicaof", &format!("127.0.0.1 {master}")),
                    None => server,
                }
            }));
        }
        let watched = servers[0].gate_port();
        let sentinels = (0..3).map(|number| Deployment::sentinel(&network, number, &watched)).collect();
        let deployment = Deployment { kind: Kind::Sentinels, network, servers, sentinels };
        deployment.wait_until_complete();
        deployment
    }

    fn sentinel(network: &Network, number: u8, master: &str) -> Member {
        let node = Node::Sentinel(number);
        let member = Member::start(network, node, |sentinel, announced| {
            sentinel
                .sentinel()
                .arg("sentinel", &format!("monitor {MASTER} 127.0.0.1 {master} 2"))
                .arg("sentinel", &format!("down-after-milliseconds {MASTER} {}", DOWN_AFTER.as_millis()))
                .arg("sentinel", &format!("failover-timeout {MASTER} 4000"))
                .arg("sentinel", "announce-ip 127.0.0.1")
                .arg("sentinel", &format!("announce-port {announced}"))
        });
        // How soon sentinels hear of each other and of a replica's state; 2 s and 10 s by default. And how soon they connect anew: a
        // promotion ends their connections, and with 1 s, the default, the new master would count as down.
        for (period, time) in [("publish-period", "500"), ("info-period", "500"), ("ping-period", "200")] {
            member.server.query::<String>(&["SENTINEL", "DEBUG", period, time]);
        }
        member
    }

    /// Waits until each sentinel knows the other sentinels, and both replicas as ready for a promotion.
    fn wait_until_complete(&self) {
        let master = self.master().expect("the sentinels name a master");
        for (number, replica) in self.servers.iter().enumerate().filter(|(number, _)| *number != master) {
            eventually(&format!("replica {number} follows server {master}"), || {
                replica.replication("master_link_status") == "up"
                    && replica.replication("master_port") == self.servers[master].gate_port()
            });
        }
        for sentinel in &self.sentinels {
            eventually("each sentinel knows the other two and two replicas that are ready", || {
                let details: Vec<String> = sentinel.server.query(&["SENTINEL", "master", MASTER]);
                let replicas: Vec<Vec<String>> = sentinel.server.query(&["SENTINEL", "replicas", MASTER]);
                let ready = |replica: &Vec<String>| {
                    word(replica, "flags") == Some("slave")
                        && word(replica, "master-link-status") == Some("ok")
                };
                word(&details, "num-other-sentinels") == Some("2")
                    && word(&details, "flags") == Some("master")
                    && replicas.len() == 2
                    && replicas.iter().all(ready)
            });
        }
    }

    /// Waits until every sentinel knows that this replica goes first in an election; no longer if server 0 was replaced meanwhile.
    pub(crate) fn wait_until_preferred(&self, replica: u8) {
        let port = self.servers[usize::from(replica)].gate_port();
        eventually("every sentinel knows the replica's priority", || {
            self.sentinels.iter().all(|sentinel| {
                let replicas: Vec<Vec<String>> = sentinel.server.query(&["SENTINEL", "replicas", MASTER]);
                replicas.iter().any(|replica| {
                    word(replica, "port") == Some(&port) && word(replica, "slave-priority") == Some("1")
                })
            }) || self.master().is_some_and(|master| master != 0)
        });
    }

    /// The servers that copy server 0.
    pub(crate) fn replicas(&self) -> &'static [u8] {
        match self.kind {
            Kind::Sentinels => &[1, 2],
            _ => &[3],
        }
    }

    /// The server that is now in charge: a majority of the sentinels, or of the nodes, names it, and it agrees.
    pub(crate) fn master(&self) -> Option<usize> {
        let votes: Vec<u16> = match self.kind {
            Kind::Sentinels => {
                let asked = ["SENTINEL", "get-master-addr-by-name", MASTER];
                let answer = |sentinel: &Member| sentinel.server.try_query::<(String, u16)>(&asked).ok();
                self.sentinels.iter().filter_map(answer).map(|(_, port)| port).collect()
            }
            _ => self.running().filter_map(owner_of_slot_0).collect(),
        };
        let voters = if self.kind == Kind::Sentinels { 3 } else { 6 };
        let master = self.servers.iter().position(|member| {
            let named = votes.iter().filter(|port| **port == member.gate.port()).count();
            2 * named > voters
        })?;
        let agrees = self.servers[master].replication("role") == "master";
        agrees.then_some(master)
    }

    /// How often a master was replaced by an election: the one that the sentinels watch, or server 0 and those that follow it.
    pub(crate) fn fail_overs(&self) -> usize {
        let count = |member: &Member, words: &str| member.server.log().matches(words).count();
        match self.kind {
            Kind::Sentinels => {
                self.sentinels.iter().map(|member| count(member, "+switch-master")).max().unwrap_or_default()
            }
            _ => [0, 3].map(|number| count(&self.servers[number], "Failover election won")).iter().sum(),
        }
    }

    fn running(&self) -> impl Iterator<Item = &Member> {
        self.servers.iter().filter(|member| member.server.is_running())
    }

    /// Waits until another server is in charge, and returns it.
    #[track_caller]
    pub(crate) fn wait_for_other_than(&self, old: usize) -> usize {
        let mut new = None;
        eventually(&format!("another server than {old} is in charge"), || {
            new = self.master().filter(|master| *master != old);
            new.is_some()
        });
        new.expect("it was seen")
    }

    /// Waits until this many replicas have what this master has written so far; no longer if it was replaced meanwhile, as where the
    /// machine stood still.
    #[track_caller]
    pub(crate) fn wait_until_copied(&self, master: usize, replicas: usize) {
        let [_, _, probe] = self.locks();
        // In the same hash slot.
        let name = format!("{{{probe}}}:mark");
        eventually("the replicas have what the master has", || {
            let mut con = self.servers[master].server.con();
            // WAIT counts from the last write of this connection, which therefore makes one.
            let write = redis::cmd("SET").arg(&name).arg(1).arg("PX").arg(1000).exec(&mut con);
            let copies =
                write.and_then(|()| redis::cmd("WAIT").arg(replicas).arg(500).query::<usize>(&mut con));
            copies.is_ok_and(|copies| copies >= replicas) || self.master().is_some_and(|now| now != master)
        });
    }

    fn start_cluster() -> Deployment {
        let network = Network::new();
        let servers: Vec<Member> = (0..6).map(|number| Deployment::cluster_node(&network, number)).collect();
        for (number, member) in servers.iter().enumerate() {
            member.server.query::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number > 0 {
                let bus = member.bus.as_ref().expect("a node has two ports").port().to_string();
                let meet = ["CLUSTER", "MEET", "127.0.0.1", &member.gate_port(), &bus];
                servers[0].server.query::<()>(&meet);
            }
        }
        for (number, member) in servers[..3].iter().enumerate() {
            let third = |n: usize| (usize::from(SLOTS) * n / 3).to_string();
            let last = (usize::from(SLOTS) * (number + 1) / 3 - 1).to_string();
            member.server.query::<()>(&["CLUSTER", "ADDSLOTSRANGE", &third(number), &last]);
        }
        let all_know = |what: &str, field: &str, value: &str| {
            eventually(what, || servers.iter().all(|member| cluster_info(member, field) == value));
        };
        all_know("every node knows the others", "cluster_known_nodes", "6");
        for (primary, replica) in servers[..3].iter().zip(&servers[3..]) {
            let id: String = primary.server.query(&["CLUSTER", "MYID"]);
            eventually("the replica has heard of its primary", || {
                replica.server.try_query::<()>(&["CLUSTER", "REPLICATE", &id]).is_ok()
            });
            eventually("the replica follows", || replica.replication("master_link_status") == "up");
        }
        all_know("every node knows the owner of each slot", "cluster_slots_assigned", "16384");
        all_know("every node is ok", "cluster_state", "ok");
        eventually("every node is linked to all others and knows each replica", || {
            servers.iter().all(|member| {
                let nodes: String = member.server.query(&["CLUSTER", "NODES"]);
                let linked = |line: &str| line.contains(" connected") && !line.contains("handshake");
                let replicas = nodes.lines().filter(|line| line.contains("slave")).count();
                nodes.lines().count() == 6 && replicas == 3 && nodes.lines().all(linked)
            })
        });
        Deployment { kind: Kind::Cluster, network, servers, sentinels: Vec::new() }
    }

    fn cluster_node(network: &Network, number: u8) -> Member {
        let node = Node::Server(number);
        let bus = Gate::open(network, node);
        let mut member = Member::start(network, node, |server, announced| {
            server
                .arg("cluster-enabled", "yes")
                .arg("cluster-node-timeout", &NODE_TIMEOUT.as_millis().to_string())
                .arg("cluster-replica-validity-factor", "0")
                .arg("cluster-announce-ip", "127.0.0.1")
                .arg("cluster-announce-port", announced)
                .arg("cluster-announce-bus-port", &bus.port().to_string())
        });
        // A node's second port is its first plus 10,000.
        bus.lead_to(member.server.port() + 10_000);
        member.bus = Some(bus);
        member
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        self.network.end();
        if thread::panicking() {
            // Most rounds that break off wait for a fail-over.
            self.sentinels.iter().for_each(|sentinel| eprintln!("{}", sentinel.server.log()));
        }
        // Before any gate closes: another one may open on its port.
        self.servers.iter().chain(&self.sentinels).for_each(|member| member.server.kill());
    }
}

/// The value that follows a name in a flat list of both.
fn word<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).map(String::as_str)
}

fn cluster_info(member: &Member, name: &str) -> String {
    let info: String = member.server.try_query(&["CLUSTER", "INFO"]).unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// The port of the primary that this node takes for the owner of slot 0.
fn owner_of_slot_0(member: &Member) -> Option<u16> {
    let ranges: Vec<Vec<redis::Value>> = member.server.try_query(&["CLUSTER", "SLOTS"]).ok()?;
    let range = ranges.into_iter().find(|range| range.first() == Some(&redis::Value::Int(0)))?;
    let redis::Value::Array(primary) = range.get(2)? else { return None };
    redis::from_redis_value(primary.get(1)?.clone()).ok()
}
