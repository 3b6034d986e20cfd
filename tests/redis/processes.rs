//! Real processes on one lock: they take turns, and some are killed.

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::history::{Event, Rules, check_overlap, check_token_order, count, read, replay};
use fairlock_tests::monitor::{self, Queue};
use fairlock_tests::{CleanServer, Monitor, RedisServer, WorkDir, Worker, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
const SOON: Duration = Duration::from_secs(10);

fn lock(server: &RedisServer, name: &str) -> Lock {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::new(backend).unwrap().fair_lock(name).unwrap()
}

/// They take a hundred turns each on one lock, and say these words then. Returns what the clients wrote down.
fn take_turns(
    server: &RedisServer,
    discipline: &str,
    processes: u32,
    rules: Rules,
    says: &str,
) -> Vec<Event> {
    let dir = WorkDir::new();
    let history = dir.file("history");
    let (url, path) = (server.url(), history.to_str().unwrap());
    let work = if discipline == "plain" { "1" } else { "10" };
    let words = ["turns", discipline, &url, "turns", "100", work, "30000", "5000", "0", path];
    let mut workers: Vec<Worker> = (0..processes).map(|_| Worker::start(PROGRAM, &words)).collect();
    workers.iter_mut().for_each(Worker::go);
    for worker in &workers {
        let said = worker.next(Duration::from_secs(120));
        assert!(said.starts_with(says), "{said}");
    }
    assert_eq!(server.query::<u32>(&["GET", "test:counter"]), processes * 100);
    let events = read(Path::new(&history)).unwrap();
    assert_eq!(count(&events, "turns"), processes as usize * 100);
    check_overlap(&events).unwrap();
    let [lease, place] = [30, 5].map(Duration::from_secs);
    let done = replay(&events, "turns", rules, lease, place).unwrap();
    assert!(done.grants == processes as usize * 100 && done.unseen == 0, "{done:?}");
    events
}

/// Sixteen processes take a hundred exclusive turns each, in order.
#[test]
fn sixteen_processes_take_exclusive_turns_in_order() {
    let server = CleanServer::start().allow(&["test:counter"]);
    let monitor = Monitor::start(&server);
    // No place is lost, and no lost wake-up is made up for by polling.
    let all_well = "granted 100 failed 0 unknown 0 lost 0 polled 0 places_lost 0";
    let events = take_turns(&server, "redisson", 16, Rules::Redisson, all_well);
    check_token_order(&events).unwrap();
    let seen = monitor::read(&monitor.until_now(&server), Queue::Redisson, "turns");
    assert_eq!(monitor::grants(&seen), 1600);
    monitor::check_order(&seen).unwrap();
}

#[test]
fn eight_processes_take_exclusive_turns_on_a_plain_lock() {
    let server = CleanServer::start().allow(&["test:counter"]);
    take_turns(&server, "plain", 8, Rules::Plain, "granted 100 failed 0 unknown 0 lost 0 ");
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
    eventually(SOON, "the dead waiter is in the queue", || queue().len() == 1);
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
