//! Holds that go to another owner: handed over by one client, and adopted by another.

use fairlock_core::backend::{Acquired, Hold, Released, Renew, Renewal, Withdrawn, only};
use fairlock_core::{Client, Error, Guard, HandOver, Owner};

use super::shared::{granted, rw_locks, semaphores};
use super::tasks::run;
use super::{
    Harness, LEASE, PATIENCE, Promise, SLACK, client, client_to_be_told, lock, lock_of, until_in_queue,
    until_told,
};
use crate::requests::Bench;

/// Adopts what the text says, as another process does.
fn adopt(client: &Client, hold: &HandOver) -> Guard<Owner> {
    client.adopt(&hold.to_string().parse().unwrap()).unwrap()
}

fn is_lost<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Lost(_)))
}

/// Under its token, by the renewals of the adopter, whatever becomes of the first client. Only one client adopts it.
pub fn an_adopted_hold_goes_on_under_its_token(harness: &impl Harness) {
    let (first, second, theirs) = (client(harness), client(harness), lock(harness, "adopted"));
    let ours = lock_of(harness, &first, "adopted");
    let guard = ours.lock().unwrap();
    let token = guard.token();
    let kept: HandOver = HandOver::from(&guard).to_string().parse().unwrap();
    assert!(matches!(second.adopt(&kept), Err(Error::Misuse { .. })), "both would believe in it");
    let hold = guard.hand_over().unwrap();
    assert!(!ours.is_held() && first.held().is_empty() && first.stats().lost == 0);
    assert!(ours.try_lock().unwrap().granted().is_none(), "its former owner is as any other");
    harness.pass(LEASE / 2);
    let guard = adopt(&second, &hold);
    assert_eq!(guard.token(), token);
    assert!(is_lost(client(harness).adopt(&hold)));
    first.shutdown().unwrap();
    harness.pass(LEASE * 2);
    assert!(!guard.is_lost() && theirs.try_lock().unwrap().granted().is_none());
    let holder = theirs.admin().inspect().unwrap().holder().cloned().expect("it is taken");
    assert_eq!((holder.hold_count, holder.token), (1, Some(token)));
    assert_ne!(holder.owner, *hold.owner());
    guard.unlock().unwrap();
    assert!(is_lost(second.adopt(&hold)));
    let next = theirs.lock().unwrap();
    assert!(next.token() > token);
    next.unlock().unwrap();
    harness.assert_nothing_is_left("adopted");
}

/// In their order, as from any holder.
pub fn the_release_of_an_adopter_hands_the_lock_on(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "behind"), lock(harness, "behind"));
    let guard = ours.lock().unwrap();
    let first = theirs.request().unwrap();
    until_in_queue(harness, &theirs, 1);
    let guard = adopt(&client(harness), &guard.hand_over().unwrap());
    let second = harness.promises(Promise::Order).then(|| lock(harness, "behind").request().unwrap());
    until_in_queue(harness, &theirs, if second.is_some() { 2 } else { 1 });
    harness.pass(LEASE);
    assert!(first.decided().try_recv().is_err());
    guard.unlock().unwrap();
    granted(first).unlock().unwrap();
    if let Some(second) = second {
        granted(second).unlock().unwrap();
    }
    harness.assert_nothing_is_left("behind");
}

/// The lock is free when the lease of its first owner ends.
pub fn a_hold_that_nobody_adopts_ends_with_its_lease(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "late"), lock(harness, "late"));
    let hold = ours.lock().unwrap().hand_over().unwrap();
    let heir = theirs.request().unwrap();
    until_in_queue(harness, &theirs, 1);
    harness.pass(LEASE + SLACK);
    assert!(is_lost(client(harness).adopt(&hold)));
    granted(heir).unlock().unwrap();
    assert!(is_lost(client(harness).adopt(&hold)));
    // Nor is one adopted that an operator took.
    let hold = ours.lock().unwrap().hand_over().unwrap();
    assert!(theirs.admin().force_unlock().unwrap());
    assert!(is_lost(client(harness).adopt(&hold)));
    harness.assert_nothing_is_left("late");
}

