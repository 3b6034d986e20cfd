//! The handles of locks: how a waiter and a holder are found, and the terms of holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use fairlock_core::backend::{Acquire, Backend, LockId, Place, RequestId, only};
use fairlock_core::{Client, Error, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::MemoryBackend;

/// Two clients of one store.
fn clients() -> [Client; 2] {
    let store = MemoryBackend::new();
    [(); 2].map(|()| Client::new(store.clone()).unwrap())
}

#[test]
fn a_waiter_is_found_in_a_queue_that_is_longer_than_one_look() {
    let store = MemoryBackend::new();
    let lock = Client::new(store.clone()).unwrap().fair_lock("orders").unwrap();
    let id = LockId::new(LockName::new("orders").unwrap(), LockKind::Fair);
    let owner = |number: u64| OwnerId::new(&format!("c:{number}"));
    for number in 0..=1200 {
        let owner = owner(number);
        let place = Place::new(&id, &owner, RequestId::new(number));
        only(store.acquire(&[Acquire::new(place, Duration::from_secs(30))])).unwrap();
    }
    let found = [1, 600, 1200].map(|number| lock.find_waiter(&owner(number)).unwrap().map(|(rank, _)| rank));
    assert_eq!(found, [Some(0), Some(599), Some(1199)]); // the first has the lock
    assert!(lock.find_waiter(&owner(0)).unwrap().is_none());
}

#[test]
fn an_owner_that_holds_is_named_and_one_that_waits_is_not() {
    let [client, other] = clients();
    let lock = client.fair_lock("orders").unwrap();
    let _theirs = other.fair_lock("orders").unwrap().lock().unwrap();
    let _waits = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { guards: 0, held_by: None, .. })));
    let elsewhere = client.fair_lock("held").unwrap().owned_by(&client.new_owner()).unwrap().lock().unwrap();
    let Err(Error::NotHeld { held_by, .. }) = client.fair_lock("held").unwrap().unlock() else { panic!() };
    assert_eq!(held_by.as_ref(), Some(elsewhere.owner()));
}

#[test]
fn a_handle_with_other_terms_is_of_the_same_lock() {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    let [client, other] =
        [(); 2].map(|()| Client::builder(store.clone()).clock(clock.clone()).build().unwrap());
    let (short, long) = (Duration::from_millis(20), Duration::from_secs(100));
    let lock = client.fair_lock("orders").unwrap();
    let prices = client.rw_lock("prices").unwrap();
    let mails = client.semaphore("mails", 2).unwrap();
    let fixed = [
        lock.fixed_lease(short).lock().unwrap(),
        lock.max_hold(long).lock().unwrap(), // a re-entry keeps its terms
        prices.fixed_lease(short).write().unwrap(),
    ];
    let permit = mails.fixed_lease(short).acquire().unwrap();
    assert!(fixed.iter().all(|guard| guard.valid_for() <= short) && permit.valid_for() <= short);
    clock.advance(short);
    let theirs = other.fair_lock("orders").unwrap().lock().unwrap();
    assert!(fixed[0].is_lost() && theirs.valid_for() > short);
    let capped = [
        client.fair_lock("a").unwrap().max_hold(short).lock().unwrap(),
        client.rw_lock("b").unwrap().max_hold(short).read().unwrap(),
    ];
    assert!(capped.iter().all(|guard| guard.valid_for() <= short));
    assert!(mails.max_hold(short).acquire().unwrap().valid_for() <= short);
    let owner = client.new_owner();
    let held = [
        lock.owned_by(&owner).unwrap().max_hold(long).request().unwrap().leave().unwrap().guard().is_none(),
        prices.owned_by(&owner).unwrap().try_read_for(long).unwrap().guard().is_none(),
        mails.owned_by(&owner).unwrap().try_acquire_for(long).unwrap().guard().is_none(),
    ];
    assert_eq!(
        held,
        [true, false, false],
        "the first is held by another client, the leases of the others are over"
    );
}

#[test]
fn a_place_lives_for_half_a_second_at_least() {
    let build = |place_ttl| Client::builder(MemoryBackend::new()).place_ttl(place_ttl).build();
    let least = Duration::from_millis(500);
    assert!(build(least).is_ok());
    let Err(Error::InvalidConfig { reason, .. }) = build(least - Duration::from_nanos(1)) else { panic!() };
    assert!(reason.contains("it has to be from 500 ms to 100 years"), "{reason}");
}
