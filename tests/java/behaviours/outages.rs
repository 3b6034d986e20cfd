//! A server that does not answer: every call ends, and its place is removed afterwards.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Error, RedisBackend};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

use crate::SOON;

const ANSWER: Duration = Duration::from_millis(300);
/// How late a timed event may be.
const SLACK: Duration = Duration::from_millis(250);

/// A client that waits 300 ms for an answer, and a second for a server.
fn client(server: &RedisServer) -> Client {
    let builder = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson);
    let backend = builder.response_timeout(ANSWER).connect_timeout(ANSWER).connect().unwrap();
    Client::builder(backend).outage_limit(Duration::from_secs(1)).build().unwrap()
}

/// Waiters that time out while the server stands still leave the queue. Redisson: `testAcquireFailedNotCalledOnRedisTimeout`.
#[test]
fn waiters_that_time_out_during_a_stop_leave_the_queue() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let clients = [client(&server), client(&server), client(&server)];
    let [holder, waiters @ ..] = clients.each_ref().map(|client| client.fair_lock("still").unwrap());
    let guard = holder.lock().unwrap();
    let wait = Duration::from_millis(800);
    thread::scope(|scope| {
        let waiters = waiters.each_ref().map(|lock| {
            scope.spawn(move || {
                let started = Instant::now();
                let result = lock.try_lock_for(wait).map(|tried| tried.guard().is_some());
                (result, started.elapsed())
            })
        });
        eventually("both waiters are in the queue", || holder.inspect().unwrap().queue.len() == 2);
        server.stop();
        for waiter in waiters {
            let (result, took) = waiter.join().unwrap();
            assert!(matches!(result, Ok(false) | Err(Error::Unavailable { .. })), "{result:?}");
            // An ask may be under way when the time is over: the withdrawal goes after it.
            assert!(took >= wait && took < wait + 2 * ANSWER + SLACK, "{took:?}");
        }
        server.cont();
    });
    let queue = ["EXISTS", "redisson_lock_queue:{still}", "redisson_lock_timeout:{still}"];
    eventually("no ghost is left in the queue", || server.query::<u32>(&queue) == 0);
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    waiters[0].try_lock_for(SOON).unwrap().guard().expect("the queue is empty").unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// Redisson: `testRedisFailed`.
#[test]
fn a_server_that_is_gone_is_an_error_and_never_a_hang() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let client = client(&server);
    for lock in [client.fair_lock("gone").unwrap(), client.plain_lock("gone").unwrap()] {
        server.restart();
        eventually("the client has reconnected", || lock.is_locked().is_ok());
        server.kill();
        let bounded = |what: &str, bound: Duration, call: &dyn Fn() -> fairlock::Result<bool>| {
            let started = Instant::now();
            let result = call();
            let took = started.elapsed();
            assert!(matches!(result, Err(Error::Unavailable { .. })), "{what}: {result:?}");
            assert!(took < bound, "{what} took {took:?}");
        };
        let second = Duration::from_secs(1);
        bounded("try_lock", ANSWER * 2 + SLACK, &|| lock.try_lock().map(|tried| tried.guard().is_some()));
        bounded("try_lock_for", second + ANSWER + SLACK, &|| {
            lock.try_lock_for(second).map(|tried| tried.guard().is_some())
        });
        // The thread's earlier calls are not settled yet, which must not delay these.
        bounded("try_lock", ANSWER * 2 + SLACK, &|| lock.try_lock().map(|tried| tried.guard().is_some()));
        bounded("lock", second + ANSWER + SLACK, &|| lock.lock().map(|_| true));
        bounded("is_locked", ANSWER * 2 + SLACK, &|| lock.is_locked());
    }
    server.restart();
    let lock = client.fair_lock("gone").unwrap();
    eventually("the client has reconnected", || lock.try_lock().is_ok_and(|tried| tried.guard().is_some()));
    assert_no_residue(&server, &[]);
}
