//! Plain locks: there is no queue, the first caller gets a free lock, and every waiting client is woken.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquired, Backend, ForceReleased, Renewal, Wait, Withdrawn, only};

use crate::support::*;

/// The caller waits, and is to look so much later.
#[track_caller]
fn waits(world: &World, number: u64) -> Duration {
    match world.ask(number, 1, Wait::Forever).unwrap() {
        Acquired::Busy { recheck_in } => recheck_in,
        other => panic!("{other:?}"),
    }
}

/// A release wakes each waiting client once, and the first caller gets the lock.
#[test]
fn a_release_wakes_each_waiting_client_once() {
    let world = World::of(LockKind::Plain);
    let token = world.granted(1, 1);
    assert_eq!(waits(&world, 2), LEASE);
    [3, OF_SECOND].iter().for_each(|number| _ = waits(&world, *number));
    assert!(matches!(world.ask(4, 1, Wait::No), Ok(Acquired::Busy { .. })));
    assert_eq!(world.seen(), (vec![1], vec![]));
    world.releases(1, token);
    assert_eq!([world.told(0), world.told(1)], [["recheck"], ["recheck"]]);
    world.granted(4, 1);
    waits(&world, 2);
}

/// The interest ends with a grant, a withdrawal or an attempt without wait. A renewal registers a removed interest again.
#[test]
fn the_interest_ends_with_the_request() {
    let world = World::of(LockKind::Plain);
    let token = world.granted(1, 1);
    [2, 3, 4].iter().for_each(|number| _ = waits(&world, *number));
    world.releases(1, token);
    assert_eq!(world.told(0), ["recheck"]);
    let token = world.granted(2, 1);
    let owner = world.owner(3);
    assert_eq!(only(world.backend.withdraw(&[world.place(&owner, 1)])).unwrap(), Withdrawn::Left);
    assert!(matches!(world.ask(4, 1, Wait::No), Ok(Acquired::Busy { .. })));
    world.releases(2, token);
    assert!(world.told(0).is_empty());
    let token = world.granted(1, 1);
    assert!(matches!(world.beat(&[2])[0], Ok(Renewal::Waiting { .. })));
    world.releases(1, token);
    assert_eq!(world.told(0), ["recheck"]);
}

/// A renewed plain request is told when to recheck or that the lock is free.
#[test]
fn a_renewed_plain_request_is_told_when_to_look() {
    let world = World::of(LockKind::Plain);
    world.granted(1, 1);
    waits(&world, 2);
    for (passes, left) in [(10 * S, 20 * S), (20 * S, Duration::ZERO)] {
        world.clock.advance(passes);
        let Ok(Renewal::Waiting { rank: 0, recheck_in, .. }) = world.beat(&[2])[0] else { panic!() };
        assert_eq!(recheck_in, left);
    }
    let token = world.granted(2, 1);
    let Ok(Renewal::Granted { token: again, lease }) = world.beat(&[2])[0] else { panic!() };
    assert_eq!((again, lease), (token, LEASE));
}

#[test]
fn force_on_a_plain_lock_tells_the_holder_and_the_waiters() {
    let world = World::of(LockKind::Plain);
    world.granted(OF_SECOND, 1);
    waits(&world, 2);
    assert_eq!(world.backend.force_release(&world.lock).unwrap(), ForceReleased::Taken);
    assert_eq!(
        [world.told(0), world.told(1)],
        [vec!["recheck".to_owned()], vec![format!("taken {OF_SECOND}")]]
    );
}
