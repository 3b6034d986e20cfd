//! Holds that were leaked and lost: each unlock of one reports the loss once, and then there is nothing to unlock.

use super::support::World;
use crate::{Error, LostCause, OwnedLock};

/// A lock with a leaked hold.
fn leaked(world: &World, name: &str) -> OwnedLock {
    let lock = world.lock(name);
    lock.lock().unwrap().leak();
    lock
}

fn lose(world: &World, name: &str) {
    world.shared.ledger.lose(&world.claim(name), LostCause::Taken);
}

fn is_lost(lock: &OwnedLock) -> bool {
    match lock.unlock() {
        Err(Error::Lost(_)) => true,
        Err(Error::NotHeld { .. }) => false,
        unlocked => panic!("{unlocked:?}"),
    }
}

#[test]
fn each_leaked_hold_that_was_lost_is_reported_once() {
    let world = World::without_watchdog();
    let lock = leaked(&world, "leaks:each");
    lock.lock().unwrap().leak();
    lose(&world, "leaks:each");
    assert_eq!([is_lost(&lock), is_lost(&lock), is_lost(&lock)], [true, true, false]);
}

#[test]
fn a_hold_that_is_leaked_after_its_loss_is_reported_as_well() {
    let world = World::without_watchdog();
    let lock = world.lock("leaks:after");
    let guard = lock.lock().unwrap();
    lose(&world, "leaks:after");
    guard.leak();
    assert_eq!([is_lost(&lock), is_lost(&lock)], [true, false]);
}

#[test]
fn an_unlock_takes_no_hold_of_a_guard_that_was_lost_as_well() {
    let world = World::without_watchdog();
    let lock = leaked(&world, "leaks:guard");
    let guard = lock.lock().unwrap();
    lose(&world, "leaks:guard");
    assert_eq!([is_lost(&lock), is_lost(&lock)], [true, false]);
    assert!(matches!(guard.unlock(), Err(Error::Lost(_))));
}

#[test]
fn many_leaked_holds_of_one_claim_are_one_loss() {
    let world = World::without_watchdog();
    let other = leaked(&world, "leaks:other");
    lose(&world, "leaks:other");
    let lock = world.lock("leaks:many");
    let guards: Vec<_> = (0..256).map(|_| lock.lock().unwrap()).collect();
    lose(&world, "leaks:many");
    guards.into_iter().for_each(|guard| guard.leak());
    assert!(is_lost(&other) && is_lost(&lock));
}

#[test]
fn the_latest_losses_are_kept_for_unlock() {
    let world = World::without_watchdog();
    let lost = |n: usize| {
        let name = format!("leaks:{n}");
        let lock = leaked(&world, &name);
        lose(&world, &name);
        lock
    };
    let locks: Vec<_> = (0..=256).map(lost).collect();
    assert_eq!([0, 1, 256].map(|n| is_lost(&locks[n])), [false, true, true]);
}

#[test]
fn leaked_holds_that_are_given_back_take_no_place_among_the_lost() {
    let world = World::without_watchdog();
    let lock = leaked(&world, "leaks:lost");
    lose(&world, "leaks:lost");
    (0..256).for_each(|_| leaked(&world, "leaks:given back").unlock().unwrap());
    assert!(is_lost(&lock));
}

#[test]
fn a_lost_leak_belongs_to_its_lock_and_owner() {
    let world = World::without_watchdog();
    let owner = world.client.new_owner();
    let lock = |name: &str| world.client.fair_lock(name).unwrap().owned_by(&owner).unwrap();
    lock("leaks:mine").lock().unwrap().leak();
    lose(&world, "leaks:mine");
    assert!(!is_lost(&world.lock("leaks:mine")) && !is_lost(&lock("leaks:other")));
    assert!(is_lost(&lock("leaks:mine")));
}
