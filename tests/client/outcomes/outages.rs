//! How long calls go on while the server is silent.

use std::thread;
use std::time::Duration;

use fairlock::{Error, TryLock};

use crate::support::World;

const S: Duration = Duration::from_secs(1);

/// The withdrawal of the wait before it gets no answer either, and is given up only after lease and place.
#[test]
fn a_call_that_waits_for_an_earlier_one_takes_one_outage_limit_in_total() {
    let world = World::new();
    let (ours, theirs) = (world.builder().lease(S).build().unwrap(), world.client());
    let _busy = theirs.fair_lock("outage").unwrap().lock().unwrap();
    let (lock, owner) = (ours.fair_lock("outage").unwrap(), ours.new_owner());
    let took = thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let _here = world.clock.attend_here();
            assert!(!matches!(lock.owned_by(&owner).unwrap().try_lock_for(S), Ok(TryLock::Granted(_))));
            let began = world.clock.now();
            let result = lock.owned_by(&owner).unwrap().lock().map(drop);
            assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
            world.clock.now() - began
        });
        world.clock.wait_for_waiters(1);
        world.faults().cut_off(ours.id());
        world.clock.advance(60 * S);
        caller.join().unwrap()
    });
    assert!(took >= 9 * S && took <= 11 * S, "{took:?}");
}
