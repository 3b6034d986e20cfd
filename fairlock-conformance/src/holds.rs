//! What a hold is, how long it lasts, and how its end is reported.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock_core::{Error, LostCause};

use super::{Harness, LEASE, PATIENCE, SLACK, client, client_to_be_told, lock, lock_of, until_told};

/// Each guard counts, and the lock is free when the last one is gone.
pub fn re_entry_is_counted_and_the_last_unlock_gives_the_lock_back(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "again"), lock(harness, "again"));
    assert_eq!(ours.hold_count(), 0);
    let outer = ours.lock().unwrap();
    let inner = ours.try_lock().unwrap().granted().unwrap();
    assert_eq!(ours.hold_count(), 2);
    outer.unlock().unwrap(); // in any order
    assert_eq!(ours.hold_count(), 1);
    assert!(theirs.try_lock().unwrap().granted().is_none());
    inner.unlock().unwrap();
    assert_eq!(ours.hold_count(), 0);
    theirs.try_lock().unwrap().granted().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("again");
}

/// Each outermost acquisition has one token, greater than all before.
pub fn tokens_grow_and_stay_the_same_in_a_re_entry(harness: &impl Harness) {
    let (one, other) = (lock(harness, "token"), lock(harness, "token"));
    let mut last = None;
    for lock in [&one, &other, &other, &one] {
        let guard = lock.lock().unwrap();
        assert_eq!(lock.lock().unwrap().token(), guard.token());
        assert!(last < Some(guard.token()) && guard.token().get() < 1 << 53);
        last = Some(guard.token());
    }
    harness.lose_hold("token");
    assert!(last < Some(one.lock().unwrap().token()));
}

/// The hold lasts as long as the work takes, even if others were nested before.
pub fn the_watchdog_keeps_a_hold(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "kept"), lock(harness, "kept"));
    for _ in 0..3 {
        let outer = ours.lock().unwrap();
        ours.lock().unwrap().unlock().unwrap();
        outer.unlock().unwrap();
    }
    let guard = ours.lock().unwrap();
    harness.pass(LEASE * 2);
    assert!(!guard.is_lost() && guard.valid_for() > Duration::ZERO && guard.valid_for() < LEASE);
    assert!(theirs.try_lock().unwrap().granted().is_none());
    guard.unlock().unwrap();
}

/// The watchdog does not renew it, and its holder knows when it is over.
pub fn a_fixed_lease_ends_by_itself(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "fixed"), lock(harness, "fixed"));
    let guard = ours.fixed_lease(LEASE).lock().unwrap();
    assert!(!guard.is_lost() && theirs.try_lock().unwrap().granted().is_none());
    harness.pass(LEASE + SLACK);
    assert!(guard.is_lost());
    let next = theirs.try_lock().unwrap().granted().unwrap();
    match guard.unlock() {
        Err(Error::Lost(lost)) => assert_eq!(lost.cause, LostCause::LeaseOver),
        other => panic!("{other:?}"),
    }
    // The late unlock took nothing from the next holder.
    assert!(next.renew().is_ok() && ours.try_lock().unwrap().granted().is_none());
    next.unlock().unwrap();
}

/// The inner unlock tells the server the new hold count, and prolongs nothing.
pub fn an_inner_unlock_keeps_the_end_of_the_outermost_lease(harness: &impl Harness) {
    let ours = lock(harness, "nested");
    let outer = ours.fixed_lease(LEASE).lock().unwrap();
    let inner = ours.lock().unwrap();
    harness.pass(LEASE / 4);
    inner.unlock().unwrap();
    assert_eq!(ours.hold_count(), 1);
    let left = ours.admin().inspect().unwrap().holder().unwrap().lease_left.unwrap();
    assert!(left > Duration::ZERO && left <= LEASE * 3 / 4, "{left:?}");
    outer.unlock().unwrap();
}

/// It is renewed up to the limit, and not beyond.
pub fn a_capped_hold_ends_at_its_limit(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "capped"), lock(harness, "capped"));
    let guard = ours.max_hold(LEASE * 2).lock().unwrap();
    harness.pass(LEASE + SLACK);
    assert!(!guard.is_lost() && theirs.try_lock().unwrap().granted().is_none());
    harness.pass(LEASE);
    assert!(guard.is_lost());
    theirs.try_lock().unwrap().granted().unwrap().unlock().unwrap();
    match guard.unlock() {
        Err(Error::Lost(lost)) => assert_eq!(lost.cause, LostCause::MaxHold),
        other => panic!("{other:?}"),
    }
}

/// By the flag, the channel, the callback, and the error of `unlock`.
pub fn a_hold_that_vanished_is_reported_on_every_way(harness: &impl Harness) {
    let client = client(harness);
    let (reports, reported) = mpsc::sync_channel(1);
    client.on_lost(move |lost| reports.send(lost.clone()).unwrap());
    let guard = lock_of(harness, &client, "vanished").lock().unwrap();
    let (other_end, token) = (guard.lost().clone(), guard.token());
    harness.lose_hold("vanished");
    harness.pass(LEASE);
    let lost = guard.lost().recv_timeout(PATIENCE).unwrap();
    assert_eq!((lost.token, lost.lock.as_str()), (token, "vanished"));
    assert!(other_end.recv().is_err(), "one message, then it is closed");
    assert_eq!(reported.recv_timeout(PATIENCE).unwrap(), lost);
    assert!(guard.is_lost() && guard.valid_for() == Duration::ZERO);
    assert!(matches!(guard.unlock(), Err(Error::Lost(same)) if same == lost));
    assert_eq!(client.stats().lost, 1);
}

