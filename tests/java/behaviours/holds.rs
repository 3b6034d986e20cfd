//! A hold as seen by its owner, by others and by strangers.

use std::thread;

use fairlock::Error;

use crate::world::{World, worlds};

/// Runs `look` on another thread.
fn elsewhere<T: Send>(look: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(look).join().unwrap())
}

/// Redisson: `testGetHoldCount`, `testLockUnlock`.
#[test]
fn the_hold_count_follows_nested_locks() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let ours = world.lock("count");
        assert_eq!(ours.hold_count(), 0);
        for _ in 0..2 {
            let guard = ours.lock().unwrap();
            assert_eq!(ours.hold_count(), 1);
            guard.unlock().unwrap();
            assert_eq!(ours.hold_count(), 0);
        }
        let outer = ours.lock().unwrap();
        let inner = ours.lock().unwrap();
        assert_eq!((ours.hold_count(), elsewhere(|| ours.hold_count())), (2, 0));
        inner.unlock().unwrap();
        assert_eq!(ours.hold_count(), 1);
        outer.unlock().unwrap();
        assert_eq!(ours.hold_count(), 0);
        world.assert_no_residue("count");
    }
}

/// Redisson: `testIsHeldByCurrentThread`, `testIsHeldByCurrentThreadOtherThread`.
#[test]
fn only_the_holding_thread_sees_itself_as_the_holder() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let ours = world.lock("mine");
        assert!(!ours.is_held());
        let guard = ours.lock().unwrap();
        assert!(ours.is_held());
        assert!(!elsewhere(|| ours.is_held()));
        assert!(!world.lock("mine").is_held(), "another client is another owner");
        guard.unlock().unwrap();
        assert!(!ours.is_held() && !elsewhere(|| ours.is_held()));
        world.assert_no_residue("mine");
    }
}

/// Redisson: `testIsLocked`, `testIsLockedOtherThread`.
#[test]
fn every_client_sees_whether_the_lock_is_held() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let (ours, theirs) = (world.lock("seen"), world.lock("seen"));
        let seen = || {
            [ours.is_locked().unwrap(), elsewhere(|| ours.is_locked().unwrap()), theirs.is_locked().unwrap()]
        };
        assert_eq!(seen(), [false; 3]);
        let guard = ours.lock().unwrap();
        assert_eq!(seen(), [true; 3]);
        guard.unlock().unwrap();
        assert_eq!(seen(), [false; 3]);
        world.assert_no_residue("seen");
    }
}

/// Redisson: `testUnlockFail`.
#[test]
fn an_unlock_by_a_stranger_is_refused_by_name_and_changes_nothing() {
    let _alone = fairlock_tests::Alone::here();
    for world in worlds() {
        let (client, stranger) = (world.client(), world.client());
        let ours = world.lock_of(&client, "refused");
        let guard = ours.lock().unwrap();
        let refused = |world: &World, client| world.lock_of(client, "refused").unlock().unwrap_err();
        for (error, id) in [
            (refused(&world, &stranger), stranger.id()),
            (elsewhere(|| refused(&world, &client)), client.id()),
        ] {
            let said = error.to_string();
            assert!(said.contains("refused") && said.contains(&id.to_string()), "{said}");
            match error {
                Error::NotHeld { owner, guards, .. } => {
                    assert_eq!((owner.client(), guards), (id.to_string().as_str(), 0));
                    assert_ne!(owner, *guard.owner());
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(ours.is_held() && !guard.is_lost());
        guard.unlock().unwrap();
        world.assert_no_residue("refused");
    }
}
