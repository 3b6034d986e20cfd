//! Requests without a waiting thread, and rechecks when a dead holder's lease ends.

use std::time::Duration;

use fairlock_core::Error;
use fairlock_memory::Operation;

use crate::support::{S, World, ask, dead_holder, hold, said};

const MOMENT: Duration = Duration::from_millis(10);

#[test]
fn a_request_whose_first_call_is_not_answered_is_still_granted() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock("unasked").unwrap();
    lock.lock().unwrap().unlock().unwrap();
    world.clock.advance(60 * S); // the watchdog has started, and sleeps without an end
    world.faults().fail_next(Operation::Acquire, 1);
    let request = lock.request().unwrap();
    world.clock.advance(MOMENT);
    assert!(request.decided().try_recv().is_ok(), "the lock was free");
    request.wait().unwrap().unlock().unwrap();
}

#[test]
fn requests_that_are_never_answered_fail_after_the_outage_limit_however_many_there_are() {
    const REQUESTS: u32 = 200;
    let world = World::new();
    let client = world.client();
    world.cut_off(&client);
    let requests: Vec<_> = (0..REQUESTS).map(|n| ask(&client, &format!("dead:{n}"))).collect();
    let before = world.backend.calls("acquire");
    world.clock.advance(11 * S);
    assert!(requests.iter().all(|request| request.decided().try_recv().is_ok()), "each hears of it");
    let tried = world.backend.calls("acquire") - before;
    assert!(tried < 80, "tried {tried} times in 10 s");
    for request in requests {
        assert!(matches!(request.wait(), Err(Error::Unavailable { .. })));
    }
    world.clock.advance(60 * S); // their withdrawals are given up
    assert!(said().len() <= 2);
}

#[test]
fn a_request_is_granted_when_a_dead_holders_lease_ends() {
    for lease in [S / 10, S, 2 * S] {
        let world = World::new();
        let _dead = dead_holder(&world, "dead", lease);
        let client = world.builder().place_ttl(30 * S).build().unwrap();
        let request = client.fair_lock("dead").unwrap().request().unwrap();
        world.clock.advance(lease - MOMENT);
        assert!(request.decided().try_recv().is_err());
        world.clock.advance(2 * MOMENT);
        assert!(request.decided().try_recv().is_ok(), "not granted {MOMENT:?} after {lease:?}");
    }
}

/// Only the first waiter of a client is told when the holder's lease ends.
#[test]
fn the_next_waiter_of_a_client_rechecks_when_the_first_has_left() {
    let world = World::new();
    let lease = Duration::from_millis(1800);
    let _dead = dead_holder(&world, "leaves", lease);
    let client = world.client();
    let [first, second] = [(); 2].map(|()| ask(&client, "leaves"));
    world.clock.advance(lease - MOMENT);
    drop(first);
    world.clock.advance(2 * MOMENT);
    assert!(second.decided().try_recv().is_ok(), "not granted {MOMENT:?} after {lease:?}");
}

/// A hold that ends by its own terms causes no message.
#[test]
fn the_next_waiter_of_a_client_rechecks_when_the_fixed_lease_before_it_ends() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock("fixed").unwrap();
    let guard = hold(&client, "fixed");
    let first = lock.fixed_lease(S / 2).owned_by(&client.new_owner()).unwrap().request().unwrap();
    let second = ask(&client, "fixed");
    guard.unlock().unwrap();
    assert!(first.decided().try_recv().is_ok());
    world.clock.advance(S / 2 + MOMENT);
    assert!(second.decided().try_recv().is_ok());
}

/// Its thread asks again while the watchdog waits for answers about other locks.
#[test]
fn a_call_after_a_release_that_was_not_answered_does_not_wait_for_a_slow_renewal() {
    let world = World::new();
    let client = world.client();
    let (slow, ours) = (client.fair_lock("slow").unwrap(), client.fair_lock("ours").unwrap());
    let _kept = slow.lock().unwrap();
    let guard = ours.lock().unwrap();
    world.faults().delay_next(Operation::Renew, 1, 8 * S);
    world.clock.advance(12 * S); // the renewal is under way, for six seconds more
    let before = world.clock.now();
    world.faults().fail_next(Operation::Release, 1);
    drop(guard);
    ours.try_lock().unwrap().guard().expect("it was given back by this very call").unlock().unwrap();
    assert_eq!(world.clock.now(), before);
}

/// The caller tried once, and left.
#[test]
fn a_withdrawal_that_failed_for_a_caller_is_repeated_by_the_watchdog() {
    let world = World::new();
    let (holder, client) = (world.client(), world.client());
    let guard = holder.fair_lock("place").unwrap().lock().unwrap();
    let lock = client.fair_lock("place").unwrap();
    let owner = client.new_owner();
    let request = lock.owned_by(&owner).unwrap().request().unwrap();
    let faults = world.faults();
    faults.fail_next(Operation::Withdraw, 2);
    drop(request);
    world.clock.advance(MOMENT); // the watchdog has tried it twice, and pauses
    faults.delay_next(Operation::Withdraw, 1, S);
    faults.fail_next(Operation::Withdraw, 1);
    std::thread::scope(|scope| {
        // This call takes over, and is delayed: the watchdog finds nothing to do meanwhile.
        let caller = scope.spawn(|| lock.owned_by(&owner).unwrap().try_lock().is_err());
        world.clock.wait_for_waiters(1);
        world.clock.advance(2 * S);
        assert!(caller.join().unwrap());
    });
    world.clock.advance(2 * S);
    assert!(lock.inspect().unwrap().line.is_empty(), "a place without a waiter");
    guard.unlock().unwrap();
}

/// A heartbeat puts back a place that is gone, so the withdrawal has to come after it.
#[test]
fn a_shutdown_during_a_slow_heartbeat_leaves_no_place() {
    let world = World::new();
    let (holder, client) = (world.client(), world.client());
    let guard = holder.fair_lock("place").unwrap().lock().unwrap();
    let request = client.fair_lock("place").unwrap().request().unwrap();
    world.faults().delay_next(Operation::Renew, 1, S);
    world.clock.advance(2 * S); // the heartbeat is under way
    std::thread::scope(|scope| {
        let end = scope.spawn(|| client.shutdown());
        world.clock.wait_for_waiters(1);
        world.clock.advance(2 * S);
        end.join().unwrap().unwrap();
    });
    let state = holder.fair_lock("place").unwrap().inspect().unwrap();
    assert!(state.line.is_empty(), "a place without a waiter: {state:?}");
    drop((request, guard));
}
