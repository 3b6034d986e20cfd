//! Clients of discipline `HandOff`, and what the server says about them.

use std::collections::BTreeMap;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use fairlock::{Client, ClientBuilder, Discipline, Lock, LockGuard, OwnedGuard, OwnedRequest, RedisBackend};
use fairlock_tests::{RedisServer, eventually};

/// The program of worker processes.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
/// The most that a thing takes which needs no time of its own, on a machine with other things to do.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late something may be that has its time, on such a machine.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// A place's time to live, for tests in which no heartbeat is to interfere.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn builder(url: &str, place_ttl: Duration) -> ClientBuilder {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff).connect().unwrap();
    Client::builder(backend).place_ttl(place_ttl).lease(LONG)
}

pub(crate) fn client(url: &str, place_ttl: Duration) -> Client {
    builder(url, place_ttl).build().unwrap()
}

/// A handle in a client of its own, without heartbeats that could interfere.
pub(crate) fn lock(server: &RedisServer, name: &str) -> Lock {
    client(&server.url(), LONG).fair_lock(name).unwrap()
}

/// A lock that is to be had soon.
#[track_caller]
pub(crate) fn take(lock: &Lock) -> LockGuard {
    lock.try_lock_for(SOON).unwrap().expect("it is free soon")
}

/// A request that is to be granted soon.
#[track_caller]
pub(crate) fn granted(mut request: OwnedRequest, bound: Duration) -> OwnedGuard {
    request.wait_for(bound).unwrap().expect("granted in time")
}

/// A place in line, of an owner of its own.
pub(crate) fn request(client: &Client, name: &str) -> OwnedRequest {
    client.fair_lock(name).unwrap().request_as(&client.new_owner()).unwrap()
}

/// The members in line, the first in front.
pub(crate) fn line(server: &RedisServer, name: &str) -> Vec<String> {
    server.query(&["ZRANGE", &format!("fairlock_queue:{{{name}}}"), "0", "-1"])
}

pub(crate) fn until_in_line(server: &RedisServer, name: &str, n: usize) {
    eventually(SOON, "they stand in line", || line(server, name).len() == n);
}

/// How many clients the server can reach: each has one channel.
pub(crate) fn listeners(server: &RedisServer) -> usize {
    server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "fairlock:*"]).len()
}

/// How often each command was carried out, those inside scripts included.
pub(crate) fn all_calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats: String = server.query(&["INFO", "commandstats"]);
    stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .map(|(command, rest)| (command.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
        .collect()
}

/// How many scripts the server has run: each is one round trip.
pub(crate) fn scripts_run(server: &RedisServer) -> u64 {
    all_calls(server).get("evalsha").copied().unwrap_or(0)
}

/// The token of the hold that the server knows of.
pub(crate) fn token_at(server: &RedisServer, name: &str) -> Option<u64> {
    let hold: Option<String> = server.query(&["HGET", name, "fairlock"]);
    hold.map(|hold| hold.split_once(' ').unwrap().1.parse().unwrap())
}

/// Waits for a thread, but not for ever.
#[track_caller]
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    eventually(SOON, "the thread ends", || thread.is_finished());
    thread.join().unwrap()
}
