//! First asked, first served, whatever happens to other waiters and holders.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock_core::backend::{Acquire, Acquired, LockId, only};
use fairlock_core::{LockName, OwnerId};

use super::{
    DEAD, Harness, LEASE, PATIENCE, Promise, SLACK, client, client_with, lock, lock_of, until, until_in_queue,
};
use crate::requests::place_of_all;

/// Ten waiters of ten clients ask one after the other.
pub fn waiters_get_the_lock_in_the_order_in_which_they_asked(harness: &impl Harness) {
    if !harness.promises(Promise::Order) {
        return;
    }
    let ours = lock(harness, "order");
    let guard = ours.lock().unwrap();
    let (grants, granted) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..10 {
            let (theirs, grants) = (lock(harness, "order"), grants.clone());
            scope.spawn(move || {
                let guard = theirs.lock().unwrap();
                grants.send((number, guard.token())).unwrap();
                guard.unlock().unwrap();
            });
            until_in_queue(harness, &ours, number + 1);
        }
        guard.unlock().unwrap();
    });
    let grants: Vec<_> = granted.try_iter().collect();
    assert_eq!(grants.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(grants.is_sorted_by_key(|(_, token)| *token));
    harness.assert_nothing_is_left("order");
}

/// Neither a new request, nor `try_lock`, nor the holder itself when it comes back.
pub fn no_newcomer_passes_a_waiter(harness: &impl Harness) {
    if !harness.promises(Promise::Order) {
        return;
    }
    let (ours, theirs) = (lock(harness, "pass"), lock(harness, "pass"));
    let guard = ours.lock().unwrap();
    thread::scope(|scope| {
        let (go, wait) = mpsc::channel::<()>();
        let waiter = scope.spawn(move || {
            let guard = theirs.lock().unwrap();
            wait.recv().unwrap();
            guard.unlock().unwrap();
        });
        until_in_queue(harness, &ours, 1);
        guard.unlock().unwrap();
        // The lock is the waiter's, or on its way to the waiter: no other request can get it.
        assert!(ours.try_lock().unwrap().granted().is_none());
        let mut newcomer = lock(harness, "pass").request().unwrap();
        assert!(newcomer.wait_for(Duration::ZERO).unwrap().granted().is_none());
        go.send(()).unwrap();
        waiter.join().unwrap();
        newcomer.wait().unwrap().unlock().unwrap();
    });
    harness.assert_nothing_is_left("pass");
}

/// Its place is renewed for as long as the holder works.
pub fn a_live_waiter_keeps_its_place_however_long_the_holder_works(harness: &impl Harness) {
    if !harness.promises(Promise::Order) {
        return;
    }
    let ours = lock(harness, "long");
    let guard = ours.lock().unwrap();
    let clients = [(); 2].map(|()| client(harness));
    let (grants, granted) = mpsc::channel();
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let (theirs, grants) = (lock_of(harness, client, "long"), grants.clone());
            scope.spawn(move || {
                let _guard = theirs.lock().unwrap();
                grants.send(number).unwrap();
            });
            until_in_queue(harness, &ours, number + 1);
        }
        // Between two heartbeats, so that the message comes before the next one.
        harness.pass(LEASE * 2 - LEASE / 6);
        assert_eq!(ours.admin().inspect().unwrap().queue.len(), 2);
        guard.unlock().unwrap();
    });
    assert_eq!(granted.try_iter().collect::<Vec<_>>(), [0, 1]);
    for client in clients {
        assert_eq!(client.stats().places_lost, 0);
        // A heartbeat may be quicker than the message. The grant counts as polled until its message arrives. A message that only
        // says "the lock is free" names no grant, and changes nothing.
        if harness.promises(Promise::HandOff) {
            until("the grant came by a message", || client.stats().granted_by_polling == 0);
        }
    }
}

/// The waiter behind it is next, without delay.
pub fn a_waiter_that_leaves_is_passed_over(harness: &impl Harness) {
    if !harness.promises(Promise::Order) {
        return;
    }
    let ours = lock(harness, "leaves");
    let guard = ours.lock().unwrap();
    let (first, second) = (lock(harness, "leaves"), lock(harness, "leaves"));
    let leaves = first.request().unwrap();
    assert_eq!(leaves.rank(), Some(0));
    let stays = second.request().unwrap();
    assert_eq!(stays.rank(), Some(1));
    drop(leaves);
    until_in_queue(harness, &ours, 1);
    guard.unlock().unwrap();
    stays.wait().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("leaves");
}

/// Places without a client: nothing renews them, and no message for them is heard.
pub fn a_dead_waiter_delays_the_others_by_one_place_at_most(harness: &impl Harness) {
    if !harness.promises(Promise::DeadWaitersArePassedOver) {
        return;
    }
    let ours = lock(harness, "dead");
    let guard = ours.lock().unwrap();
    let backend = harness.backend();
    let id = LockId::new(LockName::new("dead").unwrap(), harness.kind());
    for number in 0..3 {
        let owner = OwnerId::new(&format!("00000000-0000-4000-8000-000000000000:{number}"));
        let mut place = place_of_all(&id, &owner, number);
        place.ttl = DEAD;
        assert!(matches!(only(backend.acquire(&[Acquire::new(place, LEASE)])), Ok(Acquired::Queued { .. })));
    }
    let client = client_with(harness, DEAD); // in some stores its heartbeats pass over them
    let alive = lock_of(harness, &client, "dead").request().unwrap();
    guard.unlock().unwrap();
    harness.pass(DEAD + SLACK);
    alive.decided().recv_timeout(PATIENCE).expect("all dead waiters together cost one place's time");
    alive.wait().unwrap().unlock().unwrap();
}

/// The next waiter gets the lock when the lease of a dead holder ends, without any message.
pub fn the_next_waiter_gets_the_lock_of_a_dead_holder(harness: &impl Harness) {
    let backend = harness.backend();
    let id = LockId::new(LockName::new("heir").unwrap(), harness.kind());
    let owner = OwnerId::new("00000000-0000-4000-8000-000000000000:1");
    let place = place_of_all(&id, &owner, 1);
    assert!(matches!(only(backend.acquire(&[Acquire::new(place, LEASE)])), Ok(Acquired::Granted { .. })));
    let heir = lock(harness, "heir").request().unwrap();
    harness.pass(LEASE / 2);
    assert!(heir.decided().try_recv().is_err());
    harness.pass(LEASE / 2 + SLACK);
    heir.decided().recv_timeout(PATIENCE).expect("at the end of the lease");
    heir.wait().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("heir");
}
