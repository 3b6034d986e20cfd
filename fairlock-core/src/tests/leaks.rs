//! Holds that were leaked and lost: each unlock of one reports the loss once, and then there is nothing to unlock.

use super::scene::{UNWATCHED, play, scenes};
use super::support::World;
use crate::{Error, LostCause};

scenes! {
    fn each_leaked_hold_that_was_lost_is_reported_once() {
        UNWATCHED "a locks; a leaks; a locks; a leaks; a loses; a unleaks lost Taken; a unleaks lost Taken
        a unleaks fails NotHeld"
    }

    fn a_hold_that_is_leaked_after_its_loss_is_reported_as_well() {
        UNWATCHED "a locks; a loses; a leaks; a unleaks lost Taken; a unleaks fails NotHeld"
    }

    fn an_unlock_takes_no_hold_of_a_guard_that_was_lost_as_well() {
        UNWATCHED "a locks; a leaks; a' locks; a loses; a unleaks lost Taken; a unleaks fails NotHeld
        a' unlocks lost Taken"
    }
}

#[test]
fn many_leaked_holds_of_one_claim_are_one_loss() {
    let [locks, leaks] = ["a locks;", "a leaks;"].map(|call| call.repeat(256));
    let other = "other locks; other leaks; other loses;";
    let told = "other unleaks lost Taken; a unleaks lost Taken";
    play(&UNWATCHED, &format!("{other} {locks} a loses; {leaks} {told}"));
}

#[test]
fn the_latest_losses_are_kept_for_unlock() {
    let lost: String = (0..=256).map(|n| format!("w{n} locks; w{n} leaks; w{n} loses;")).collect();
    let told = "w0 unleaks fails NotHeld; w1 unleaks lost Taken; w256 unleaks lost Taken";
    play(&UNWATCHED, &format!("{lost} {told}"));
}

#[test]
fn leaked_holds_that_are_given_back_take_no_place_among_the_lost() {
    let given_back = "b locks; b leaks; b unleaks done;".repeat(256);
    play(&UNWATCHED, &format!("a locks; a leaks; a loses; {given_back} a unleaks lost Taken"));
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
