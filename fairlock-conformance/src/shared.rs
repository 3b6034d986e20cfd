//! Locks that several owners hold together: what read-write locks and semaphores have in common, and which names they have.
//!
//! A case about a kind that the backend does not keep checks only that its handle is refused.

use fairlock_core::Ownership;
use fairlock_core::backend::{Acquire, Acquired, LockId, Place, RequestId, only};
use fairlock_core::{Error, Guard, LockKind, LockName, Owner, OwnerId, Request, Result, RwLock, Semaphore};

use super::{Harness, LEASE, PATIENCE, Promise, SLACK, client, until, wait_once};
use crate::requests::Bench;

/// Whether the backend supports locks of this kind. Checks that a handle is refused otherwise.
pub(super) fn is_kept(harness: &impl Harness, kind: LockKind) -> bool {
    let supports = harness.backend().supports(kind);
    match client(harness).lock_of("kept", kind) {
        Ok(lock) => assert!(supports && lock.kind() == kind, "{kind}"),
        Err(error @ Error::Unsupported { .. }) => {
            let says = format!("lock `kept` can't be used: you asked for a {kind}, and ");
            assert!(!supports && error.to_string().starts_with(&says), "{error}");
        }
        Err(other) => panic!("{kind}: {other}"),
    }
    supports
}

/// Handles of a read-write lock, each in its own client; none where the backend keeps no such lock.
pub(super) fn rw_locks<const N: usize>(harness: &impl Harness, name: &str) -> Option<[RwLock; N]> {
    let handle = |()| client(harness).rw_lock(name).unwrap();
    is_kept(harness, LockKind::ReadWrite).then(|| [(); N].map(handle))
}

/// The same for owners of one client.
pub(super) fn rw_locks_of_one<const N: usize>(
    harness: &impl Harness,
    name: &str,
) -> Option<[RwLock<Owner>; N]> {
    let client = client(harness);
    let handle = |()| client.rw_lock(name).unwrap().owned_by(&client.new_owner()).unwrap();
    is_kept(harness, LockKind::ReadWrite).then(|| [(); N].map(handle))
}

/// Handles of a semaphore, each in its own client; none where the backend keeps no such lock.
pub(super) fn semaphores<const N: usize>(
    harness: &impl Harness,
    name: &str,
    permits: u32,
) -> Option<[Semaphore; N]> {
    let handle = |()| client(harness).semaphore(name, permits).unwrap();
    is_kept(harness, LockKind::Semaphore { permits }).then(|| [(); N].map(handle))
}

/// A lock of each shared kind that the backend supports, for calls of the backend itself: a semaphore of two permits.
pub(super) fn benches(harness: &impl Harness, name: &str) -> Vec<Bench> {
    let kinds = [LockKind::ReadWrite, LockKind::Semaphore { permits: 2 }];
    let kept = kinds.into_iter().filter(|kind| is_kept(harness, *kind));
    kept.map(|kind| Bench::of_kind(harness, kind, &format!("{name}, a {kind}"))).collect()
}

/// The guard of a request that is granted without any further call.
#[track_caller]
pub(super) fn granted<O: Ownership>(request: Request<O>) -> Guard<O> {
    request.decided().recv_timeout(PATIENCE).expect("it is granted");
    request.wait().unwrap()
}

#[track_caller]
pub(super) fn assert_waits<O: Ownership>(request: &Request<O>, rank: u64) {
    until("it has its rank", || request.rank() == Some(rank));
    assert!(request.decided().try_recv().is_err(), "it waits");
}