/// `force_unlock` frees the lock, and the holder learns of that at once.
pub fn a_hold_can_be_taken_by_force_and_its_holder_is_told(harness: &impl Harness) {
    let client = client_to_be_told(harness);
    let theirs = lock(harness, "force");
    let ours = lock_of(harness, &client, "force");
    assert!(!theirs.admin().force_unlock().unwrap());
    let guard = ours.lock().unwrap();
    assert!(theirs.admin().force_unlock().unwrap());
    until_told(harness);
    let lost = guard.lost().recv_timeout(PATIENCE).expect("told by a message, or by the next renewal");
    assert_eq!(lost.cause, LostCause::Taken);
    let next = theirs.try_lock().unwrap().granted().unwrap();
    assert!(matches!(guard.unlock(), Err(Error::Lost(_))));
    // The owner that lost the lock can get it again, in its turn.
    assert!(ours.try_lock().unwrap().granted().is_none());
    next.unlock().unwrap();
    ours.try_lock().unwrap().granted().unwrap().unlock().unwrap();
}

/// Leaking is for code that can't keep a guard.
pub fn a_leaked_hold_is_released_by_unlock(harness: &impl Harness) {
    let ours = lock(harness, "leaked");
    assert!(matches!(ours.unlock(), Err(Error::NotHeld { guards: 0, .. })));
    let guard = ours.lock().unwrap();
    assert!(matches!(ours.unlock(), Err(Error::NotHeld { guards: 1, .. })));
    guard.leak();
    harness.pass(LEASE * 2);
    assert!(ours.is_held());
    let elsewhere = thread::scope(|scope| scope.spawn(|| ours.unlock()).join().unwrap());
    let holder = ours.admin().inspect().unwrap().holder().cloned().unwrap().owner;
    for (refused, known) in [(elsewhere, Some(&holder)), (lock(harness, "leaked").unlock(), None)] {
        let said = refused.as_ref().map_err(ToString::to_string).unwrap_err();
        let Err(Error::NotHeld { owner, held_by, .. }) = refused else { panic!("{refused:?}") };
        assert!(said.contains("leaked") && said.contains(owner.as_str()), "{said}");
        assert!(owner != holder);
        assert_eq!(held_by.as_ref(), known, "the owner of this client that leaked it");
    }
    ours.unlock().unwrap();
    assert!(!ours.is_locked().unwrap());
}

/// Its guard may move between threads, and a thread is another owner.
pub fn an_owner_is_independent_of_threads(harness: &impl Harness) {
    let client = client(harness);
    let ours = lock_of(harness, &client, "owner");
    let owner = client.new_owner();
    let owned = ours.owned_by(&owner).unwrap();
    let guard = owned.lock().unwrap();
    assert!(ours.try_lock().unwrap().granted().is_none());
    assert_eq!((owned.hold_count(), ours.hold_count()), (1, 0));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(owned.try_lock().unwrap().granted().is_some(), "the same owner re-enters on any thread");
            guard.unlock().unwrap();
        });
    });
    ours.lock().unwrap().unlock().unwrap();
    let stranger = super::client(harness).new_owner();
    assert!(matches!(ours.owned_by(&stranger), Err(Error::Misuse { .. })));
}

/// A careful holder renews before it commits.
pub fn renew_asks_the_server_and_prolongs(harness: &impl Harness) {
    let ours = lock(harness, "renew");
    let guard = ours.fixed_lease(LEASE).lock().unwrap();
    harness.pass(LEASE / 2);
    assert!(guard.valid_for() < LEASE / 2 + SLACK / 2);
    let certain = guard.renew().unwrap();
    assert!(certain > LEASE * 9 / 10, "a fixed lease begins anew: {certain:?}");
    harness.pass(LEASE / 2);
    assert!(!guard.is_lost());
    harness.lose_hold("renew");
    assert!(!guard.is_lost(), "the server has not been asked yet");
    assert!(matches!(guard.renew(), Err(Error::Lost(_))));
    assert!(guard.is_lost());
    drop(guard);
    let guard = ours.lock().unwrap();
    harness.pass(LEASE / 4);
    assert!(guard.renew().unwrap() > LEASE * 9 / 10);
    guard.unlock().unwrap();
}

/// Any client can inspect a lock.
pub fn inspect_shows_holder_and_count(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "seen"), lock(harness, "seen"));
    assert!(theirs.admin().inspect().unwrap().holder().is_none());
    let outer = ours.lock().unwrap();
    let inner = ours.lock().unwrap();
    harness.pass(LEASE / 2); // the count may ride on a renewal
    let holder = theirs.admin().inspect().unwrap().holder().cloned().unwrap();
    assert_eq!(holder.owner, *outer.owner());
    assert_eq!((holder.hold_count, holder.token), (2, Some(outer.token())));
    assert!(holder.lease_left.is_some_and(|left| left > Duration::ZERO && left <= LEASE));
    drop((inner, outer));
    assert!(theirs.admin().inspect().unwrap().holder().is_none());
}
