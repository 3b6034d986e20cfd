//! Every hold that is lost is told of, once, on every way: flag, channel, callback, statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, LostCause, MemoryBackend, Operation};
use fairlock_tests::eventually;

use crate::support::World;

const SOON: Duration = Duration::from_secs(10);

/// Counts the losses that callbacks are told of.
fn callbacks(client: &Client) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&count);
    client.on_lost(move |_| _ = told.fetch_add(1, Ordering::SeqCst));
    count
}

fn assert_told(client: &Client, callbacks: &AtomicU64, losses: u64) {
    eventually(SOON, "the callbacks were told", || callbacks.load(Ordering::SeqCst) == losses);
    assert_eq!(client.stats().lost, losses);
}

/// On the system's clock: between the end of a hold and the look of the watchdog its owner is quicker.
#[test]
fn an_expired_hold_whose_owner_asks_again_at_once_is_told_of_before_the_next() {
    const ROUNDS: u64 = 50;
    let client = Client::new(MemoryBackend::new()).unwrap();
    let told = callbacks(&client);
    let renewed = client.fair_lock("again").unwrap();
    let lock = renewed.fixed_lease(Duration::from_millis(10));
    for _ in 0..ROUNDS {
        let guard = lock.lock().unwrap();
        let lost = guard.lost().clone();
        while !guard.is_lost() {
            thread::yield_now();
        }
        let next = renewed.lock().unwrap();
        assert_eq!(lost.try_recv().unwrap().cause, LostCause::LeaseOver);
        next.unlock().unwrap();
        assert!(matches!(guard.unlock(), Err(Error::Lost(_))));
    }
    assert_told(&client, &told, ROUNDS);
}

#[test]
fn a_loss_that_the_outermost_unlock_finds_is_told_of_on_every_way() {
    let world = World::new();
    let client = world.client();
    let told = callbacks(&client);
    let guard = client.fair_lock("found").unwrap().lock().unwrap();
    let lost = guard.lost().clone();
    world.faults().lose_hold("found");
    assert!(matches!(guard.unlock(), Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
    assert_eq!(lost.try_recv().unwrap().cause, LostCause::Taken);
    assert_told(&client, &told, 1);
}

#[test]
fn a_leaked_hold_that_was_lost_is_an_error_that_says_so_once() {
    let world = World::new();
    let client = world.client();
    let told = callbacks(&client);
    let lock = client.fair_lock("leaked").unwrap();
    lock.lock().unwrap().leak();
    lock.lock().unwrap().leak();
    assert!(world.client().fair_lock("leaked").unwrap().force_unlock().unwrap());
    let again = lock.lock().unwrap();
    for _ in 0..2 {
        assert!(matches!(lock.unlock(), Err(Error::Lost(lost)) if lost.token < again.token()));
    }
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { guards: 1, .. })));
    again.unlock().unwrap();
    assert_told(&client, &told, 1);
}

#[test]
fn a_hold_that_is_leaked_after_it_was_lost_is_an_error_too() {
    let world = World::new();
    let lock = world.client().fair_lock("late").unwrap();
    let guard = lock.lock().unwrap();
    assert!(world.client().fair_lock("late").unwrap().force_unlock().unwrap());
    guard.leak();
    assert!(matches!(lock.unlock(), Err(Error::Lost(_))));
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { guards: 0, .. })));
}

/// No attempt is answered, the first is not even carried out: whether the hold was passed on is not known to its holder.
#[test]
fn a_bump_that_fails_tells_of_the_loss_and_gives_everything_back() {
    let world = World::new();
    let client = world.builder().outage_limit(Duration::from_secs(2)).build().unwrap();
    let told = callbacks(&client);
    let (lock, owner) = (client.fair_lock("bump").unwrap(), client.new_owner());
    let mut guard = lock.lock_as(&owner).unwrap();
    let lost = guard.lost().clone();
    let waiting = world.client().fair_lock("bump").unwrap().request().unwrap();
    world.faults().fail_next(Operation::Release, 3);
    world.faults().delay_next(Operation::Release, 3, Duration::from_secs(1));
    thread::scope(|scope| {
        let bumped = scope.spawn(|| guard.bump());
        world.clock.wait_for_waiters(1);
        world.clock.advance(Duration::from_secs(4));
        assert!(matches!(bumped.join().unwrap(), Err(Error::Unavailable { .. })));
    });
    assert!(guard.is_lost());
    assert_eq!(lost.try_recv().unwrap().cause, LostCause::NotRenewed);
    assert_told(&client, &told, 1);
    // The one who waited has it now, long before the lease is over; and the one that bumped has no place.
    waiting.receiver().recv_timeout(SOON).unwrap();
    drop(waiting);
    let state = || lock.inspect().unwrap();
    eventually(SOON, "nothing is left", || state().holder.is_none() && state().line.is_empty());
}

#[test]
fn a_bump_of_a_hold_that_is_over_gives_it_back() {
    let world = World::new();
    let client = world.client();
    let told = callbacks(&client);
    let mut guard = client.fair_lock("over").unwrap().lock().unwrap();
    world.faults().lose_hold("over");
    let waiting = world.client().fair_lock("over").unwrap().request().unwrap();
    assert!(matches!(guard.bump(), Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
    assert!(guard.is_lost());
    assert_told(&client, &told, 1);
    drop((guard, waiting));
}

#[test]
fn a_renewal_that_is_answered_too_late_is_a_loss_and_not_zero_seconds() {
    let world = World::new();
    let client = world.client();
    let told = callbacks(&client);
    let lock = client.fair_lock("slow").unwrap().fixed_lease(Duration::from_secs(5));
    let guard = lock.lock_as(&client.new_owner()).unwrap();
    world.faults().delay_next(Operation::Renew, 1, Duration::from_millis(4990));
    thread::scope(|scope| {
        let renewed = scope.spawn(|| guard.renew());
        world.clock.wait_for_waiters(1);
        world.clock.advance(Duration::from_secs(6));
        let renewed = renewed.join().unwrap();
        assert!(matches!(&renewed, Err(Error::Lost(_))), "{renewed:?}");
    });
    assert!(guard.is_lost());
    assert_told(&client, &told, 1);
}
