//! What is left of attempts and waits that did not get the lock.

use std::thread;
use std::time::Duration;

use fairlock::{Cancel, Error};

use crate::world::{SLACK, SOON, worlds};

/// Redisson: `testLockAcquiredBooleanTimeoutDrift_Descrete`.
#[test]
fn attempts_without_a_wait_leave_no_place_behind() {
    for world in worlds() {
        let lease = Duration::from_millis(500);
        let guard = world.lock("once").fixed_lease(lease).lock().unwrap();
        let others = [(); 3].map(|()| world.lock("once"));
        for other in others.iter().cycle().take(12) {
            assert!(other.try_lock().unwrap().guard().is_none());
            assert!(other.try_lock_for(Duration::ZERO).unwrap().guard().is_none());
            assert!(other.inspect().unwrap().line.is_empty());
        }
        world.pass(lease + Duration::from_millis(20));
        assert!(guard.is_lost());
        // Any request gets it, even that of a new owner.
        for other in [&world.lock("once"), &others[2]] {
            other.try_lock().unwrap().guard().expect("the line is empty").unlock().unwrap();
        }
        drop(guard);
        world.assert_no_residue("once");
    }
}

/// Redisson: `testLockIsNotRenewedAfterInterruptedTryLock`.
#[test]
fn a_wait_cancelled_during_its_request_leaves_no_hold_behind() {
    for world in worlds() {
        let (ours, theirs) = (world.lock("cancelled"), world.lock("cancelled"));
        for _ in 0..50 {
            let cancel = Cancel::new();
            thread::scope(|scope| {
                let asker = scope.spawn(|| {
                    ours.cancelled_by(&cancel).try_lock_for(SOON).map(|tried| drop(tried.guard().unwrap()))
                });
                cancel.cancel();
                let asked = asker.join().unwrap();
                assert!(matches!(asked, Ok(()) | Err(Error::Cancelled { .. })), "{asked:?}");
            });
        }
        // Nothing renews a hold without a holder: the lock is free before a lease ends.
        theirs.try_lock_for(SLACK * 2).unwrap().guard().expect("the lock is free").unlock().unwrap();
        assert_eq!(ours.hold_count(), 0);
        world.assert_no_residue("cancelled");
    }
}
