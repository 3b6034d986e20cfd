//! Holds that were leaked and lost: each unlock of one reports the loss once, and then there is nothing to unlock.

use super::scene::*;
use super::support::World;
use crate::{Error, LostCause};

#[test]
fn each_leaked_hold_that_was_lost_is_reported_once() {
    let s = unwatched().a().locks().leaks().locks().leaks().loses(Taken).unleaks().lost(Taken);
    s.a().unleaks().lost(Taken).unleaks().fails(NotHeld);
}

#[test]
fn a_hold_that_is_leaked_after_its_loss_is_reported_as_well() {
    unwatched().a().locks().loses(Taken).leaks().unleaks().lost(Taken).unleaks().fails(NotHeld);
}

#[test]
fn an_unlock_takes_no_hold_of_a_guard_that_was_lost_as_well() {
    let s = unwatched().a().locks().leaks().a2().locks().a().loses(Taken).unleaks().lost(Taken);
    s.a().unleaks().fails(NotHeld).a2().unlocks().lost(Taken);
}

#[test]
fn many_leaked_holds_of_one_claim_are_one_loss() {
    let s = unwatched().b().locks().leaks().loses(Taken);
    (0..256).for_each(|_| _ = s.a().locks());
    s.a().loses(Taken);
    (0..256).for_each(|_| _ = s.a().leaks());
    s.b().unleaks().lost(Taken).a().unleaks().lost(Taken);
}

#[test]
fn the_latest_losses_are_kept_for_unlock() {
    let s = unwatched();
    let holder = |n: u32| s.by(&format!("holder {n}"));
    (0..=256).for_each(|n| _ = holder(n).locks().leaks().loses(Taken));
    holder(0).unleaks().fails(NotHeld);
    [1, 256].into_iter().for_each(|n| _ = holder(n).unleaks().lost(Taken));
}

/// Leaked holds that are given back take no place among the lost.
#[test]
fn leaks_that_are_given_back_push_no_loss_out() {
    let s = unwatched().a().locks().leaks().loses(Taken);
    (0..256).for_each(|_| _ = s.b().locks().leaks().unleaks().done());
    s.a().unleaks().lost(Taken);
}

#[test]
fn a_lost_leak_belongs_to_its_lock_and_owner() {
    let world = World::without_watchdog();
    let owner = world.client.new_owner();
    let lock = |name: &str| world.client.fair_lock(name).unwrap().owned_by(&owner).unwrap();
    lock("leaks:mine").lock().unwrap().leak();
    world.shared.ledger.lose(&world.claim("leaks:mine"), LostCause::Taken);
    assert!(matches!(world.lock("leaks:mine").unlock(), Err(Error::NotHeld { .. })));
    assert!(matches!(lock("leaks:other").unlock(), Err(Error::NotHeld { .. })));
    assert!(matches!(lock("leaks:mine").unlock(), Err(Error::Lost(_))));
}
