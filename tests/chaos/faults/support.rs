//! Clients of discipline `HandOff` with short times, and the programs of worker processes.

use std::time::{Duration, Instant};

use fairlock::{Client, ClientBuilder, Discipline, Lock, LockGuard, RedisBackend};
pub(crate) use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::server_state::scripts_run;
pub(crate) use fairlock_tests::server_state::{queue, until_in_queue};
use fairlock_tests::{RedisServer, Worker, eventually};

/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late a timed event may be, on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// The lease here.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// The places' time to live.
pub(crate) const PLACE: Duration = Duration::from_millis(900);
/// Connecting, and each answer.
pub(crate) const ANSWER: Duration = Duration::from_millis(300);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn builder(url: &str) -> ClientBuilder {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff);
    let backend = backend.connect_timeout(ANSWER).response_timeout(ANSWER).connect().unwrap();
    Client::builder(backend).lease(LEASE).place_ttl(PLACE).outage_limit(ms(1000))
}

pub(crate) fn client(url: &str) -> Client {
    builder(url).build().unwrap()
}

/// A client whose places and leases outlive the test.
pub(crate) fn patient(url: &str) -> Client {
    let long = Duration::from_secs(60);
    builder(url).lease(long).place_ttl(long).build().unwrap()
}

/// A client whose calls are answered in time and whose places are kept, however slow the traffic is. Its heartbeats are few.
pub(crate) fn unhurried(url: &str) -> Client {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff);
    let backend = backend.connect_timeout(SOON).response_timeout(SOON).connect().unwrap();
    Client::builder(backend).place_ttl(2 * SOON).build().unwrap()
}

pub(crate) fn lock(url: &str, name: &str) -> Lock {
    client(url).fair_lock(name).unwrap()
}

/// A server that knows all scripts: sending one takes longer than a slow connection's time-out.
pub(crate) fn warm_server() -> RedisServer {
    let server = RedisServer::start();
    let ours = client(&server.url());
    let lock = ours.fair_lock("warm").unwrap();
    let guard = take(&lock);
    guard.renew().unwrap();
    let waiting = request(&ours, "warm");
    until_in_queue(&server, "warm", 1);
    let before = scripts_run(&server);
    eventually("heartbeats have come", || scripts_run(&server) >= before + 2);
    drop(waiting);
    guard.unlock().unwrap();
    lock.inspect().unwrap();
    until_free(&server, "warm");
    server
}

/// Waits until the guard is lost. Returns how long after `since` it was last seen valid: on a busy machine the look that finds the
/// loss may come late, and the guard counts without it.
pub(crate) fn believed_for(guard: &LockGuard, since: Instant) -> Duration {
    let mut believed = Duration::ZERO;
    eventually("the guard is lost", || {
        let at = since.elapsed();
        let is_lost = guard.is_lost();
        if !is_lost {
            believed = at;
        }
        is_lost
    });
    believed
}

/// Waits until the queue is empty and the lock is free.
pub(crate) fn until_free(server: &RedisServer, name: &str) {
    eventually("all is given back", || {
        queue(server, name).is_empty() && !server.query::<bool>(&["EXISTS", name])
    });
}

/// A process that harms itself, see `fault_worker.rs`.
pub(crate) fn worker(words: &[&str]) -> Worker {
    Worker::start(env!("CARGO_BIN_EXE_fault_worker"), words)
}

/// A process that holds, waits or takes turns, see `lock_worker.rs`.
pub(crate) fn lock_worker(words: &[&str]) -> Worker {
    Worker::start(env!("CARGO_BIN_EXE_lock_worker"), words)
}
