//! Which holds are renewed, and which no longer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fairlock::{Client, LockKind, TryLock};
use fairlock_tests::locks::lock_of;
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{RedisServer, assert_no_residue};

use crate::world::{backend_for, worlds};

/// Redisson: `RedissonLockExpirationRenewalTest.testLockReentrantRenew`.
#[test]
fn nested_holds_of_one_thread_do_not_stop_the_next_renewal() {
    for world in worlds() {
        let lease = Duration::from_millis(1200);
        let ours = world.lock_of(&world.client_with(lease), "pairs");
        for _ in 0..3 {
            let outer = ours.lock().unwrap();
            ours.lock().unwrap().unlock().unwrap();
            ours.try_lock().unwrap().guard().unwrap().unlock().unwrap();
            outer.unlock().unwrap();
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = ours.lock().unwrap();
                world.pass(lease * 2);
                assert!(!guard.is_lost() && guard.valid_for() > Duration::ZERO);
                assert!(world.lock("pairs").try_lock().unwrap().guard().is_none());
                guard.unlock().unwrap();
            });
        });
        world.assert_no_residue("pairs");
    }
}

/// Redisson: `testConcurrencyTryLockUnLock`, which checks this inside the client.
#[test]
fn nothing_is_renewed_after_many_threads_released_the_lock() {
    let _alone = fairlock_tests::Alone::here();
    for kind in [LockKind::Fair, LockKind::Plain] {
        let server = RedisServer::start();
        let lease = Duration::from_millis(600);
        let client = Client::builder(backend_for(&server, lease)).lease(lease).build().unwrap();
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
