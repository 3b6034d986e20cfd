//! The handles of locks: how a waiter and a holder are found, and the bounds of a place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use fairlock_core::backend::{Acquire, Backend, LockId, Place, RequestId, only};
use fairlock_core::{Client, Error, LockKind, LockName, OwnerId};
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
    let found =
        [1, 600, 1200].map(|number| lock.admin().find_waiter(&owner(number)).unwrap().map(|(rank, _)| rank));
    assert_eq!(found, [Some(0), Some(599), Some(1199)]); // the first has the lock
    assert!(lock.admin().find_waiter(&owner(0)).unwrap().is_none());
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
fn a_place_lives_for_half_a_second_at_least() {
    let build = |place_ttl| Client::builder(MemoryBackend::new()).place_ttl(place_ttl).build();
    let least = Duration::from_millis(500);
    assert!(build(least).is_ok());
    let Err(Error::InvalidConfig { reason, .. }) = build(least - Duration::from_nanos(1)) else { panic!() };
    assert!(reason.contains("it has to be from 500 ms to 100 years"), "{reason}");
}
