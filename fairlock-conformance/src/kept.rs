//! Locks that stay taken for a time after their holders have given them up.

use std::time::Duration;

use fairlock_core::backend::{
    Acquired, ForceReleased, HoldKept, Released, Renew, Renewal, RequestId, Withdrawn, only,
};

use super::shared::{granted, semaphores};
use super::{Harness, LEASE, PATIENCE, SLACK, client, lock, lock_of, until_in_queue};
use crate::requests::Bench;

/// For longer than its lease, without any renewal, and whatever becomes of the client.
pub fn a_kept_lock_is_taken_until_its_end(harness: &impl Harness) {
    let (holder, theirs) = (client(harness), lock(harness, "kept on"));
    let ours = lock_of(harness, &holder, "kept on");
    let guard = ours.lock().unwrap();
    let token = guard.token();
    guard.keep_for(LEASE * 2).unwrap();
    assert!(!ours.is_held() && holder.held().is_empty());
    assert!(ours.try_lock().unwrap().granted().is_none(), "its former owner is as any other");
    let kept = theirs.admin().inspect().unwrap().holder().cloned().expect("it is taken");
    assert_eq!((kept.hold_count, kept.token), (0, Some(token)));
    assert!(kept.lease_left.is_some_and(|left| left > LEASE && left <= LEASE * 2 + SLACK));
    assert_eq!(holder.stats().lost, 0);
    holder.shutdown().unwrap();
    harness.pass(LEASE + SLACK / 2);
    assert!(theirs.try_lock().unwrap().granted().is_none());
    harness.pass(LEASE + SLACK / 2);
    let next = theirs.try_lock().unwrap().granted().expect("its time is over");
    assert!(next.token() > token);
    next.unlock().unwrap();
    harness.assert_nothing_is_left("kept on");
}

/// Also earlier than the lease would have ended: who waits does not wait for that.
pub fn the_next_waiter_gets_a_kept_lock_at_its_end(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "short"), lock(harness, "short"));
    let guard = ours.fixed_lease(LEASE).lock().unwrap();
    let heir = theirs.request().unwrap();
    until_in_queue(harness, &theirs, 1);
    guard.keep_for(LEASE / 2).unwrap();
    assert!(heir.decided().try_recv().is_err());
    harness.pass(LEASE / 2 + SLACK / 2);
    heir.decided().recv_timeout(PATIENCE).expect("at the end of its time");
    heir.wait().unwrap().unlock().unwrap();
    // A time that is over before the lock is given up.
    let guard = ours.lock().unwrap();
    harness.pass(Duration::from_millis(20));
    guard.keep_for(Duration::from_millis(10)).unwrap();
    theirs.try_lock().unwrap().granted().expect("it is free").unlock().unwrap();
    harness.assert_nothing_is_left("short");
}

/// A renewal would set the end anew, and a release or the withdrawal of a late attempt would end it. A repeat shortens it at most.
pub fn what_names_the_former_request_finds_no_kept_hold(harness: &impl Harness) {
    let bench = Bench::new(harness, "former");
    let (owner, other) = (bench.owner(), bench.owner());
    let (token, keeper) = (bench.token(&owner, 1), RequestId::new(7));
    let hold = bench.hold(&owner, 1, token);
    let keep = |hold, lease| bench.backend.keep(&hold, keeper, lease).unwrap();
    let left = || bench.backend.inspect(&bench.lock, 0..0).unwrap().holder().unwrap().lease_left.unwrap();
    assert_eq!(keep(bench.hold(&other, 1, token), LEASE), HoldKept::NotHeld);
    assert_eq!(keep(hold, LEASE * 100), HoldKept::Kept);
    assert_eq!(keep(hold, LEASE * 200), HoldKept::Kept);
    assert!(left() <= LEASE * 100 + SLACK / 2, "a late attempt prolongs nothing");
    for lease in [LEASE, LEASE * 400] {
        let late = bench.backend.renew(bench.client, &[Renew::Hold { hold, holds: 1, lease }]);
        assert!(matches!(late[..], [Ok(Renewal::Lost)]), "{late:?}");
    }
    assert!(left() > LEASE * 99 && left() <= LEASE * 100 + SLACK / 2);
    let again = bench.ask(&owner, 1);
    assert!(matches!(again, Acquired::Queued { .. } | Acquired::Busy { .. }), "{again:?}");
    assert_eq!(only(bench.backend.withdraw(&[bench.place(&owner, 1)])).unwrap(), Withdrawn::Left);
    assert_eq!(bench.release(&owner, 1, token), Released::NotHeld);
    assert_eq!(keep(hold, LEASE * 2), HoldKept::Kept);
    assert!(left() > LEASE && left() <= LEASE * 2 + SLACK / 2);
    let taken = bench.backend.take_hold(&bench.hold(&owner, 7, token)).unwrap();
    assert_eq!(taken, ForceReleased::Taken);
    assert_eq!(keep(hold, LEASE), HoldKept::NotHeld);
    harness.assert_nothing_is_left("former");
}

/// The permits that one holder took stay taken, and no others.
pub fn kept_permits_are_taken_until_their_end(harness: &impl Harness) {
    let Some([a, b, c]) = semaphores(harness, "kept permits", 5) else { return };
    let (first, second) = (a.acquire_many(2).unwrap(), b.acquire_many(2).unwrap());
    first.keep_for(LEASE * 2).unwrap();
    assert_eq!(a.admin().inspect().unwrap().taken(), 4);
    second.unlock().unwrap();
    let free = c.try_acquire_many(3).unwrap().granted().expect("three are free");
    assert!(b.try_acquire().unwrap().granted().is_none());
    let (large, state) = (b.request_many(2).unwrap(), a.admin().inspect().unwrap());
    assert_eq!(state.holders.iter().filter(|holder| holder.hold_count == 0).count(), 1);
    harness.pass(LEASE);
    assert!(large.decided().try_recv().is_err());
    harness.pass(LEASE + SLACK / 2);
    granted(large).unlock().unwrap();
    free.unlock().unwrap();
    harness.assert_nothing_is_left("kept permits");
}
