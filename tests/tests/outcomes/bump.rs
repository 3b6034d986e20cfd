//! A bump whose replies get lost.

use std::thread;
use std::time::Duration;

use fairlock::Operation;

use crate::support::World;

const LEASE: Duration = Duration::from_secs(5);

/// The first attempt is executed and its reply lost. The second takes four seconds, and its reply is lost too.
/// Meanwhile the lock comes round to the new request, whose place is as old as the first attempt.
#[test]
fn a_bump_whose_reply_is_lost_is_valid_no_longer_than_at_the_server() {
    let world = World::new();
    let [client, other, operator] = [(); 3].map(|()| world.client());
    let ours = client.fair_lock("bump").unwrap().fixed_lease(LEASE);
    let owner = client.new_owner();
    let mut guard = ours.owned_by(&owner).unwrap().lock().unwrap();
    let first = guard.token();
    let waiting = other.fair_lock("bump").unwrap().request().unwrap();
    world.faults().lose_reply(Operation::Release, 2);
    world.faults().delay_next(Operation::Release, 1, Duration::ZERO);
    world.faults().delay_next(Operation::Release, 1, Duration::from_secs(4));
    thread::scope(|scope| {
        let bumped = scope.spawn(|| guard.bump());
        world.clock.wait_for_waiters(1); // the second attempt
        assert!(operator.fair_lock("bump").unwrap().force_unlock().unwrap());
        world.clock.advance(Duration::from_millis(4500));
        bumped.join().unwrap().unwrap();
    });
    assert!(guard.token() > first);
    let left = ours.inspect().unwrap().holder().unwrap().lease_left.unwrap();
    let valid_for = guard.valid_for();
    assert!(valid_for <= left, "believed for {valid_for:?}, kept for {left:?}");
    assert!(!guard.is_lost());
    drop((guard, waiting));
}

#[test]
fn a_bump_of_a_plain_lock_changes_nothing() {
    let world = World::new();
    let ours = world.client().plain_lock("plain").unwrap();
    let mut guard = ours.lock().unwrap();
    let token = guard.token();
    let waiting = world.client().plain_lock("plain").unwrap().request().unwrap();
    guard.bump().unwrap();
    assert_eq!(guard.token(), token);
    assert!(!guard.is_lost() && ours.is_held());
    drop((waiting, guard));
}
