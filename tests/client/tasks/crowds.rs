//! Thousands of tasks on few threads, and a runtime that ends under them.

use std::sync::Arc;

use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually, wait_until_no_residue};
use tokio::runtime::Runtime;

use crate::support::{Resource, SOON, current, is_free_soon, multi, on_redis, take, turn};

/// More than tokio has threads for blocking calls.
const CROWD: usize = 2000;

/// All threads of this process; 0 where they can't be counted.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn wait_on_few_threads(runtime: &Runtime, server: &RedisServer) {
    let [client, other] = on_redis(server);
    let held = take(&other.fair_lock("lock:crowd").unwrap().to_async());
    let lock = client.fair_lock("lock:crowd").unwrap().to_async();
    let resource = Resource::new(1);
    let before = threads();
    let tasks: Vec<_> = (0..CROWD)
        .map(|nth| {
            let (lock, resource) = (lock.clone(), Arc::clone(&resource));
            runtime.spawn(async move { turn(&lock, &resource, 1, nth).await })
        })
        .collect();
    let queue = other.fair_lock("lock:crowd").unwrap();
    runtime.block_on(async {
        // In its own thread: `inspect` blocks.
        let all_wait = move || {
            eventually("all stand in the queue", || {
                queue.admin().inspect_queue(0..0).unwrap().queue_length as usize == CROWD
            })
        };
        tokio::task::spawn_blocking(all_wait).await.unwrap();
        // Those of the client (watchdog, expiry, slow waits, listener, up to eight for tasks), and the one above.
        assert!(threads() <= before + 13, "{} threads, {before} before", threads());
        held.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(resource.uses() as usize, CROWD);
    assert_eq!(client.stats().lost, 0);
    is_free_soon(&lock);
}

/// Two thousand tasks wait for a lock on the threads of one client.
#[test]
fn two_thousand_tasks_wait_on_one_clients_threads() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    wait_on_few_threads(&current(), &server);
    wait_on_few_threads(&multi(), &server);
    assert_no_residue(&server, &[]);
}

/// A runtime that ends gives all holds and places of its tasks back.
#[test]
fn a_runtime_that_ends_gives_all_holds_and_places_back() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let [client, other] = on_redis(&server);
    let names: Vec<String> = (0..50).map(|number| format!("lock:{number}")).collect();
    let locks: Vec<_> = names.iter().map(|name| client.fair_lock(name).unwrap().to_async()).collect();
    let runtime = multi();
    for nth in 0..500 {
        let lock = locks[nth % locks.len()].clone();
        runtime.spawn(async move {
            let _guard = lock.lock().await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    eventually("each lock is held, and the others wait", || {
        client.held().len() == 50 && client.waiting().len() == 450
    });
    runtime.shutdown_timeout(SOON);
    for name in &names {
        is_free_soon(&other.fair_lock(name).unwrap().to_async());
    }
    assert!(client.held().is_empty() && client.waiting().is_empty());
    client.shutdown().unwrap();
    wait_until_no_residue(&server);
}
