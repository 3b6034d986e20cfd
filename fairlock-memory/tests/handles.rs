//! The handles of locks: how a holder is found, and the bounds of a place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use fairlock_core::{Client, Error};
use fairlock_memory::MemoryBackend;

/// Two clients of one store.
fn clients() -> [Client; 2] {
    let store = MemoryBackend::new();
    [(); 2].map(|()| Client::new(store.clone()).unwrap())
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
