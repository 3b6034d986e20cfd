//! A process that is killed while it waits in Redisson's queue.

use std::time::{Duration, Instant};

use fairlock::settings::Discipline;
use fairlock::{Client, Lock, RedisBackend};
use fairlock_tests::{CleanServer, RedisServer, Worker, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");

fn lock(server: &RedisServer, name: &str) -> Lock {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::new(backend).unwrap().fair_lock(name).unwrap()
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
