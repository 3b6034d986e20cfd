//! Real processes on one lock: they take turns, and some are killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::history::{Rules, check_overlap, check_token_order, count, read, replay};
use fairlock_tests::monitor::{self, Line};
use fairlock_tests::{Monitor, RedisServer, WorkDir, Worker, assert_no_residue, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
const SOON: Duration = Duration::from_secs(10);

fn lock(server: &RedisServer, name: &str) -> Lock {
    client(server).fair_lock(name).unwrap()
}

fn client(server: &RedisServer) -> Client {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::builder(backend).build().unwrap()
}

#[test]
fn sixteen_processes_take_a_hundred_exclusive_turns_each_in_order() {
    let _alone = fairlock_tests::Alone::here();
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let monitor = Monitor::start(&server);
    let history = dir.file("history");
    let (url, history) = (server.url(), history.to_str().unwrap());
    let words = ["turns", "redisson", &url, "turns", "100", "10", "30000", "5000", "0", history];
    let mut workers: Vec<Worker> = (0..16).map(|_| Worker::start(PROGRAM, &words)).collect();
    workers.iter_mut().for_each(Worker::go);
    for worker in &workers {
        // No place is lost, and no lost wake-up is made up for by polling.
        let all_well = "granted 100 failed 0 unknown 0 lost 0 polled 0 places_lost 0";
        worker.expect(all_well, Duration::from_secs(120));
    }
    assert_eq!(server.query::<u32>(&["GET", "test:counter"]), 1600);
    let events = read(Path::new(history)).unwrap();
    assert_eq!(count(&events, "turns"), 1600);
    check_overlap(&events).unwrap();
    check_token_order(&events).unwrap();
    let [lease, place] = [30, 5].map(Duration::from_secs);
    let done = replay(&events, "turns", Rules::Redisson, lease, place).unwrap();
    assert!(done.grants == 1600 && done.unseen == 0, "{done:?}");
    let seen = monitor::read(&monitor.until_now(&server), Line::Redisson, "turns");
    assert_eq!(monitor::grants(&seen), 1600);
    monitor::check_order(&seen).unwrap();
    drop(workers);
    assert_no_residue(&server, &["test:counter"]);
}

#[test]
fn eight_processes_take_exclusive_turns_on_a_plain_lock() {
    let _alone = fairlock_tests::Alone::here();
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let history = dir.file("history");
    let (url, path) = (server.url(), history.to_str().unwrap());
    let words = ["turns", "plain", &url, "turns", "100", "1", "30000", "5000", "0", path];
    let mut workers: Vec<Worker> = (0..8).map(|_| Worker::start(PROGRAM, &words)).collect();
    workers.iter_mut().for_each(Worker::go);
    for worker in &workers {
        let said = worker.next(Duration::from_secs(60));
        assert!(said.starts_with("granted 100 failed 0 unknown 0 lost 0 "), "{said}");
    }
    assert_eq!(server.query::<u32>(&["GET", "test:counter"]), 800);
    let events = read(&history).unwrap();
    check_overlap(&events).unwrap();
    let done =
        replay(&events, "turns", Rules::Plain, Duration::from_secs(30), Duration::from_secs(5)).unwrap();
    assert_eq!(done.grants, 800);
    drop(workers);
    assert_no_residue(&server, &["test:counter"]);
}

#[test]
fn a_killed_holder_is_replaced_when_its_lease_ends() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let lease = Duration::from_millis(1500);
    let mut holder = Worker::start(PROGRAM, &["hold", "redisson", &server.url(), "killed", "1500"]);
    holder.go();
    holder.expect("held", SOON);
    let request = lock(&server, "killed").request().unwrap();
    holder.kill();
    let killed = Instant::now();
    let guard = request.wait().unwrap();
    assert!(killed.elapsed() <= lease + Duration::from_millis(250), "{:?}", killed.elapsed());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_killed_waiter_delays_the_others_by_redissons_rule_and_no_longer() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let (ours, queue) = (lock(&server, "waiter"), "redisson_lock_queue:{waiter}");
    let guard = ours.lock().unwrap();
    let mut dead = Worker::start(PROGRAM, &["hold", "redisson", &server.url(), "waiter", "30000"]);
    dead.go();
    let line = || server.query::<Vec<String>>(&["LRANGE", queue, "0", "-1"]);
    eventually(SOON, "the dead waiter is in line", || line().len() == 1);
    let owner = line().remove(0);
    let alive = lock(&server, "waiter").request().unwrap();
    dead.kill();
    guard.unlock().unwrap();
    // Redisson's rule: its time is the lease's end and five minutes. It is still ahead of the live waiter,
    let timeouts = "redisson_lock_timeout:{waiter}";
    let (seconds, _): (i64, i64) = server.query(&["TIME"]);
    let score: i64 = server.query(&["ZSCORE", timeouts, &owner]);
    assert!((score / 1000 - seconds - 330).abs() <= 3, "{score}");
    assert_eq!(alive.rank(), Some(1));
    assert!(alive.decided().try_recv().is_err());
    // and passed over after that: the live waiter's heartbeat finds out, without any message.
    server.query::<i64>(&["ZADD", timeouts, &(seconds * 1000).to_string(), &owner]);
    let over = Instant::now();
    alive.wait().unwrap().unlock().unwrap();
    assert!(over.elapsed() < Duration::from_secs(5) / 3 + Duration::from_secs(1), "{:?}", over.elapsed());
    assert_no_residue(&server, &[]);
}

#[test]
fn a_holder_whose_connections_are_cut_loses_nothing() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let ours = lock(&server, "cut");
    let guard = ours.lock().unwrap();
    let request = lock(&server, "cut").request().unwrap();
    let token = guard.token();
    for kind in ["normal", "pubsub"] {
        server.query::<i64>(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    assert!(guard.renew().is_ok() || guard.renew().is_ok(), "the first call may meet the cut connection");
    assert!(!guard.is_lost() && guard.token() == token);
    guard.unlock().unwrap();
    request.wait().unwrap().unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_process_that_exits_silently_counts_as_killed() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let mut holder = Worker::start(PROGRAM, &["hold", "redisson", &server.url(), "exit", "1000"]);
    holder.go();
    holder.expect("held", SOON);
    drop(holder); // SIGKILL
    let got = lock(&server, "exit").try_lock_for(Duration::from_secs(3)).unwrap();
    got.guard().expect("the lease has ended").unlock().unwrap();
    assert_no_residue(&server, &[]);
}