/// By the channel, and by the error of `unlock`.
pub fn an_adopter_is_told_of_the_loss(harness: &impl Harness) {
    let (second, ours) = (client_to_be_told(harness), lock(harness, "told"));
    let guard = adopt(&second, &ours.lock().unwrap().hand_over().unwrap());
    assert!(ours.admin().force_unlock().unwrap());
    until_told(harness);
    guard.lost().recv_timeout(PATIENCE).expect("it is told");
    assert!(is_lost(guard.unlock()));
    harness.assert_nothing_is_left("told");
}

/// A late renewal would prolong the hold, and a late release would end it. A repeat is a renewal.
pub fn what_names_the_former_owner_finds_no_hold(harness: &impl Harness) {
    let bench = Bench::new(harness, "former");
    let [former, adopter, third] = [(); 3].map(|()| bench.owner());
    let token = bench.token(&former, 1);
    let hold = bench.hold(&former, 1, token);
    let adopt = |hold: &Hold<'_>, owner, lease| bench.backend.adopt(hold, owner, lease).unwrap();
    let holder = || bench.backend.inspect(&bench.lock, 0..0).unwrap().holder().cloned().expect("it is taken");
    let left = || holder().lease_left.unwrap();
    let renew = |hold, holds, lease| {
        only(bench.backend.renew(bench.client, &[Renew::Hold { hold, holds, lease }])).unwrap()
    };
    assert_eq!(renew(hold, 3, LEASE), Renewal::Renewed);
    assert_eq!(adopt(&bench.hold(&third, 1, token), &adopter, LEASE), Renewal::Lost);
    assert_eq!(adopt(&bench.hold(&former, 2, token), &adopter, LEASE), Renewal::Lost);
    assert_eq!(adopt(&hold, &adopter, LEASE * 2), Renewal::Renewed);
    assert_eq!((holder().owner, holder().hold_count, holder().token), (adopter.clone(), 1, Some(token)));
    assert!(left() > LEASE && left() <= LEASE * 2);

    assert_eq!(renew(hold, 1, LEASE * 100), Renewal::Lost);
    assert_eq!(adopt(&hold, &third, LEASE * 100), Renewal::Lost);
    let again = bench.ask(&former, 1);
    assert!(matches!(again, Acquired::Queued { .. } | Acquired::Busy { .. }), "{again:?}");
    assert_eq!(only(bench.backend.withdraw(&[bench.place(&former, 1)])).unwrap(), Withdrawn::Left);
    assert_eq!(bench.release(&former, 1, token), Released::NotHeld);
    assert!(left() <= LEASE * 2);

    let adopted = bench.hold(&adopter, 1, token);
    assert_eq!(renew(adopted, 2, LEASE), Renewal::Renewed);
    assert_eq!(adopt(&hold, &adopter, LEASE), Renewal::Renewed);
    assert_eq!(holder().hold_count, 2, "a repeat that comes late");
    assert_eq!(adopt(&hold, &adopter, LEASE * 3), Renewal::Renewed);
    assert!(left() > LEASE * 2 && left() <= LEASE * 3);
    assert_eq!(bench.token(&adopter, 1), token);
    assert_eq!(bench.release(&adopter, 1, token), Released::Released);
    assert_eq!(adopt(&hold, &adopter, LEASE), Renewal::Lost);
    harness.assert_nothing_is_left("former");
}

