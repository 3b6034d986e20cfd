//! Tasks beside threads, 10 ms from the server: their calls go beside each other, so a task waits for its own trips alone.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Lock, RedisBackend};
use fairlock_tests::proxy::{Proxy, Rule, Traffic};
use fairlock_tests::{Alone, RedisServer};

use crate::support::multi;

const TRIP: Duration = Duration::from_millis(10);

fn by_threads(locks: &[Lock], rounds: usize) -> Duration {
    let began = Instant::now();
    thread::scope(|scope| {
        for lock in locks {
            scope.spawn(move || (0..rounds).for_each(|_| lock.lock().unwrap().unlock().unwrap()));
        }
    });
    began.elapsed()
}

fn by_tasks(locks: &[Lock], rounds: usize) -> Duration {
    let (runtime, began) = (multi(), Instant::now());
    let cycles = |lock: &Lock| {
        let lock = lock.to_async();
        runtime.spawn(async move {
            for _ in 0..rounds {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        })
    };
    let tasks: Vec<_> = locks.iter().map(cycles).collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    began.elapsed()
}

/// The time of tasks ÷ that of threads.
fn ratio(locks: &[Lock], rounds: usize) -> f64 {
    by_threads(locks, 1); // connections are opened
    by_tasks(locks, 1); // the distance becomes known
    by_tasks(locks, rounds).as_secs_f64() / by_threads(locks, rounds).as_secs_f64()
}

/// One thread in lock-step for all tasks took 2 times as long for a hand-off, and 5 times on free locks.
#[test]
fn far_from_the_server_tasks_are_as_quick_as_threads() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let client = Client::new(RedisBackend::connect(&proxy.url()).unwrap()).unwrap();
    proxy.set(Traffic::Commands, Rule::Delay(TRIP));
    let hand_off = ratio(&vec![client.fair_lock("far").unwrap(); 8], 10);
    let free: Vec<_> = (0..250).map(|nth| client.fair_lock(&format!("far:{nth}")).unwrap()).collect();
    let free = ratio(&free, 4);
    println!("tasks ÷ threads: {hand_off:.2} for a hand-off, {free:.2} on free locks");
    assert!(hand_off < 1.5, "{hand_off:.2} times as long for a hand-off");
    assert!(free < 2.0, "{free:.2} times as long on free locks");
}
