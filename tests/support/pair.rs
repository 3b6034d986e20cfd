//! A master with a replica that takes its place by hand: nobody tells clients, and nothing cuts their connections.

use crate::redis_server::RedisServer;
use crate::sentinel::wait_until_replicated;

/// Two servers.
#[derive(Debug)]
pub struct Pair {
    /// The first master.
    pub first: RedisServer,
    /// Its replica.
    pub second: RedisServer,
}

impl Pair {
    /// A master and its replica, which has all data.
    pub fn start() -> Pair {
        let server = RedisServer::builder().arg("repl-diskless-sync-delay", "0");
        let first = server.clone().start();
        let second = server.arg("replicaof", &first.address().replace(':', " ")).start();
        wait_until_replicated(&first, &second);
        Pair { first, second }
    }

    /// Makes the second server the master, with all that the first one has acknowledged, and the first one its replica.
    pub fn fail_over(&self) {
        self.first.query::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        wait_until_replicated(&self.first, &self.second);
        self.first.query::<()>(&["REPLICAOF", "127.0.0.1", &self.second.port().to_string()]);
        self.first.query::<()>(&["CLIENT", "UNPAUSE"]);
        self.second.query::<()>(&["REPLICAOF", "NO", "ONE"]);
    }
}
