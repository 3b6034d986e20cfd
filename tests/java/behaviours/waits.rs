//! How long waits last, and what does not end them.

use std::sync::mpsc;
use std::thread;

use fairlock::{Cancel, Error};

use crate::world::{SLACK, SOON, worlds};

/// Redisson: `testLockUninterruptibly`. Rust threads have no interrupts; `unpark` is the spurious wake-up here.
#[test]
fn a_spurious_wake_up_does_not_end_a_wait() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let (ours, theirs) = (world.lock("woken"), world.lock("woken"));
        let guard = ours.lock().unwrap();
        let (arrive, arrived) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let guard = theirs.lock().unwrap();
                arrive.send(guard.token()).unwrap();
                guard.unlock().unwrap();
            });
            world.until_waiting("woken", 1);
            (0..1000).for_each(|_| waiter.thread().unpark());
            assert!(arrived.try_recv().is_err() && !guard.is_lost());
            let token = guard.token();
            guard.unlock().unwrap();
            assert!(arrived.recv_timeout(SOON).unwrap() > token);
        });
        world.assert_no_residue("woken");
    }
}

/// Redisson: `testLockIsNotRenewedAfterInterruptedTryLock`.
#[test]
fn a_wait_cancelled_during_its_request_leaves_no_hold_behind() {
    let _alone = fairlock_tests::Alone::here();
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