/// The adopter may give it a shorter lease. Who waits does not wait for the end of the former one.
pub fn an_adopted_hold_ends_with_the_lease_of_its_adopter(harness: &impl Harness) {
    let bench = Bench::new(harness, "shorter");
    let (ours, theirs) = (lock(harness, "shorter"), lock(harness, "shorter"));
    let hold = ours.fixed_lease(LEASE * 2).lock().unwrap().hand_over().unwrap();
    let heir = theirs.request().unwrap();
    until_in_queue(harness, &theirs, 1);
    let (owner, adopter) = (hold.owner().clone(), bench.owner());
    let held = Hold::new(&bench.lock, &owner, hold.request_id(), hold.token());
    assert_eq!(bench.backend.adopt(&held, &adopter, LEASE / 2).unwrap(), Renewal::Renewed);
    assert!(heir.decided().try_recv().is_err());
    harness.pass(LEASE / 2 + SLACK);
    granted(heir).unlock().unwrap();
    assert_eq!(bench.backend.adopt(&held, &adopter, LEASE).unwrap(), Renewal::Lost);
    harness.assert_nothing_is_left("shorter");
}

/// Only the last guard of an owner.
pub fn a_hold_of_two_guards_is_not_handed_over(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "twice"), lock(harness, "twice"));
    let (outer, inner) = (ours.lock().unwrap(), ours.lock().unwrap());
    assert!(matches!(inner.hand_over(), Err(Error::Misuse { .. })));
    assert!(!outer.is_lost() && theirs.try_lock().unwrap().granted().is_none());
    adopt(&client(harness), &outer.hand_over().unwrap()).unlock().unwrap();
    theirs.try_lock().unwrap().granted().expect("it is free").unlock().unwrap();
    harness.assert_nothing_is_left("twice");
}

/// Both ways by futures.
pub fn a_task_adopts_what_a_task_hands_over(harness: &impl Harness) {
    let (first, second) = (client(harness).to_async(), client(harness).to_async());
    let ours = first.lock_of("by tasks", harness.kind()).unwrap();
    let guard = run(harness, ours.lock()).unwrap();
    let token = guard.token();
    let hold = run(harness, guard.hand_over()).unwrap();
    let guard = run(harness, second.adopt(&hold)).unwrap();
    assert_eq!(guard.token(), token);
    assert!(is_lost(run(harness, first.adopt(&hold))));
    harness.pass(LEASE * 2);
    assert!(!guard.is_lost());
    run(harness, guard.unlock()).unwrap();
    assert!(is_lost(run(harness, second.adopt(&hold))));
    harness.assert_nothing_is_left("by tasks");
}

/// All of them, and no others.
pub fn adopted_permits_are_taken_once(harness: &impl Harness) {
    let Some([a, b, c]) = semaphores(harness, "adopted permits", 5) else { return };
    let (first, second) = (a.acquire_many(3).unwrap(), b.acquire().unwrap());
    let guard = adopt(&client(harness), &first.hand_over().unwrap());
    assert_eq!(a.admin().inspect().unwrap().taken(), 4);
    assert!(c.try_acquire_many(2).unwrap().granted().is_none());
    let large = c.request_many(4).unwrap();
    harness.pass(LEASE * 2);
    assert!(large.decided().try_recv().is_err() && !guard.is_lost());
    guard.unlock().unwrap();
    granted(large).unlock().unwrap();
    second.unlock().unwrap();
    harness.assert_nothing_is_left("adopted permits");
}

/// A reader that was adopted holds beside others, a writer alone.
pub fn an_adopted_reader_reads_and_a_writer_writes(harness: &impl Harness) {
    let Some([a, b]) = rw_locks(harness, "adopted rw") else { return };
    let adopter = client(harness);
    let (read, beside) = (a.read().unwrap(), b.read().unwrap());
    let read = adopt(&adopter, &read.hand_over().unwrap());
    assert_eq!(a.admin().inspect().unwrap().holders.len(), 2);
    beside.unlock().unwrap();
    let writer = b.writer().request().unwrap();
    assert!(writer.decided().try_recv().is_err());
    read.unlock().unwrap();
    let write = adopt(&adopter, &granted(writer).hand_over().unwrap());
    harness.pass(LEASE * 2);
    assert!(a.try_read().unwrap().granted().is_none());
    write.unlock().unwrap();
    a.try_read().unwrap().granted().expect("it is free").unlock().unwrap();
    harness.assert_nothing_is_left("adopted rw");
}
