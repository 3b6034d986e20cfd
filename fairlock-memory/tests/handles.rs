//! The handles of each kind of lock: what operators see and take by them, and the terms of their holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{Acquire, Backend, LockId, Place, RequestId, Waiter, only};
use fairlock_core::{Client, Error, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::MemoryBackend;

/// Two clients of one store.
fn clients() -> [Client; 2] {
    let store = MemoryBackend::new();
    [(); 2].map(|()| Client::new(store.clone()).unwrap())
}

fn nobody() -> OwnerId {
    OwnerId::new("nobody:1")
}

#[test]
fn of_a_lock() {
    let [client, other] = clients();
    let [lock, theirs] = [&client, &other].map(|client| client.fair_lock("orders").unwrap());
    assert_eq!(
        (lock.name(), lock.kind(), client.plain_lock("mails").unwrap().kind()),
        ("orders", LockKind::Fair, LockKind::Plain)
    );
    assert!(!lock.is_locked().unwrap() && !lock.is_held() && !lock.force_unlock().unwrap());
    let guard = lock.lock().unwrap();
    assert!(theirs.is_locked().unwrap() && lock.is_held() && !theirs.is_held());
    assert_eq!((guard.name(), lock.hold_count(), theirs.hold_count()), ("orders", 1, 0));
    let holder = theirs.inspect().unwrap().holders.remove(0);
    assert_eq!((&holder.owner, holder.token), (guard.owner(), Some(guard.token())));
    assert_eq!(holder.request, Some(guard.request_id()));

    let mut requests: Vec<_> =
        (0..3).map(|_| theirs.owned_by(&other.new_owner()).unwrap().request().unwrap()).collect();
    let first = lock.inspect().unwrap().queue.remove(0);
    let queue = lock.inspect_queue(1..3).unwrap();
    assert_eq!((queue.queue_length, queue.queue.len()), (3, 2));
    assert_eq!(lock.inspect_queue(Range { start: 2, end: 1 }).unwrap().queue.len(), 0);
    let (rank, found) = lock.find_waiter(&queue.queue[1].owner).unwrap().unwrap();
    assert_eq!((rank, found.request), (2, queue.queue[1].request));
    assert!(lock.find_waiter(&nobody()).unwrap().is_none());
    assert!(lock.kick(&found).unwrap());
    drop(requests.pop()); // or it asks again, at the tail
    assert!(lock.force_unlock().unwrap() && guard.is_lost());
    assert!(!lock.kick(&first).unwrap(), "it has the lock");
    let next = requests.remove(0).wait().unwrap();
    assert_eq!(
        (next.owner(), lock.inspect().unwrap().holder().map(|holder| &holder.owner)),
        (&first.owner, Some(&first.owner))
    );
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
fn of_a_read_write_lock() {
    let [client, other] = clients();
    let [prices, theirs] = [&client, &other].map(|client| client.rw_lock("prices").unwrap());
    assert_eq!((prices.name(), prices.reader().kind()), ("prices", LockKind::ReadWrite));
    assert!(!prices.force_unlock().unwrap());
    let (mine, their) = (prices.read().unwrap(), theirs.read().unwrap());
    let state = prices.inspect().unwrap();
    assert_eq!((state.holders.len(), state.taken(), state.capacity), (2, 2, Some(u32::MAX)));

    let request = prices.owned_by(&client.new_owner()).unwrap().writer().request().unwrap();
    let waiter = theirs.inspect().unwrap().queue.remove(0);
    assert_eq!(waiter.units, u32::MAX);
    assert!(theirs.kick(&waiter).unwrap() && !theirs.kick(&Waiter::new(nobody())).unwrap());
    drop(request);
    assert!(!theirs.force_unlock_of(&nobody()).unwrap());
    assert!(prices.force_unlock_of(their.owner()).unwrap() && their.is_lost() && !mine.is_lost());
    assert!(theirs.force_unlock().unwrap() && mine.is_lost());
    let writing = theirs.write().unwrap();
    assert_eq!(prices.inspect().unwrap().taken(), u32::MAX);
    assert_eq!(prices.inspect().unwrap().holder().map(|holder| &holder.owner), Some(writing.owner()));
}

#[test]
fn of_a_semaphore() {
    let [client, other] = clients();
    let [mails, theirs] = [&client, &other].map(|client| client.semaphore("mails", 3).unwrap());
    assert_eq!((mails.name(), mails.permits()), ("mails", 3));
    assert!(!mails.force_unlock().unwrap());
    let (one, two) = (mails.acquire().unwrap(), theirs.acquire_many(2).unwrap());
    let state = mails.inspect().unwrap();
    assert_eq!((state.holders.len(), state.taken(), state.capacity), (2, 3, Some(3)));

    let requests: Vec<_> = (1..=3).map(|n| theirs.request_many(n).unwrap()).collect();
    let queue = mails.inspect_queue(1..2).unwrap();
    assert_eq!((queue.queue_length, queue.queue.len(), queue.queue[0].units), (3, 1, 2));
    let (rank, found) = mails.find_waiter(&queue.queue[0].owner).unwrap().unwrap();
    assert_eq!((rank, found.units), (1, 2));
    assert!(mails.find_waiter(&nobody()).unwrap().is_none());
    assert!(mails.kick(&found).unwrap() && !mails.kick(&Waiter::new(nobody())).unwrap());
    drop(requests);
    assert!(!mails.force_unlock_of(&nobody()).unwrap());
    assert!(theirs.force_unlock_of(one.owner()).unwrap() && one.is_lost() && !two.is_lost());
    assert!(mails.force_unlock().unwrap() && two.is_lost());
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
