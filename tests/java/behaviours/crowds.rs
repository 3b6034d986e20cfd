//! Many threads of one client: one connection hears of all channels, none is left without a waiter, and nothing is renewed that is
//! over.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, LockKind, TryLock};
use fairlock_tests::locks::lock_of;
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

use crate::{LEASE, backend};

const KINDS: [LockKind; 2] = [LockKind::Fair, LockKind::Plain];

/// Waits until only the client's own channel is subscribed.
fn until_only_its_own_channel(server: &RedisServer, client: &Client) {
    let own = [format!("fairlock:{}", client.id())];
    eventually("only the client's own channel is subscribed", || {
        server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]) == own
    });
}

/// How many connections are subscribed to a channel.
fn ears(server: &RedisServer) -> usize {
    server.clients().iter().filter(|line| !line.contains(" sub=0 ")).count()
}

/// Redisson: `testSubscriptionsPerConnection`, `testSinglePubSub`, `testMultipleLocks`, and the two tests of `RedissonLockHeavyTest`.
#[test]
fn thousands_of_waits_of_one_client_leave_no_channel_subscribed() {
    let _alone = fairlock_tests::Alone::here();
    const THREADS: usize = 32;
    const OPERATIONS: usize = 5000;
    for kind in KINDS {
        let server = RedisServer::start();
        let client = Client::new(backend(&server, LEASE)).unwrap();
        let locks: Vec<_> = (0..5).map(|number| lock_of(&client, kind, &format!("lock:{number}"))).collect();
        let missed = AtomicU32::new(0);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (locks, missed, server) = (&locks, &missed, &server);
                scope.spawn(move || {
                    for turn in (number..OPERATIONS).step_by(THREADS) {
                        let lock = &locks[turn % locks.len()];
                        // Every fourth gives up after 0 to 9 ms.
                        let guard = match turn % 4 {
                            0 => lock.try_lock_for(Duration::from_millis(turn as u64 % 10)).unwrap().guard(),
                            _ => Some(lock.lock().unwrap()),
                        };
                        match guard {
                            Some(guard) => guard.unlock().unwrap(),
                            None => drop(missed.fetch_add(1, Ordering::Relaxed)),
                        }
                        if turn % 100 == 0 {
                            assert!(ears(server) <= 1, "one connection for all channels");
                        }
                    }
                });
            }
        });
        assert!(missed.load(Ordering::Relaxed) as usize <= OPERATIONS / 4 && client.stats().lost == 0);
        until_only_its_own_channel(&server, &client);
        assert_eq!(ears(&server), 1);
        eventually("the last timed-out waiters have left the queue", || {
            locks.iter().all(|lock| lock.inspect().unwrap().queue.is_empty() && !lock.is_locked().unwrap())
        });
        assert_no_residue(&server, &[]);
    }
}

/// Redisson: `PublishSubscribeTest.testSubscribeForRaceCondition`.
#[test]
fn waits_that_end_while_subscribing_do_not_break_the_next() {
    let _alone = fairlock_tests::Alone::here();
    for kind in KINDS {
        let server = RedisServer::start();
        let (holder, client) =
            (Client::new(backend(&server, LEASE)).unwrap(), Client::new(backend(&server, LEASE)).unwrap());
        let (ours, theirs) = (lock_of(&holder, kind, "race"), lock_of(&client, kind, "race"));
        let guard = ours.lock().unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for micros in (0..100).map(|turn| 1 + turn * 20) {
                        assert!(
                            theirs.try_lock_for(Duration::from_micros(micros)).unwrap().guard().is_none()
                        );
                    }
                });
            }
        });
        let before = client.stats();
        let request = theirs.request().unwrap();
        eventually("the timed-out waiters have left the queue", || {
            theirs.inspect().unwrap().queue.len() == usize::from(kind == LockKind::Fair)
        });
        let released = Instant::now();
        guard.unlock().unwrap();
        request.wait().unwrap().unlock().unwrap();
        assert!(released.elapsed() < Duration::from_millis(500), "{:?}", released.elapsed());
        assert_eq!(client.stats().granted_by_wake_up, before.granted_by_wake_up + 1, "{:?}", client.stats());
        drop(theirs);
        let own = [&holder, &client].map(|client| format!("fairlock:{}", client.id()));
        eventually("only the clients' own channels are subscribed", || {
            let mut left: Vec<String> = server.query(&["PUBSUB", "CHANNELS"]);
            left.retain(|channel| !own.contains(channel));
            left.is_empty()
        });
        assert_no_residue(&server, &[]);
    }
}

/// Redisson: `testConcurrencyTryLockUnLock`, which checks this inside the client.
#[test]
fn nothing_is_renewed_after_many_threads_released_the_lock() {
    let _alone = fairlock_tests::Alone::here();
    for kind in [LockKind::Fair, LockKind::Plain] {
        let server = RedisServer::start();
        let lease = Duration::from_millis(600);
        let client = Client::builder(backend(&server, lease)).lease(lease).build().unwrap();
        let ours = lock_of(&client, kind, "quiet");
        let taken = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        if let TryLock::Granted(guard) = ours.try_lock().unwrap() {
                            taken.fetch_add(1, Ordering::Relaxed);
                            guard.unlock().unwrap();
                        }
                    }
                });
            }
        });
        assert!(taken.load(Ordering::Relaxed) > 0 && client.stats().lost == 0);
        let before = scripts_run(&server);
        thread::sleep(lease); // three renewal periods, in which nothing may happen
        assert_eq!(scripts_run(&server), before);
        assert_no_residue(&server, &[]);
    }
}
