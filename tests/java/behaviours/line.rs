//! Which requests get a free lock.

use std::time::Duration;

use fairlock::LockKind;
use fairlock::backend::{Acquire, Acquired, Backend, Hold, Place, Released, RequestId};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

use crate::world::{SOON, backend, in_memory, on_redis, worlds};

/// Redisson: `testAcquireFailedTimeoutDrift_Descrete`, where the first one gets it after the unlock.
#[test]
fn the_second_in_line_does_not_get_a_free_lock_by_asking_first() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let (backend, world) = (backend(&server), in_memory(LockKind::Fair)); // only its names are used
    let (client, lock) = (world.client(), world.id("second"));
    let owners = [(); 3].map(|()| client.new_owner().id().clone());
    let ask = |number: usize| {
        let place = Place::new(&lock, &owners[number], RequestId::new(number as u64));
        backend.acquire(&Acquire::new(place, Duration::from_secs(10))).unwrap()
    };
    let give_back = |number: usize, answer: Acquired| {
        let Acquired::Granted { token, .. } = answer else { panic!("{answer:?}") };
        let hold = Hold::new(&lock, &owners[number], RequestId::new(number as u64), token);
        assert_eq!(backend.release(&hold).unwrap(), Released::Released);
    };
    let holder = ask(0);
    assert!(matches!(ask(1), Acquired::Queued { rank: 0, .. }));
    assert!(matches!(ask(2), Acquired::Queued { rank: 1, .. }));
    give_back(0, holder);
    for _ in 0..3 {
        assert!(
            matches!(ask(2), Acquired::Queued { rank: 1, .. }),
            "the lock is free, but not for this waiter"
        );
        assert!(matches!(ask(0), Acquired::Queued { rank: 2, .. }), "nor for one that comes back");
    }
    for number in [1, 2, 0] {
        give_back(number, ask(number));
    }
    assert_no_residue(&server, &[]);
}

/// Redisson: `testLockAcquiredBooleanTimeoutDrift_Descrete`.
#[test]
fn attempts_without_a_wait_leave_no_place_behind() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let lease = Duration::from_millis(500);
        let holder = world.lock("once").fixed_lease(lease);
        let guard = holder.lock().unwrap();
        let others = [world.lock("once"), world.lock("once"), world.lock("once")];
        for other in others.iter().cycle().take(12) {
            assert!(other.try_lock().unwrap().guard().is_none());
            assert!(other.try_lock_for(Duration::ZERO).unwrap().guard().is_none());
            assert!(other.inspect().unwrap().line.is_empty());
        }
        world.pass(lease + Duration::from_millis(20));
        assert!(guard.is_lost());
        // Any request gets it, even that of a new owner.
        world.lock("once").try_lock().unwrap().guard().expect("the line is empty").unlock().unwrap();
        others[2].try_lock().unwrap().guard().expect("the line is empty").unlock().unwrap();
        drop(guard);
        world.assert_no_residue("once");
    }
}

/// Redisson: `testTryLockNonDelayed`.
#[test]
fn a_failed_wait_does_not_delay_the_next_try() {
    let _alone = fairlock_tests::Alone::here();
    for world in [on_redis(LockKind::Fair), on_redis(LockKind::Plain)] {
        let (ours, theirs, third) = (world.lock("vain"), world.lock("vain"), world.lock("vain"));
        let guard = ours.try_lock_for(Duration::ZERO).unwrap().guard().expect("the lock is free");
        assert!(theirs.try_lock_for(Duration::from_millis(200)).unwrap().guard().is_none());
        world.until_waiting("vain", 0);
        guard.unlock().unwrap();
        third
            .try_lock_for(Duration::ZERO)
            .unwrap()
            .guard()
            .expect("the lock is free at once")
            .unlock()
            .unwrap();
        theirs.try_lock().unwrap().guard().expect("the lock is free at once").unlock().unwrap();
        world.assert_no_residue("vain");
    }
}

/// Dropped with its client: no later call can withdraw it.
#[test]
fn dropping_a_request_that_is_the_last_handle_of_its_client_leaves_the_line() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let lock = world.lock("last");
        let guard = lock.lock().unwrap();
        let request = world.lock("last").request().unwrap();
        drop(request);
        // Far less than a place without a withdrawal: parked, it stays for a minute.
        eventually(SOON, "the request leaves", || lock.inspect().unwrap().line.is_empty());
        guard.unlock().unwrap();
        world.assert_no_residue("last");
    }
}
