//! `wait_replicas`: a grant counts only when the replicas have it; otherwise it is released.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Error, Lock, RedisBackend};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(30);
const WITHIN: Duration = Duration::from_millis(200);

/// The three rules that a lock can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    HandOff,
    Redisson,
    Plain,
}

const RULES: [Rule; 3] = [Rule::HandOff, Rule::Redisson, Rule::Plain];

fn master_and_replica() -> (RedisServer, RedisServer) {
    let master = RedisServer::builder().arg("repl-diskless-sync-delay", "0").start();
    let replica = RedisServer::builder().arg("replicaof", &format!("127.0.0.1 {}", master.port())).start();
    eventually(BOUND, "the replica follows", || {
        replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    // WAIT counts a replica once it has reported its offset.
    eventually(BOUND, "the master counts the replica", || master.query::<i64>(&["WAIT", "1", "100"]) == 1);
    (master, replica)
}

fn lock(master: &RedisServer, rule: Rule, name: &str) -> Lock {
    let discipline = if rule == Rule::HandOff { Discipline::HandOff } else { Discipline::Redisson };
    let builder = RedisBackend::builder(&master.url()).discipline(discipline).wait_replicas(1, WITHIN);
    let client = Client::builder(builder.connect().unwrap()).outage_limit(BOUND).build().unwrap();
    if rule == Rule::Plain { client.plain_lock(name).unwrap() } else { client.fair_lock(name).unwrap() }
}

#[test]
fn a_granted_lock_is_at_the_replica() {
    let _alone = Alone::here();
    let (master, replica) = master_and_replica();
    for rule in RULES {
        let name = format!("lock:{rule:?}");
        let guard = lock(&master, rule, &name).lock().unwrap();
        assert_eq!(replica.query::<i64>(&["EXISTS", &name]), 1, "{rule:?}");
        let waiting = lock(&master, rule, &name);
        let request = waiting.request().unwrap();
        guard.unlock().unwrap();
        // By a hand-over as well.
        let guard = request.wait().unwrap();
        assert_eq!(replica.query::<i64>(&["EXISTS", &name]), 1, "{rule:?}");
        guard.unlock().unwrap();
    }
    assert_no_residue(&master, &[]);
}

#[test]
fn a_grant_without_a_replica_is_released() {
    let _alone = Alone::here();
    let (master, replica) = master_and_replica();
    replica.stop();
    for rule in RULES {
        let lock = lock(&master, rule, &format!("lock:{rule:?}"));
        let asked = Instant::now();
        let error = lock.try_lock().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{rule:?}: {error:?}");
        assert!(error.to_string().contains("only 0 of 1 replicas have the grant"), "{rule:?}: {error}");
        assert!(asked.elapsed() < Duration::from_secs(3), "{rule:?}: {:?}", asked.elapsed());
        assert!(!lock.is_locked().unwrap(), "{rule:?}: the grant was released");
    }
    assert_no_residue(&master, &[]);
    replica.cont();
    for rule in RULES {
        lock(&master, rule, &format!("lock:{rule:?}")).lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn a_hand_over_is_retried_until_a_replica_has_it() {
    let _alone = Alone::here();
    for rule in RULES {
        let (master, replica) = master_and_replica();
        let guard = lock(&master, rule, "lock:a").lock().unwrap();
        let waiting = lock(&master, rule, "lock:a");
        let (tell, got) = channel();
        let waiter = thread::spawn(move || {
            let guard = waiting.lock().unwrap();
            tell.send(()).unwrap();
            guard.unlock().unwrap();
        });
        if rule != Rule::Plain {
            let line = lock(&master, rule, "lock:a");
            eventually(BOUND, "the waiter is in line", || line.inspect().unwrap().line.len() == 1);
        }
        replica.stop();
        guard.unlock().unwrap();
        assert!(got.recv_timeout(Duration::from_secs(1)).is_err(), "{rule:?}: no replica has it");
        replica.cont();
        got.recv_timeout(BOUND).unwrap_or_else(|_| panic!("{rule:?}: the replica is back"));
        waiter.join().unwrap();
        assert_no_residue(&master, &[]);
    }
}
