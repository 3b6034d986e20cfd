//! The times in Redisson's sorted set never drift far into the future, which would keep dead waiters alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::backend::{Acquired, Wait};
use fairlock_tests::{assert_no_residue, eventually};

use crate::world::{LEASE, SOON, World, assert_near};

/// Redisson's `fairLockWaitTimeout`.
const THREAD_WAIT: Duration = Duration::from_secs(300);

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}

/// No time is further ahead than the lease and one wait for each waiter up to it.
fn assert_no_drift(world: &World, lease: Duration, wait: Duration) {
    let (scores, now) = (world.scores(), world.server.time_ms());
    for ((owner, score), position) in scores.iter().zip(1..) {
        let most = millis(lease) + millis(wait) * position;
        assert!(score - now <= most, "{owner} at {position}: {} > {most}", score - now);
    }
}

/// Redisson: `testWaitTimeoutDrift`.
#[test]
fn short_waits_around_a_dead_waiter_do_not_push_the_times_ahead() {
    let world = World::new();
    let guard = world.client().lock().unwrap();
    thread::scope(|scope| {
        for lock in [(); 3].map(|()| world.client()) {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..17 {
                    let wait = Duration::from_millis(10 + turn % 5 * 5);
                    assert!(lock.try_lock_for(wait).unwrap().guard().is_none());
                    assert_no_drift(world, LEASE, THREAD_WAIT);
                }
            });
        }
        assert!(matches!(world.ask("dead:1"), Acquired::Queued { .. }));
    });
    eventually("only the dead waiter is left", || world.scores().len() == 1);
    assert_no_drift(&world, LEASE, THREAD_WAIT);
    world.withdraw("dead:1");
    guard.unlock().unwrap();
    assert_no_residue(&world.server, &[]);
}

/// Redisson: `testLockAcquiredTimeoutDrift`.
#[test]
fn repeated_acquisitions_do_not_push_the_times_ahead() {
    let world = World::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let takers = [(); 3].map(|()| world.client()).map(|lock| {
            scope.spawn(move || {
                for turn in 0..60 {
                    let guard = match turn % 2 {
                        0 => lock.try_lock_for(SOON).unwrap().guard().expect("in time"),
                        _ => lock.lock().unwrap(),
                    };
                    guard.unlock().unwrap();
                }
            })
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_no_drift(&world, LEASE, THREAD_WAIT);
            }
        });
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(world.scores().is_empty());
    assert_no_residue(&world.server, &[]);
}

/// A waiter that gives up or gets the lock takes its wait off the times behind it. Redisson:
/// `testAcquireFailedTimeoutDrift_Descrete`, `testLockAcquiredTimeoutDrift_Descrete`.
#[test]
fn a_waiter_that_leaves_takes_its_wait_off_later_times() {
    const WAIT: i64 = 5000;
    const WAITERS: [&str; 4] = ["first", "second", "third", "fourth"];
    let world = World { wait: Wait::UpTo(Duration::from_millis(WAIT as u64)), ..World::new() };
    let held = world.take("holder");
    let asked = world.server.time_ms();
    assert_eq!(WAITERS.map(|owner| world.rank(owner)), [0, 1, 2, 3]);
    let before = WAITERS.map(|owner| world.score(owner));
    for (score, position) in before.iter().zip(1..) {
        assert_near(*score, asked + millis(LEASE) + WAIT * position);
    }
    let behind_moved_by = |waits: i64| {
        assert_eq!(
            ["third", "fourth"].map(|owner| world.score(owner)),
            [2, 3].map(|at| before[at] - WAIT * waits)
        );
    };
    world.withdraw("second");
    world.withdraw("second"); // a repeat subtracts nothing more
    assert_eq!(world.score("first"), before[0]);
    behind_moved_by(1);

    world.release("holder", held);
    assert_eq!((world.rank("fourth"), world.rank("third")), (2, 1));
    let granted = world.take("first");
    behind_moved_by(2);
    assert_eq!(world.rank("fifth"), 2);
    assert_eq!(world.score("fifth"), world.score("fourth") + WAIT);
    world.release("first", granted);
    for owner in ["third", "fourth", "fifth"] {
        world.release(owner, world.take(owner));
    }
    assert_no_residue(&world.server, &[]);
}

/// A first waiter that dies delays the others by its own time only. Redisson: `testFirstThreadDeathTimeoutDrift`,
/// `testAbandonedTimeoutDrift_Descrete`.
#[test]
fn a_dead_first_waiter_delays_others_by_its_time_only() {
    let wait = Duration::from_millis(1000);
    let world = World::with(|builder| builder.thread_wait(wait));
    let lease = Duration::from_millis(500);
    assert!(matches!(world.ask_with("dead:0", Wait::Forever, lease), Acquired::Granted { .. }));
    assert_eq!(world.rank("dead:1"), 0);
    let started = Instant::now();
    let requests = [(); 3].map(|()| world.client().request().unwrap());
    assert_no_drift(&world, lease, wait);
    for request in requests {
        request.wait().unwrap().unlock().unwrap();
    }
    // The lease, the dead waiter's time, and the next heartbeat behind it.
    let took = started.elapsed();
    assert!(took < lease + wait + Duration::from_millis(600), "{took:?}");
    assert_no_residue(&world.server, &[]);
}