#[track_caller]
pub(super) fn assert_mismatch<T>(result: Result<T>) {
    match result {
        Err(Error::Mismatch { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two kinds of lock have one name"),
    }
}

/// Whichever kind is there first: until it is free again the others are refused, and change nothing.
pub fn kinds_of_one_name_never_hold_together(harness: &impl Harness) {
    let semaphore = |permits| LockKind::Semaphore { permits };
    let all = [LockKind::Fair, LockKind::ReadWrite, semaphore(1), semaphore(5), semaphore(8)];
    let kinds: Vec<_> = all.into_iter().filter(|kind| is_kept(harness, *kind)).collect();
    let (one, other) = (client(harness), client(harness));
    for held in &kinds {
        let name = format!("first a {held}");
        let lock = one.lock_of(&name, *held).unwrap();
        let guard = lock.lock().unwrap();
        for asked in kinds.iter().filter(|asked| !held.agrees_with(**asked)) {
            let refused = other.lock_of(&name, *asked).unwrap();
            assert_mismatch(refused.try_lock());
            assert_mismatch(refused.lock());
            assert_mismatch(refused.admin().force_unlock());
            // An operator may see what is there.
            match refused.admin().inspect() {
                Ok(state) => {
                    assert_eq!((state.capacity, state.taken()), (Some(held.capacity()), held.capacity()))
                }
                refused => assert_mismatch(refused),
            }
        }
        guard.renew().unwrap();
        // An operator needs the name alone.
        let admin = other.admin(&name).unwrap();
        let state = admin.inspect().unwrap();
        assert_eq!((state.holders.len(), state.queue_length), (1, 0));
        assert!(admin.force_unlock().unwrap(), "{held}");
        drop(guard);
        harness.assert_nothing_is_left(&name);
    }
    // A free name has no kind, and its tokens go on.
    let mut last = None;
    for kind in kinds.iter().chain(&kinds) {
        let guard =
            other.lock_of("in turns", *kind).unwrap().try_lock().unwrap().granted().expect("it is free");
        assert!(last < Some(guard.token()), "{kind}");
        last = Some(guard.token());
        guard.unlock().unwrap();
    }
    harness.assert_nothing_is_left("in turns");
}

/// Each grant has a greater token than all before it, in the order of the queue.
pub fn tokens_grow_over_readers_and_writers(harness: &impl Harness) {
    let Some([a, b, c, d]) = rw_locks(harness, "tokens") else { return };
    let (first, second) = (a.read().unwrap(), b.read().unwrap());
    let (writer, third) = (c.writer().request().unwrap(), d.reader().request().unwrap());
    assert!(first.token() < second.token());
    let last = second.token();
    first.unlock().unwrap();
    second.unlock().unwrap();
    let writing = granted(writer);
    assert!(last < writing.token());
    let last = writing.token();
    writing.unlock().unwrap();
    let third = granted(third);
    assert!(last < third.token());
    // Beside a reader as well.
    assert!(third.token() < b.read().unwrap().token());
    third.unlock().unwrap();
    harness.assert_nothing_is_left("tokens");
}

/// A waiter of the client that the client does not know: its ask came after its withdrawal, for example.
pub fn a_grant_that_its_client_does_not_know_is_given_back(harness: &impl Harness) {
    let mut wishes = vec![(LockKind::ReadWrite, 1), (LockKind::ReadWrite, u32::MAX)];
    wishes.extend([1, 3].map(|units| (LockKind::Semaphore { permits: 3 }, units)));
    wishes.retain(|(kind, _)| is_kept(harness, *kind));
    if harness.promises(Promise::HandOff) {
        wishes.push((harness.kind(), 1));
    }
    let (ours, theirs) = (client(harness), client(harness));
    wait_once(harness, &theirs);
    let backend = harness.backend();
    for (request, (kind, units)) in (1..).zip(wishes) {
        let name = format!("stray, {units} of a {kind}");
        let lock = ours.lock_of(&name, kind).unwrap();
        let guard = lock.lock().unwrap();
        let id = LockId::new(LockName::new(&name).unwrap(), kind);
        let owner = OwnerId::new(&format!("{}:999999", theirs.id()));
        let mut place = Place::new(&id, &owner, RequestId::new(request));
        (place.ttl, place.units) = (LEASE, units);
        let asked = only(backend.acquire(&[Acquire::new(place, LEASE)])).unwrap();
        assert!(matches!(asked, Acquired::Queued { .. }), "{asked:?}");
        guard.unlock().unwrap();
        if !harness.tells_unasked() {
            harness.pass(LEASE + SLACK); // it ends by itself
        }
        until("its client gives it back", || !lock.is_locked().unwrap());
        lock.lock().unwrap().unlock().unwrap(); // if it has ended by itself, the next call finds it
        harness.assert_nothing_is_left(&name);
    }
}
