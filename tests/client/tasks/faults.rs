//! Tasks under faults: lost replies, and a silent server.

use std::future::Future;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, LostCause, RedisBackend};
use fairlock_tests::monitor::{self, Queue};
use fairlock_tests::{Alone, Monitor, Proxy, RedisServer, eventually, wait_until_no_residue};
use futures::executor::block_on;

use crate::support::{begin, is_free_soon, multi, take, unlock};

/// How late a timed event may be, on a busy machine.
const SLACK: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(2);
const OUTAGE: Duration = Duration::from_secs(3);

fn client(url: &str) -> Client {
    let backend = RedisBackend::builder(url).connect_timeout(ANSWER).response_timeout(ANSWER);
    Client::builder(backend.connect().unwrap()).lease(LEASE).outage_limit(OUTAGE).build().unwrap()
}

/// The grants in the server's own record.
fn grants(monitor: &Monitor, server: &RedisServer, name: &str) -> usize {
    monitor::grants(&monitor::read(&monitor.until_now(server), Queue::HandOff, name))
}

#[test]
fn what_a_lost_reply_said_is_asked_again_and_takes_effect_once() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (ours, theirs) = (client(&proxy.url()), client(&server.url()));
    // The server knows the scripts now: a lost NOSCRIPT would mean that nothing was executed.
    let warm = ours.fair_lock("warm").unwrap().to_async();
    let held = take(&warm);
    let mut waiting = warm.lock();
    begin(&mut waiting);
    eventually("it stands in the queue", || waiting.rank() == Some(0));
    drop(waiting);
    unlock(held);
    is_free_soon(&warm);

    let lock = ours.fair_lock("orders").unwrap().to_async();
    let other = theirs.fair_lock("orders").unwrap().to_async();
    let monitor = Monitor::start(&server);
    // The grant.
    proxy.lose_reply_to("orders");
    let guard = block_on(lock.lock()).unwrap();
    assert_eq!((proxy.lost(), grants(&monitor, &server, "orders")), (1, 1));
    // The release: the lock goes to the next one, and the repeat takes nothing from it.
    let mut next = other.lock();
    begin(&mut next);
    eventually("it stands in the queue", || next.rank() == Some(0));
    proxy.lose_reply_to("orders");
    unlock(guard);
    let guard = block_on(next).unwrap();
    assert_eq!(proxy.lost(), 2);
    // The place.
    proxy.lose_reply_to("orders");
    let mut waiting = lock.lock();
    begin(&mut waiting);
    eventually("it stands in the queue", || waiting.rank() == Some(0));
    assert_eq!((proxy.lost(), theirs.fair_lock("orders").unwrap().inspect().unwrap().queue_length), (3, 1));
    // The withdrawal.
    proxy.lose_reply_to("orders");
    drop(waiting);
    eventually("it has left", || proxy.lost() == 4);
    guard.check().unwrap();
    unlock(guard);
    is_free_soon(&lock);
    for client in [ours, theirs] {
        assert_eq!(client.stats().lost, 0);
        client.shutdown().unwrap();
    }
    wait_until_no_residue(&server);
}

/// The time until the future is ready.
fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (block_on(future), began.elapsed())
}

/// A silent server hangs no task, and what the server was not told is told when it is back.
#[test]
fn a_silent_server_hangs_no_task_and_is_told_later() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let client = client(&server.url());
    let locks: Vec<_> =
        (0..200).map(|number| client.fair_lock(&format!("lock:{number}")).unwrap().to_async()).collect();
    let mut guards: Vec<_> = locks.iter().map(take).collect();
    let runtime = multi();
    server.stop();
    let silent = Instant::now();
    let kept = guards.split_off(100);
    let releases: Vec<_> = guards.into_iter().map(|guard| runtime.spawn(guard.unlock())).collect();
    let waits: Vec<_> = (0..100)
        .map(|number| {
            let lock = client.fair_lock(&format!("lock:new:{number}")).unwrap().to_async();
            runtime.spawn(lock.lock())
        })
        .collect();
    let losses: Vec<_> = kept.iter().map(|guard| runtime.spawn(guard.lost())).collect();

    for loss in losses {
        let lost = runtime.block_on(loss).unwrap();
        assert_eq!(lost.cause, LostCause::NotRenewed);
        assert!(silent.elapsed() < LEASE + SLACK, "told {:?} after the last answer", silent.elapsed());
    }
    assert!(kept.iter().all(|guard| guard.is_lost() && matches!(guard.check(), Err(Error::Lost(_)))));
    let bound = OUTAGE + 3 * ANSWER + SLACK;
    for release in releases {
        let error = runtime.block_on(release).unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. } | Error::Lost(_)), "{error}");
        assert!(silent.elapsed() < bound, "{:?}", silent.elapsed());
    }
    for wait in waits {
        let error = runtime.block_on(wait).unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(silent.elapsed() < bound, "{:?}", silent.elapsed());
    }
    let (tried, took) = timed(locks[0].try_lock());
    assert!(
        matches!(tried, Err(Error::Unavailable { .. })) && took < 6 * ANSWER + SLACK,
        "{took:?} {tried:?}"
    );

    server.cont();
    for guard in kept {
        assert!(matches!(block_on(guard.unlock()), Err(Error::Lost(_))));
    }
    locks.iter().for_each(is_free_soon);
    client.shutdown().unwrap();
    wait_until_no_residue(&server);
}
