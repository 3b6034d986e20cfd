//! A slow wait explains itself: one line in the log names the holder, for threads and tasks, on every store.

use std::time::Duration;

use fairlock::{Client, ManualClock, MemoryBackend, PostgresBackend, RedisBackend};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::{Alone, PostgresServer, RedisServer, eventually};
use log::LevelFilter;

const SOON: Duration = Duration::from_secs(20);

fn slow_waits() -> Vec<String> {
    log_lines("has waited for")
}

#[test]
fn a_slow_wait_is_explained_once_on_every_store() {
    let _alone = Alone::here();
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let memory = MemoryBackend::new();
    let clients = |label: &str| {
        [
            Client::builder(memory.clone()).label(label).slow_wait(Duration::from_millis(200)).build(),
            Client::builder(RedisBackend::connect(&redis.url()).unwrap())
                .label(label)
                .slow_wait(Duration::from_millis(200))
                .build(),
            Client::builder(PostgresBackend::connect(&postgres.url()).unwrap())
                .label(label)
                .slow_wait(Duration::from_millis(200))
                .build(),
        ]
        .map(Result::unwrap)
    };
    for (holder, waiter) in clients("the holder").iter().zip(&clients("the waiter")) {
        keep_log_lines(LevelFilter::Info);
        let guard = holder.fair_lock("orders").unwrap().lock().unwrap();
        let lock = waiter.fair_lock("orders").unwrap();
        let [first, second] =
            [lock.request().unwrap(), waiter.fair_lock("stock").unwrap().request().unwrap()];
        second.wait().unwrap().unlock().unwrap(); // a free lock is nothing to explain
        eventually(SOON, "the wait is explained", || slow_waits().len() == 1);
        let line = slow_waits().remove(0);
        assert!(line.starts_with("INFO fairlock::acquire: lock `orders`: "), "{line}");
        let token = format!("(token {})", guard.token());
        for part in [" has waited for ", ": 0 ahead, held by the holder for ", &token] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        guard.unlock().unwrap();
        first.wait().unwrap().unlock().unwrap();
        assert_eq!(slow_waits().len(), 1, "{:?}", slow_waits());
    }
}

/// Five waits are slow: a line a second, the longest wait first, and none of them twice.
#[test]
fn many_slow_waits_are_a_line_a_second() {
    let _alone = Alone::here();
    keep_log_lines(LevelFilter::Info);
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    let client =
        |label: &str| Client::builder(store.clone()).clock(clock.clone()).label(label).build().unwrap();
    let (holder, waiter) = (client("holder"), client("waiter"));
    let names: Vec<String> = (0..5).map(|n| format!("lock:{n}")).collect();
    let holds: Vec<_> = names.iter().map(|name| holder.fair_lock(name).unwrap().lock().unwrap()).collect();
    let requests: Vec<_> = names
        .iter()
        .map(|name| {
            clock.advance(Duration::from_millis(1));
            waiter.fair_lock(name).unwrap().request().unwrap()
        })
        .collect();
    for second in 1..=names.len() {
        clock.advance(Duration::from_secs(1));
        eventually(SOON, "a line is written", || slow_waits().len() == second);
        assert!(slow_waits()[second - 1].contains(&format!("lock `{}`: ", names[second - 1])));
    }
    clock.advance(Duration::from_secs(10));
    drop((requests, holds));
    assert_eq!(slow_waits().len(), names.len());
}
