//! Every lost hold is reported once in each way: flag, channel, callback, statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, LostCause, MemoryBackend, Operation};
use fairlock_tests::eventually;

use crate::support::World;

const SOON: Duration = Duration::from_secs(10);

/// Counts the losses reported to callbacks.
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

/// On the system's clock: the owner acts between the end of the hold and the watchdog's check.
#[test]
fn an_expired_hold_whose_owner_asks_again_at_once_is_reported_before_the_next() {
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
fn a_loss_found_by_the_outermost_unlock_is_reported_in_every_way() {
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
fn a_lost_leaked_hold_is_reported_as_an_error_once() {
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
fn a_hold_leaked_after_its_loss_is_an_error_too() {
    let world = World::new();
    let lock = world.client().fair_lock("late").unwrap();
    let guard = lock.lock().unwrap();
    assert!(world.client().fair_lock("late").unwrap().force_unlock().unwrap());
    guard.leak();
    assert!(matches!(lock.unlock(), Err(Error::Lost(_))));
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { guards: 0, .. })));
}

/// No attempt to release is answered: the hold is over for its holder, and the server is told of that when it answers again.
#[test]
fn a_failed_bump_releases_everything() {
    let world = World::new();
    let client = world.builder().outage_limit(Duration::from_secs(2)).build().unwrap();
    let (lock, owner) = (client.fair_lock("bump").unwrap(), client.new_owner());
    let mut guard = lock.owned_by(&owner).unwrap().lock().unwrap();
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
    // The waiter gets the lock long before the lease ends, and nothing was asked for again.
    waiting.decided().recv_timeout(SOON).unwrap();
    drop(waiting);
    let state = || lock.inspect().unwrap();
    eventually(SOON, "nothing is left", || state().holder().is_none() && state().line.is_empty());
}

#[test]
fn a_bump_of_an_ended_hold_releases_it() {
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
fn a_renewal_answered_too_late_is_a_loss_and_not_zero_seconds() {
    let world = World::new();
    let client = world.client();
    let told = callbacks(&client);
    let lock = client.fair_lock("slow").unwrap().fixed_lease(Duration::from_secs(5));
    let guard = lock.owned_by(&client.new_owner()).unwrap().lock().unwrap();
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
