//! How waits end: by a wake-up, in time, by a cancel, by a drop, by a shutdown. None leaves a trace.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock_core::{CancelToken, Error};

use super::{
    Harness, LEASE, PATIENCE, Promise, client, client_with, lock, lock_of, until, until_in_queue,
    until_waiting,
};

/// The lock goes from client to client, each time by a message.
pub fn a_wake_up_is_enough_and_nothing_is_found_by_polling(harness: &impl Harness) {
    // A place lives so long that no heartbeat, which could be quicker than a message, is due.
    let clients: Vec<_> = (0..3).map(|_| client_with(harness, Duration::from_secs(60))).collect();
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for _ in 0..20 {
                    lock_of(harness, client, "wakes").lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    for client in clients {
        let stats = client.stats();
        assert_eq!(stats.granted_at_once + stats.granted_by_wake_up + stats.granted_by_polling, 20);
        assert_eq!(stats.granted_by_polling, 0, "{stats:?}");
    }
}

/// The lock then goes to other waiters as if that wait had never been.
pub fn a_timed_wait_ends_on_time_and_leaves_nothing(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "timed"), lock(harness, "timed"));
    let guard = ours.lock().unwrap();
    let clock = harness.clock();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let started = clock.now();
            assert!(theirs.try_lock_for(LEASE).unwrap().granted().is_none());
            clock.now() - started
        });
        until_waiting(harness, &ours, 1);
        harness.pass(LEASE);
        let waited = waiter.join().unwrap();
        assert_eq!(waited, LEASE);
    });
    until_in_queue(harness, &ours, 0);
    guard.unlock().unwrap();
    theirs.try_lock_for(LEASE).unwrap().granted().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("timed");
}

/// The cancel comes from another thread, and ends every wait of the handle.
pub fn a_cancelled_wait_ends_at_once_and_leaves_nothing(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "cancel"), lock(harness, "cancel"));
    let guard = ours.lock().unwrap();
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| theirs.cancelled_by(&cancel).lock().map(drop));
        until_waiting(harness, &ours, 1);
        cancel.cancel();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    assert!(matches!(theirs.cancelled_by(&cancel).lock(), Err(Error::Cancelled { .. })));
    until_in_queue(harness, &ours, 0);
    guard.unlock().unwrap();
    until("nothing is left to tell the server", || theirs.try_lock().unwrap().granted().is_some());
    harness.assert_nothing_is_left("cancel");
}

/// The cancel may come before the request is sent, before its answer, or after that.
pub fn a_wait_cancelled_during_its_request_leaves_no_hold_behind(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "crossed"), lock(harness, "crossed"));
    for _ in 0..50 {
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            let asker = scope.spawn(|| {
                ours.cancelled_by(&cancel).try_lock_for(LEASE * 5).map(|tried| drop(tried.granted().unwrap()))
            });
            cancel.cancel();
            let asked = asker.join().unwrap();
            assert!(matches!(asked, Ok(()) | Err(Error::Cancelled { .. })), "{asked:?}");
        });
    }
    // Nothing renews a hold without a guard: the lock is free before a lease ends.
    theirs.try_lock_for(LEASE / 2).unwrap().granted().expect("the lock is free").unlock().unwrap();
    assert_eq!(ours.hold_count(), 0);
    harness.assert_nothing_is_left("crossed");
}

/// Nor does a wait of no time.
pub fn an_attempt_leaves_no_place(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "once"), lock(harness, "once"));
    let guard = ours.lock().unwrap();
    for _ in 0..4 {
        assert!(theirs.try_lock().unwrap().granted().is_none());
        assert!(theirs.try_lock_for(Duration::ZERO).unwrap().granted().is_none());
        assert!(theirs.admin().inspect().unwrap().queue.is_empty());
    }
    guard.unlock().unwrap();
    // Any request gets it, even that of a new owner.
    for lock in [lock(harness, "once"), theirs] {
        lock.try_lock().unwrap().granted().expect("the queue is empty").unlock().unwrap();
    }
    harness.assert_nothing_is_left("once");
}

/// No caller has to wait on it for that.
pub fn a_request_says_when_it_is_decided(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "request"), lock(harness, "request"));
    let guard = ours.lock().unwrap();
    let mut request = theirs.request().unwrap();
    assert!(request.wait_for(Duration::ZERO).unwrap().granted().is_none());
    assert!(request.decided().try_recv().is_err());
    guard.unlock().unwrap();
    request.decided().recv_timeout(PATIENCE).unwrap();
    let guard = request.wait_for(Duration::ZERO).unwrap().granted().expect("it was decided");
    assert!(theirs.is_held());
    assert!(matches!(request.wait_for(Duration::ZERO), Err(Error::Misuse { .. })));
    guard.unlock().unwrap();
    // A free lock is granted at once, and released if the request is dropped.
    let request = theirs.request().unwrap();
    request.decided().recv_timeout(PATIENCE).unwrap();
    drop(request);
    assert!(!theirs.is_locked().unwrap());
    harness.assert_nothing_is_left("request");
}

