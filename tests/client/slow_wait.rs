//! A slow wait explains itself: one line in the log names the holder, for threads and tasks, on every store.

use std::thread;
use std::time::Duration;

use fairlock::{Client, FileBackend, ManualClock, MemoryBackend, PostgresBackend, RedisBackend, TryLock};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::{Alone, PostgresServer, RedisServer, WorkDir, eventually};
use futures::executor::block_on;
use log::LevelFilter;

const SECOND: Duration = Duration::from_secs(1);

fn slow_waits() -> Vec<String> {
    log_lines("has waited for")
}

#[test]
fn a_slow_wait_is_explained_once_on_every_store() {
    let _alone = Alone::here();
    let (redis, postgres, files) = (RedisServer::start(), PostgresServer::start(), WorkDir::new());
    let memory = MemoryBackend::new();
    let clients = |label: &str| {
        [
            Client::builder(memory.clone()),
            Client::builder(RedisBackend::connect(&redis.url()).unwrap()),
            Client::builder(PostgresBackend::connect(&postgres.url()).unwrap()),
            Client::builder(FileBackend::open(files.file("locks")).unwrap()),
        ]
        .map(|client| client.label(label).slow_wait(Duration::from_millis(200)).build().unwrap())
    };
    for (holder, waiter) in clients("the holder").iter().zip(&clients("the waiter")) {
        keep_log_lines(LevelFilter::Info);
        let guard = holder.fair_lock("orders").unwrap().lock().unwrap();
        let lock = waiter.fair_lock("orders").unwrap();
        let [first, second] =
            [lock.request().unwrap(), waiter.fair_lock("stock").unwrap().request().unwrap()];
        second.wait().unwrap().unlock().unwrap(); // a free lock is nothing to explain
        eventually("the wait is explained", || slow_waits().len() == 1);
        let line = slow_waits().remove(0);
        assert!(line.starts_with("INFO fairlock::acquire: lock `orders`: "), "{line}");
        let token = format!("(token {})", guard.token());
        for part in [" has waited for ", ": 0 ahead, held by the holder for ", &token] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        let TryLock::Busy(busy) = first.leave().unwrap() else { panic!("the holder has it") };
        let seen = busy.slow_wait.as_ref().expect("it was a slow wait");
        assert_eq!(seen.state.holder().unwrap().token, Some(guard.token()));
        let said = line.split(" has waited for ").nth(1).unwrap().split_once(": ").unwrap().1;
        let says = busy.to_string();
        assert!(says.starts_with("waited ") && says.contains(" for lock `orders`; after "), "{says}");
        assert!(says.ends_with(&format!(": {said}")) && busy.waited >= seen.waited, "{says}, {said}");
        guard.unlock().unwrap();
        assert_eq!(slow_waits().len(), 1, "{:?}", slow_waits());
    }
}

/// A timed wait that was not slow says nothing of the holder, and a slow one does: of a thread, and of a task.
#[test]
fn a_timed_wait_says_who_held_the_lock_if_it_was_slow() {
    let _alone = Alone::here();
    let clock = ManualClock::new();
    let client = Client::builder(MemoryBackend::with_clock(clock.clone())).clock(clock.clone()).label("me");
    let client = client.build().unwrap();
    let lock = client.fair_lock("orders").unwrap();
    let _guard = lock.lock().unwrap();
    let theirs = lock.owned_by(&client.new_owner()).unwrap();
    for is_task in [false, true] {
        for limit in [500, 3000].map(Duration::from_millis) {
            keep_log_lines(LevelFilter::Info);
            let waited = thread::scope(|scope| {
                let waiter = scope.spawn(|| match is_task {
                    true => block_on(lock.to_async().with_for(limit, async |_| ())),
                    false => theirs.with_for(limit, |_| ()),
                });
                eventually("it waits", || client.waiting().iter().any(|wait| wait.rank.is_some()));
                clock.advance(SECOND.min(limit));
                eventually("it is explained", || limit < SECOND || slow_waits().len() == 1);
                clock.advance(limit.saturating_sub(SECOND));
                waiter.join().unwrap()
            });
            let Ok(TryLock::Busy(ended)) = waited else { panic!("{waited:?}") };
            assert_eq!((ended.waited, ended.slow_wait.is_some()), (limit, limit > SECOND));
            let says = match limit > SECOND {
                true => "waited 3 s for lock `orders`; after 1 s: 0 ahead, held by me for ",
                false => "waited 500 ms for lock `orders`, which is busy",
            };
            assert!(ended.to_string().starts_with(says), "{ended}");
            clock.advance(SECOND); // until the next look
        }
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
        eventually("a line is written", || slow_waits().len() == second);
        assert!(slow_waits()[second - 1].contains(&format!("lock `{}`: ", names[second - 1])));
    }
    clock.advance(Duration::from_secs(10));
    drop((requests, holds));
    assert_eq!(slow_waits().len(), names.len());
}
