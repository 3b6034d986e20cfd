//! What the server says about a queue of discipline `HandOff`, its listeners and its own work.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{RedisServer, eventually};

/// The members in the queue, the first one first.
pub fn queue(server: &RedisServer, name: &str) -> Vec<String> {
    server.query(&["ZRANGE", &format!("fairlock_queue:{{{name}}}"), "0", "-1"])
}

/// Waits until the queue has `n` members.
#[track_caller]
pub fn until_in_queue(server: &RedisServer, name: &str, n: usize) {
    eventually("the queue has its length", || queue(server, name).len() == n);
}

/// Puts places of a client that is dead into the queue, ahead of all others: of its owners with these numbers, as `acquire` writes them.
pub fn add_dead_places(server: &RedisServer, name: &str, owners: RangeInclusive<u64>, lives: Duration) {
    const ADD: &str = "local time = redis.call('TIME') \
        local now = time[1] * 1000 + math.floor(time[2] / 1000) \
        for at = ARGV[1], ARGV[2] do \
          local member = string.format('00000000-0000-4000-8000-000000000000:%d:%016x', at, at) \
          redis.call('ZADD', KEYS[1], at, member) \
          redis.call('HSET', KEYS[2], member, string.format('1 1 %.0f %.0f 30000 -- dead', now * 1000 + at, now + ARGV[3])) \
        end \
        for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[3] * 2) end";
    let keys = ["queue", "record"].map(|what| format!("fairlock_{what}:{{{name}}}"));
    let (end, lives) = (*owners.end(), lives.as_millis().to_string());
    // A part at a time: on a busy machine the whole takes longer than a call may.
    for first in owners.step_by(5000) {
        let [first, last] = [first, end.min(first + 4999)].map(|number| number.to_string());
        server.query::<()>(&["EVAL", ADD, "2", &keys[0], &keys[1], &first, &last, &lives]);
    }
}

/// The type of a key, and what the key has: fields and values, members and scores, or entries, each with an empty text behind it.
pub fn pairs_of(server: &RedisServer, key: &str) -> (String, Vec<[String; 2]>) {
    let kind: String = server.query(&["TYPE", key]);
    let pairs = match kind.as_str() {
        "hash" => server.query::<Vec<(String, String)>>(&["HGETALL", key]),
        "zset" => server.query(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        _ => {
            let entries: Vec<String> = server.query(&["LRANGE", key, "0", "-1"]);
            entries.into_iter().map(|entry| (entry, String::new())).collect()
        }
    };
    (kind, pairs.into_iter().map(Into::into).collect())
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
