//! A hold taken by force, by either side, with a waiter of either side.

use std::time::Duration;

use fairlock::Error;
use fairlock::admin::LockKind;
use fairlock_tests::eventually;

use crate::world::{KINDS, World, wait_for_turn, word};

/// One of the two sides.
#[derive(Clone, Copy, Debug)]
enum Side {
    Rust,
    Java,
}

const SIDES: [Side; 2] = [Side::Rust, Side::Java];

/// A hold that is taken by force goes to the waiter of either side, and the former holder is told.
#[test]
fn a_forced_hold_goes_to_the_waiter_of_either_side() {
    let world = World::new();
    for kind in KINDS {
        for holder in SIDES {
            for forcer in SIDES {
                for waiter in SIDES {
                    take_by_force(&world, kind, [holder, forcer, waiter]);
                }
            }
        }
    }
}

fn take_by_force(world: &World, kind: LockKind, [holder, forcer, waiter]: [Side; 3]) {
    let (word, java) = (word(kind), &world.java);
    let name = format!("{word}-{holder:?}-{forcer:?}-{waiter:?}");
    // Ours learn by a renewal that Java took a hold.
    let lease = Duration::from_millis(2400);
    let held = match holder {
        Side::Rust => Some(world.lock_with(kind, &name, lease).lock().unwrap()),
        Side::Java => {
            java.expect("holds", &format!("lock {word} {name}"), "ok");
            None
        }
    };
    let lock = world.lock(kind, &name);
    let (ours, theirs) = match waiter {
        Side::Rust => (Some(wait_for_turn(&lock)), None),
        Side::Java => (None, Some(java.tell("waits", &format!("lock {word} {name}")))),
    };
    world.until_waiting(kind, &name, 1);

    match forcer {
        Side::Rust => assert!(world.lock(kind, &name).admin().force_unlock().unwrap()),
        Side::Java => drop(java.expect("forces", &format!("force {word} {name}"), "true")),
    }
    if let Some(turn) = ours {
        turn.soon();
    }
    if let Some(pending) = theirs {
        pending.expect("ok");
        // The former holder learns of it now, and takes nothing away.
        java.expect("waits", &format!("count {word} {name}"), "1");
    }
    match held {
        Some(guard) => {
            eventually("the loss is noticed", || guard.is_lost());
            let error = guard.unlock().unwrap_err();
            assert!(matches!(error, Error::Lost(_)), "{error}");
        }
        // Redisson: the unlock of a fair lock without a holder succeeds silently.
        None if kind == LockKind::Plain || matches!(waiter, Side::Java) => {
            java.expect_not_held("holds", &format!("unlock {word} {name}"));
        }
        None => {}
    }
    if matches!(waiter, Side::Java) {
        java.expect("waits", &format!("unlock {word} {name}"), "ok");
    }
    assert!(!lock.admin().force_unlock().unwrap());
}
