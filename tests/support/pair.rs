//! A master with a replica that takes its place by hand: nobody tells clients, and nothing cuts their connections.

use crate::redis_server::{RedisServer, RedisServerBuilder};
use crate::sentinel::wait_until_replicated;

/// Two servers at two hosts of this machine.
#[derive(Debug)]
pub struct Pair {
    /// The first master.
    pub first: RedisServer,
    /// Its replica.
    pub second: RedisServer,
    hosts: [String; 2],
}

impl Pair {
    /// Two servers at the same host.
    pub fn start() -> Pair {
        let server = Pair::server();
        let first = server.clone().start();
        let second = server.arg("replicaof", &first.address().replace(':', " ")).start();
        let hosts = [&first, &second].map(|server| server.address().replace(':', " "));
        Pair::known(first, second, hosts)
    }

    /// Two servers at the same port of two hosts, `127.0.0.1` and `127.0.0.2`.
    pub fn at_one_port() -> Pair {
        let server = Pair::server();
        let first = server.clone().start();
        let hosts = ["127.0.0.1", "127.0.0.2"].map(|host| format!("{host} {}", first.port()));
        let second = server.arg("bind", "127.0.0.2").arg("port", &first.port().to_string());
        let second = second.arg("replicaof", &hosts[0]).start();
        Pair::known(first, second, hosts)
    }

    fn server() -> RedisServerBuilder {
        RedisServer::builder().arg("repl-diskless-sync-delay", "0")
    }

    fn known(first: RedisServer, second: RedisServer, hosts: [String; 2]) -> Pair {
        wait_until_replicated(&first, &second);
        Pair { first, second, hosts }
    }

    /// Makes the second server the master, with all that the first one has acknowledged, and the first one its replica.
    pub fn fail_over(&self) {
        self.depose();
        self.second.query::<()>(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Makes the first server a replica. Nobody is the master until somebody makes the second one.
    pub fn depose(&self) {
        self.first.query::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        wait_until_replicated(&self.first, &self.second);
        let new: Vec<&str> = self.hosts[1].split(' ').collect();
        self.first.query::<()>(&["REPLICAOF", new[0], new[1]]);
        self.first.query::<()>(&["CLIENT", "UNPAUSE"]);
    }
}
