//! A master with a replica and the sentinels that watch them: real processes that replace a master quickly.

use std::time::Instant;

use crate::eventually::eventually;
use crate::redis_server::{RedisServer, RedisServerBuilder};
use crate::tls::Certificates;

/// The sentinels' name for the master.
pub const MASTER: &str = "mymaster";

/// The settings of a set of [`Sentinels`].
#[derive(Clone, Debug, Default)]
pub struct SentinelsBuilder {
    server: RedisServerBuilder,
    sentinel: RedisServerBuilder,
    /// What a sentinel is told of the master behind its address.
    of_master: Vec<String>,
    steady: bool,
}

impl SentinelsBuilder {
    /// The servers require this password.
    pub fn requirepass(mut self, password: &str) -> Self {
        self.server = self.server.requirepass(password).arg("masterauth", password);
        self.of_master.push(format!("auth-pass {MASTER} {password}"));
        self
    }

    /// The sentinels require this password, also from each other.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel = self.sentinel.requirepass(password);
        self.of_master.push(format!("sentinel-pass {password}"));
        self
    }

    /// A user of the servers, as [`RedisServerBuilder::acl`].
    pub fn server_acl(mut self, rule: &str) -> Self {
        self.server = self.server.acl(rule);
        self
    }

    /// A user of the sentinels.
    pub fn sentinel_acl(mut self, rule: &str) -> Self {
        self.sentinel = self.sentinel.acl(rule);
        self
    }

    /// All of them speak TLS only, also with each other, with these certificates.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        (self.server, self.sentinel) =
            (self.server.tls_with(certificates), self.sentinel.tls_with(certificates));
        self
    }

    /// All of them ask clients for a certificate. After [`tls`](SentinelsBuilder::tls).
    pub fn asks_for_certificates(mut self) -> Self {
        (self.server, self.sentinel) =
            (self.server.arg("tls-auth-clients", "yes"), self.sentinel.arg("tls-auth-clients", "yes"));
        self
    }

    /// The master is never replaced, however busy the machine is.
    pub fn steady(mut self) -> Self {
        self.steady = true;
        self
    }

    /// Starts a master, a replica and three sentinels (with a quorum of two), and returns when they all know each
    /// other.
    pub fn start(self) -> Sentinels {
        let server = self.server.arg("repl-diskless-sync-delay", "0");
        let master = server.clone().start();
        let replica = server.arg("replicaof", &format!("127.0.0.1 {}", master.port())).start();
        let down_after = if self.steady { 60_000 } else { 500 };
        let told = [
            format!("monitor {MASTER} 127.0.0.1 {} 2", master.port()),
            format!("down-after-milliseconds {MASTER} {down_after}"),
            format!("failover-timeout {MASTER} 4000"),
        ];
        let told = told.iter().chain(&self.of_master);
        let sentinel = told.fold(self.sentinel.sentinel(), |sentinel, line| sentinel.arg("sentinel", line));
        let sentinels = (0..3).map(|_| sentinel.clone().start()).collect();
        let all = Sentinels { servers: vec![master, replica], sentinels };
        all.wait_until_known();
        all
    }
}

/// Two servers, one of them the master, and three sentinels.
#[derive(Debug)]
pub struct Sentinels {
    /// The first one was the first master.
    pub servers: Vec<RedisServer>,
    /// Clients get their [`url`](RedisServer::url)s.
    pub sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// Starts them without passwords.
    pub fn start() -> Sentinels {
        Sentinels::builder().start()
    }

    /// Starts them with other settings.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// The addresses of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// All of them as one address of the master, for sentinels without a password.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// The server that all running sentinels take for the master; `None` while two of them disagree.
    pub fn master(&self) -> Option<&RedisServer> {
        let asked = ["SENTINEL", "get-master-addr-by-name", MASTER];
        let said: Vec<(String, u16)> = self
            .sentinels
            .iter()
            .filter(|s| s.is_running())
            .filter_map(|s| s.try_query(&asked).ok())
            .collect();
        let (_, port) = said.first()?;
        let agreed = said.iter().all(|(_, other)| other == port);
        self.servers.iter().find(|server| agreed && server.port() == *port)
    }

    /// Waits until the sentinels have made `server` the master, and returns when that was seen.
    #[track_caller]
    pub fn wait_for_master(&self, server: &RedisServer) -> Instant {
        eventually("the sentinels name another master", || {
            self.master().is_some_and(|master| master.port() == server.port())
        });
        Instant::now()
    }

    /// Waits until a replica has everything that the master has written.
    #[track_caller]
    pub fn wait_until_replicated(&self, master: &RedisServer, replica: &RedisServer) {
        wait_until_replicated(master, replica);
    }

    #[track_caller]
    fn wait_until_known(&self) {
        let [master, replica] = &self.servers[..] else { panic!("there are two servers") };
        self.wait_until_replicated(master, replica);
        for sentinel in &self.sentinels {
            eventually("each sentinel knows the others and the replica", || {
                let details: Vec<String> = sentinel.query(&["SENTINEL", "master", MASTER]);
                let of = |name: &str| {
                    let at = details.iter().position(|word| word == name)?;
                    details.get(at + 1).cloned()
                };
                of("num-slaves").as_deref() == Some("1") && of("num-other-sentinels").as_deref() == Some("2")
            });
        }
        // A replica is promoted only after it has reported its link as up.
        for sentinel in &self.sentinels {
            eventually("each sentinel has seen the replica's link", || {
                let replicas: Vec<Vec<String>> = sentinel.query(&["SENTINEL", "replicas", MASTER]);
                let words = replicas.first().cloned().unwrap_or_default();
                words.windows(2).any(|pair| pair[0] == "master-link-status" && pair[1] == "ok")
            });
        }
    }
}

/// Waits until a replica has everything that the master has written.
#[track_caller]
pub(crate) fn wait_until_replicated(master: &RedisServer, replica: &RedisServer) {
    eventually("the replica has what the master has", || {
        field(replica, "master_link_status") == "up"
            && field(replica, "slave_repl_offset") == field(master, "master_repl_offset")
    });
}

/// A field of INFO replication.
fn field(server: &RedisServer, name: &str) -> String {
    let info: String = server.query(&["INFO", "replication"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}
