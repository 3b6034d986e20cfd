//! None of our threads outlives the last handle. This test has its own binary, since it counts the threads of the
//! process.

use std::time::Duration;

use fairlock::{Client, Lock, MemoryBackend};
use fairlock_tests::locks::patient;
use fairlock_tests::{Bound, RedisServer, assert_no_residue, eventually, our_threads, wait_until_no_threads};

/// Longer than a response time-out, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn no_thread_is_left_after_the_last_handle() {
    let _bound = Bound::here(Duration::from_secs(120));
    let server = RedisServer::start();
    let on_redis = || Client::new(patient(&server.url()).connect().unwrap()).unwrap();
    let in_memory = || Client::new(MemoryBackend::new()).unwrap();
    let connects: [&dyn Fn() -> Client; 2] = [&on_redis, &in_memory];
    for connect in connects {
        let client = connect();
        client.on_lost(|_| ());
        for lock in [client.fair_lock("fair").unwrap(), client.plain_lock("plain").unwrap()] {
            take_and_wait(&lock);
        }
        // A thread is known by its name, which it takes when it first runs: on a busy machine that can be after all of this.
        eventually("the watchdog runs", || our_threads().iter().any(|name| name == "fairlock-dog"));
        let last = client.fair_lock("last").unwrap().lock().unwrap();
        drop(client);
        assert!(!our_threads().is_empty(), "a guard is a handle");
        last.unlock().unwrap();
        wait_until_no_threads(SOON);
    }
    let client = on_redis();
    client.fair_lock("fair").unwrap().lock().unwrap().leak();
    client.shutdown().unwrap();
    wait_until_no_threads(SOON);
    // The server sees in its own time that a connection was closed.
    eventually("no subscription is left", || server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
    assert_no_residue(&server, &[]);
}

/// A hold, and a place that is given up.
fn take_and_wait(lock: &Lock) {
    let guard = lock.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.request().unwrap()));
    });
    guard.unlock().unwrap();
}
