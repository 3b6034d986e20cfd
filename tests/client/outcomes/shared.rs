//! One owner in the hands of several threads.

use std::thread;
use std::time::Duration;

use fairlock::Operation;

use crate::support::World;

/// The word of the first to the server, that one hold is left, arrives after the release of the second.
#[test]
fn an_inner_unlock_that_the_outermost_one_overtakes_is_no_loss() {
    let world = World::new();
    let client = world.client();
    let (lock, owner) = (client.fair_lock("shared").unwrap(), client.new_owner());
    let (first, second) =
        (lock.owned_by(&owner).unwrap().lock().unwrap(), lock.owned_by(&owner).unwrap().lock().unwrap());
    world.faults().delay_next(Operation::SetHoldCount, 1, Duration::from_secs(1));
    thread::scope(|scope| {
        let slow = scope.spawn(|| first.unlock());
        world.clock.wait_for_waiters(1);
        second.unlock().unwrap();
        world.clock.advance(Duration::from_secs(2));
        slow.join().unwrap().unwrap();
    });
    assert_eq!(client.stats().lost, 0);
    assert!(!lock.is_locked().unwrap());
}
