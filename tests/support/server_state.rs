//! What the server says about a line of discipline `HandOff`, its listeners and its own work.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{RedisServer, eventually};

/// The members in line, the first one first.
pub fn line(server: &RedisServer, name: &str) -> Vec<String> {
    server.query(&["ZRANGE", &format!("fairlock_line:{{{name}}}"), "0", "-1"])
}

/// Waits until the line has `n` members.
#[track_caller]
pub fn until_in_line(server: &RedisServer, name: &str, n: usize) {
    eventually(Duration::from_secs(10), "the line has its length", || line(server, name).len() == n);
}

/// How many clients are subscribed: each has one channel.
pub fn listeners(server: &RedisServer) -> usize {
    server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "fairlock:*"]).len()
}

/// How often the server has executed each command, including those in scripts.
pub fn all_calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats: String = server.query(&["INFO", "commandstats"]);
    stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .map(|(command, rest)| (command.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
        .collect()
}

/// How many scripts the server has run: each is one round trip.
pub fn scripts_run(server: &RedisServer) -> u64 {
    let calls = all_calls(server);
    ["eval", "evalsha"].iter().filter_map(|command| calls.get(*command)).sum()
}
