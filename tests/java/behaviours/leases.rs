//! Leases end by themselves, and that alone moves the line.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, LockKind, LostCause, MemoryBackend, Operation};

use crate::world::{SLACK, SOON, World, worlds};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Redisson: `testLeaseTimeout`.
#[test]
fn expiring_leases_hand_the_lock_on_in_order_without_any_unlock() {
    let _alone = fairlock_tests::Alone::here();
    worlds().for_each(|world| eight_holders_without_an_unlock(&world));
}

fn eight_holders_without_an_unlock(world: &World) {
    const WAITERS: u32 = 8;
    let lease = ms(500);
    let starter = world.lock("expiry");
    let guard = starter.lock().unwrap();
    let (grants, granted) = mpsc::channel();
    let started = thread::scope(|scope| {
        for number in 0..WAITERS {
            let (theirs, grants) = (world.lock("expiry").fixed_lease(lease), grants.clone());
            scope.spawn(move || {
                let guard = theirs.try_lock_for(SOON).unwrap().guard().expect("in time");
                grants.send((guard.token(), number, world.now())).unwrap();
                guard.leak();
            });
            world.until_waiting("expiry", number as usize + 1);
        }
        let started = world.now();
        guard.unlock().unwrap();
        world.time_for_others(lease * (WAITERS + 1));
        started
    });
    // In the order of the grants: on a busy machine a thread may report a timely grant late.
    let mut grants: Vec<_> = granted.try_iter().collect();
    grants.sort_by_key(|(token, ..)| *token);
    let took = grants.last().unwrap().2 - started;
    // A server counts whole milliseconds. In virtual time, the clock may have reached its target before it is read.
    let longest = (lease * WAITERS + SLACK * 4).max(lease * (WAITERS + 1));
    assert!(took + ms(20) >= lease * (WAITERS - 1) && took <= longest, "{took:?}");
    let mut order: Vec<_> = grants.iter().map(|(_, number, _)| *number).collect();
    if world.kind == LockKind::Plain {
        order.sort_unstable();
    }
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    world.pass(lease + SLACK);
    world.assert_no_residue("expiry");
}

/// Redisson: `testExpire`. There, the late unlock of a fair lock reports nothing; ours reports the loss.
#[test]
fn a_waiter_gets_the_lock_when_the_lease_ends_and_the_late_unlock_takes_nothing_from_it() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let lease = ms(800);
        let (ours, theirs) = (world.lock("expire").fixed_lease(lease), world.lock("expire"));
        let started = world.now();
        let late = ours.lock().unwrap();
        let (arrive, arrived) = mpsc::channel();
        thread::scope(|scope| {
            let world = &world;
            // Dropped by a failure: the waiter ends then.
            let (go, may_go) = mpsc::channel::<()>();
            scope.spawn(move || {
                let guard = theirs.lock().unwrap();
                arrive.send(world.now()).unwrap();
                may_go.recv().unwrap();
                guard.unlock().unwrap();
            });
            world.until_waiting("expire", 1);
            world.time_for_others(lease + SLACK);
            let took = arrived.recv_timeout(SOON).unwrap() - started;
            // In virtual time, the clock may have reached its target before the waiter reads it.
            assert!(took >= lease && took <= lease + SLACK, "{took:?}");
            match late.unlock() {
                Err(Error::Lost(lost)) => assert_eq!(lost.cause, LostCause::LeaseOver),
                other => panic!("{other:?}"),
            }
            assert!(ours.try_lock().unwrap().guard().is_none());
            go.send(()).unwrap();
        });
        world.assert_no_residue("expire");
    }
}

/// Redisson: `testAutoExpire`.
#[test]
fn a_lock_is_free_a_lease_after_its_client_left_without_unlocking() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let lease = ms(600);
        let client = world.client_with(lease);
        world.lock_of(&client, "gone").lock().unwrap().leak();
        let theirs = world.lock("gone");
        world.pass(lease * 2);
        assert!(theirs.is_locked().unwrap(), "the watchdog renews it while its client lives");
        drop(client);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| theirs.try_lock_for(lease + SLACK).unwrap().guard().is_some());
            world.until_waiting("gone", 1);
            world.time_for_others(lease + SLACK);
            assert!(waiter.join().unwrap());
        });
        world.assert_no_residue("gone");
    }
}

/// Redisson: `testRemainTimeToLive2`.
#[test]
fn an_inner_unlock_keeps_the_end_of_the_outermost_lease() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let lease = ms(1000);
        let ours = world.lock_of(&world.client_with(SOON), "nested");
        let fixed = ours.fixed_lease(lease);
        let outer = fixed.lock().unwrap();
        let (middle, inner) = (fixed.lock().unwrap(), ours.lock().unwrap());
        world.pass(ms(300));
        inner.unlock().unwrap();
        middle.unlock().unwrap();
        assert_eq!(ours.hold_count(), 1);
        let left = ours.inspect().unwrap().holder().unwrap().lease_left.unwrap();
        assert!(left > Duration::ZERO && left <= ms(700), "{left:?}");
        world.pass(ms(750));
        assert!(outer.is_lost() && ours.hold_count() == 0);
        world.lock("nested").try_lock().unwrap().guard().expect("nothing prolonged it").unlock().unwrap();
        assert!(matches!(outer.unlock(), Err(Error::Lost(_))));
        world.assert_no_residue("nested");
    }
}

/// Redisson: `testRemainTimeToLive`.
#[test]
fn a_long_lease_does_not_outlive_its_hold() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let (hour, lease) = (Duration::from_secs(3600), Duration::from_secs(30));
        let ours = world.lock_of(&world.client_with(lease), "hour");
        let left = || ours.inspect().unwrap().holder().and_then(|holder| holder.lease_left);
        let guard = ours.fixed_lease(hour).lock().unwrap();
        assert!(left().is_some_and(|left| left <= hour && left > hour - SOON), "{:?}", left());
        guard.unlock().unwrap();
        assert_eq!(left(), None);
        let guard = ours.lock().unwrap();
        assert!(left().is_some_and(|left| left <= lease && left > lease - SOON), "{:?}", left());
        guard.unlock().unwrap();
        world.assert_no_residue("hour");
    }
}

#[test]
fn the_time_that_an_answer_takes_counts_against_the_hold() {
    let _alone = fairlock_tests::Alone::here();
    let backend = MemoryBackend::new();
    backend.faults().delay_next(Operation::Acquire, 1, ms(300));
    let client = Client::builder(backend).lease(ms(900)).build().unwrap();
    let guard = client.fair_lock("slow").unwrap().lock().unwrap();
    assert!(guard.valid_for() <= ms(600), "{:?}", guard.valid_for());
    assert!(!guard.is_lost());
}
