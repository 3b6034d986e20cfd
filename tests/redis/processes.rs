//! Real processes on one lock: they take turns, and some are killed.

use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::history::{Event, check_overlap, check_token_order, count};
use fairlock_tests::monitor::{self, Queue};
use fairlock_tests::turns::{Habits, Store, Turns};
use fairlock_tests::{CleanServer, Monitor, RedisServer, Worker, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");

fn lock(server: &RedisServer, name: &str) -> Lock {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::new(backend).unwrap().fair_lock(name).unwrap()
}

/// Processes take a hundred turns each on one lock, and say these words then.
fn take_turns(server: &RedisServer, habits: Habits, processes: usize, says: &str) -> Vec<Event> {
    let run = Turns::new(PROGRAM, server, habits);
    let workers = run.start(processes);
    for worker in &workers {
        let said = worker.next(Duration::from_secs(120));
        assert!(said.starts_with(says), "{said}");
    }
    let events = run.events();
    assert_eq!((server.counter(), count(&events, "turns")), (processes * 100, processes * 100));
    check_overlap(&events).unwrap();
    events
}

/// Sixteen processes take a hundred exclusive turns each, in order.
#[test]
fn sixteen_processes_take_exclusive_turns_in_order() {
    let server = CleanServer::start().allow(&["test:counter"]);
    let monitor = Monitor::start(&server);
    // Without heartbeats: where one comes just after a release, it is quicker than the wake-up on a busy machine.
    let habits = Habits { hold_ms: 10, place: Duration::from_secs(60), ..Habits::new("redisson", 100) };
    // No place is lost, and no lost wake-up is made up for by polling.
    let all_well = "granted 100 failed 0 unknown 0 lost 0 polled 0 places_lost 0";
    let events = take_turns(&server, habits, 16, all_well);
    check_token_order(&events).unwrap();
    let seen = monitor::read(&monitor.until_now(&server), Queue::Redisson, "turns");
    assert_eq!(monitor::grants(&seen), 1600);
    monitor::check_order(&seen).unwrap();
}

#[test]
fn eight_processes_take_exclusive_turns_on_a_plain_lock() {
    let server = CleanServer::start().allow(&["test:counter"]);
    let habits = Habits { hold_ms: 1, ..Habits::new("plain", 100) };
    take_turns(&server, habits, 8, "granted 100 failed 0 unknown 0 lost 0 ");
}

/// A killed waiter delays the others by Redisson's rule, and no longer.
#[test]
fn a_killed_waiter_delays_others_by_redissons_rule() {
    let server = CleanServer::start();
    let (ours, queue) = (lock(&server, "waiter"), "redisson_lock_queue:{waiter}");
    let guard = ours.lock().unwrap();
    let mut dead = Worker::start(PROGRAM, &["hold", "redisson", &server.url(), "waiter", "30000"]);
    dead.go();
    let queue = || server.query::<Vec<String>>(&["LRANGE", queue, "0", "-1"]);
    eventually("the dead waiter is in the queue", || queue().len() == 1);
    let owner = queue().remove(0);
    let alive = lock(&server, "waiter").request().unwrap();
    dead.kill();
    guard.unlock().unwrap();
    // Redisson's rule: its time is the lease's end and five minutes. It is still ahead of the live waiter,
    let timeouts = "redisson_lock_timeout:{waiter}";
    let now = server.time_ms();
    let score: i64 = server.query(&["ZSCORE", timeouts, &owner]);
    assert!((score - now - 330_000).abs() <= 3000, "{score}");
    assert_eq!(alive.rank(), Some(1));
    assert!(alive.decided().try_recv().is_err());
    // and passed over after that: the live waiter's heartbeat finds out, without any message.
    server.query::<i64>(&["ZADD", timeouts, &now.to_string(), &owner]);
    let over = Instant::now();
    alive.wait().unwrap().unlock().unwrap();
    assert!(over.elapsed() < Duration::from_secs(5) / 3 + Duration::from_secs(1), "{:?}", over.elapsed());
}