/// It may be dropped before it is granted, or after.
pub fn a_dropped_request_leaves_the_queue(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "dropped"), lock(harness, "dropped"));
    let guard = ours.lock().unwrap();
    let (dropped, other) = (theirs.request().unwrap(), lock(harness, "dropped").request().unwrap());
    until_in_queue(harness, &ours, 2);
    drop(dropped);
    until_in_queue(harness, &ours, 1);
    guard.unlock().unwrap();
    other.decided().recv_timeout(PATIENCE).unwrap();
    drop(other);
    until("the grant that was not taken is released", || !ours.is_locked().unwrap());
    harness.assert_nothing_is_left("dropped");
}

/// They are granted together, as the first and the second hold.
pub fn two_waits_of_one_owner_share_a_place(harness: &impl Harness) {
    let (ours, client) = (lock(harness, "share"), client(harness));
    let (theirs, owner) = (lock_of(harness, &client, "share"), client.new_owner());
    let guard = ours.lock().unwrap();
    let (counts, counted) = mpsc::channel();
    thread::scope(|scope| {
        let request = theirs.owned_by(&owner).unwrap().request().unwrap();
        let counts = &counts;
        let waiter = scope.spawn(|| {
            let _guard = theirs.owned_by(&owner).unwrap().lock().unwrap();
            counts.send(theirs.owned_by(&owner).unwrap().hold_count()).unwrap();
        });
        if harness.promises(Promise::Order) {
            until_in_queue(harness, &ours, 1);
        }
        guard.unlock().unwrap();
        let _guard = request.wait().unwrap();
        waiter.join().unwrap();
        assert_eq!(theirs.owned_by(&owner).unwrap().hold_count(), 1);
    });
    assert!(matches!(counted.try_recv().unwrap(), 1 | 2));
    until("both are released", || !ours.is_locked().unwrap());
    harness.assert_nothing_is_left("share");
}

/// Holders are told first, waiters end with an error, and the server forgets both at once.
pub fn shutdown_ends_holds_and_waits(harness: &impl Harness) {
    let (leaver, stayer) = (client(harness), client(harness));
    let held = lock_of(harness, &leaver, "shutdown").lock().unwrap();
    let other = lock_of(harness, &stayer, "other").lock().unwrap();
    thread::scope(|scope| {
        let waited = lock_of(harness, &leaver, "other");
        let waiter = scope.spawn(move || waited.lock().map(drop));
        until_waiting(harness, &lock_of(harness, &stayer, "other"), 1);
        leaver.shutdown().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Shutdown { .. })));
    });
    assert!(held.is_lost());
    lock_of(harness, &stayer, "shutdown").try_lock().unwrap().granted().unwrap().unlock().unwrap();
    assert!(matches!(held.unlock(), Err(Error::Lost(_))));
    assert!(matches!(leaver.fair_lock("x"), Err(Error::Shutdown { .. })));
    assert!(leaver.shutdown().is_ok(), "a second call is no error");
    other.unlock().unwrap();
    harness.assert_nothing_is_left("shutdown");
    harness.assert_nothing_is_left("other");
}

/// The requests of those that wait are withdrawn meanwhile.
pub fn a_drain_ends_waits_and_lets_holders_finish(harness: &impl Harness) {
    let (leaver, stayer) = (client(harness), client(harness));
    let held = lock_of(harness, &leaver, "drained").lock().unwrap();
    let other = lock_of(harness, &stayer, "other").lock().unwrap();
    let theirs = lock_of(harness, &stayer, "drained");
    thread::scope(|scope| {
        let waited = lock_of(harness, &leaver, "other");
        let waiter = scope.spawn(move || waited.lock().map(drop));
        until_waiting(harness, &lock_of(harness, &stayer, "other"), 1);
        let drain = scope.spawn(|| leaver.drain(LEASE));
        assert!(matches!(waiter.join().unwrap(), Err(Error::Shutdown { .. })));
        held.check().unwrap();
        assert!(theirs.try_lock().unwrap().granted().is_none());
        held.unlock().unwrap();
        assert!(drain.join().unwrap().unwrap().is_empty());
    });
    theirs.try_lock().unwrap().granted().unwrap().unlock().unwrap();
    assert_eq!(leaver.stats().lost, 0);
    other.unlock().unwrap();
    harness.assert_nothing_is_left("drained");
    harness.assert_nothing_is_left("other");
}
