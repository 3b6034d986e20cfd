//! Semaphores: no more permits are held than there are, and a large request is not passed by small ones.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fairlock_core::{Error, LockKind, LostCause};

use super::shared::{assert_waits, granted, is_kept, semaphores};
use super::{Harness, PATIENCE, Promise, SLACK, client, client_to_be_told, client_with, until, until_told};

/// Eight threads in four clients take one to three of three permits, and all of them get their turns.
pub fn no_more_permits_than_there_are(harness: &impl Harness) {
    const TURNS: u32 = 15;
    const PERMITS: u32 = 3;
    if !is_kept(harness, LockKind::Semaphore { permits: PERMITS }) {
        return;
    }
    let (taken, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let clients = [(); 4].map(|()| client(harness));
    thread::scope(|scope| {
        for (number, client) in (0..).zip(clients.iter().chain(&clients)) {
            let (taken, done) = (&taken, &done);
            scope.spawn(move || {
                let semaphore = client.semaphore("permits", PERMITS).unwrap();
                for turn in 0..TURNS {
                    let n = (turn + number) % PERMITS + 1;
                    let guard = semaphore.acquire_many(n).unwrap();
                    let together = taken.fetch_add(n, Ordering::SeqCst) + n;
                    assert!(together <= PERMITS, "{together} permits of {PERMITS}");
                    thread::yield_now();
                    taken.fetch_sub(n, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 8 * TURNS);
    harness.assert_nothing_is_left("permits");
}

/// Though they would fit, and it does not yet.
pub fn a_large_request_is_not_passed_by_small_ones(harness: &impl Harness) {
    let Some([a, b, c]) = semaphores(harness, "large", 5) else { return };
    let held = a.acquire_many(2).unwrap();
    let (large, small) = (b.request_many(5).unwrap(), c.request().unwrap());
    assert_waits(&large, 0);
    assert_waits(&small, 1);
    let state = a.admin().inspect().unwrap();
    assert_eq!((state.taken(), state.capacity), (2, Some(5)));
    let queue: Vec<_> = state.queue.iter().map(|waiter| waiter.units).collect();
    assert_eq!(queue, [5, 1]);
    held.unlock().unwrap();
    let large = granted(large);
    assert!(small.decided().try_recv().is_err(), "all permits are taken");
    large.unlock().unwrap();
    granted(small).unlock().unwrap();
    harness.assert_nothing_is_left("large");
}

/// An attempt that does not wait, and so leaves nothing in the queue either.
pub fn a_try_does_not_pass_a_large_request(harness: &impl Harness) {
    let Some([a, b, c]) = semaphores(harness, "try", 5) else { return };
    let held = a.acquire_many(2).unwrap();
    assert!(c.try_acquire_many(4).unwrap().granted().is_none(), "three are free");
    drop(c.try_acquire_many(3).unwrap().granted().expect("three are free"));
    let large = b.request_many(4).unwrap();
    assert!(c.try_acquire().unwrap().granted().is_none());
    assert!(c.try_acquire_many_for(3, Duration::ZERO).unwrap().granted().is_none());
    assert_waits(&large, 0);
    assert_eq!(a.admin().inspect().unwrap().queue_length, 1);
    held.unlock().unwrap();
    let large = granted(large);
    drop(c.try_acquire().unwrap().granted().expect("one is free, and no request waits"));
    large.unlock().unwrap();
    harness.assert_nothing_is_left("try");
}

/// In the order of the queue, up to the first that does not fit.
pub fn a_release_grants_all_that_fit(harness: &impl Harness) {
    let Some([a, b, c]) = semaphores(harness, "fit", 5) else { return };
    let all = a.acquire_many(5).unwrap();
    let (two, one) = (b.request_many(2).unwrap(), c.request().unwrap());
    let (three, last) = (b.request_many(3).unwrap(), c.request().unwrap());
    assert_waits(&last, 3);
    all.unlock().unwrap();
    let state = a.admin().inspect().unwrap();
    assert_eq!((state.taken(), state.holders.len(), state.queue_length), (3, 2, 2), "{state:?}");
    let (two, one) = (granted(two), granted(one));
    assert!(two.token() < one.token());
    assert!(three.decided().try_recv().is_err() && last.decided().try_recv().is_err());
    two.unlock().unwrap();
    let (three, last) = (granted(three), granted(last));
    assert!(three.token() < last.token());
    assert_eq!(a.admin().inspect().unwrap().taken(), 5);
    for guard in [one, three, last] {
        guard.unlock().unwrap();
    }
    harness.assert_nothing_is_left("fit");
}

/// Clients with two numbers share a semaphore. Each request is granted if the permits in use and its own fit into the number that the
/// request names.
pub fn each_client_goes_by_its_own_number_of_permits(harness: &impl Harness) {
    let Some([five]) = semaphores(harness, "number", 5) else { return };
    let [eight] = semaphores(harness, "number", 8).unwrap();
    let all = five.acquire_many(5).unwrap();
    assert!(five.try_acquire().unwrap().granted().is_none());
    assert!(eight.try_acquire_many(4).unwrap().granted().is_none());
    let three = eight.try_acquire_many(3).unwrap().granted().expect("five of eight are taken");
    let (first, second) = (five.request().unwrap(), eight.request().unwrap());
    assert_waits(&first, 0);
    assert_waits(&second, 1);
    let state = five.admin().inspect().unwrap();
    assert_eq!((state.taken(), state.capacity), (8, Some(8)), "the number of the last grant");
    let capacities: Vec<_> = state.queue.iter().map(|waiter| waiter.capacity).collect();
    assert_eq!(capacities, [Some(5), Some(8)]);

    // The number is raised: a waiter that finds too many by its own number keeps its turn.
    assert!(all.renew().is_ok() && three.renew().is_ok());
    three.unlock().unwrap();
    assert!(first.decided().try_recv().is_err() && second.decided().try_recv().is_err());
    assert!(eight.try_acquire().unwrap().granted().is_none(), "waiters go first");
    all.unlock().unwrap();
    let (first, second) = (granted(first), granted(second));
    assert!(first.token() < second.token());

    // And lowered.
    let most = eight.acquire_many(4).unwrap();
    let last = five.request().unwrap();
    assert_waits(&last, 0);
    first.unlock().unwrap();
    assert!(last.decided().try_recv().is_err(), "five of five are taken");
    second.unlock().unwrap();
    let last = granted(last);
    assert!(five.try_acquire().unwrap().granted().is_none());
    for guard in [most, last] {
        guard.unlock().unwrap();
    }
    harness.assert_nothing_is_left("number");
}

/// A waiter behind the first that names a greater number has its turn by its own heartbeat, where no release brings it.
pub fn a_greater_number_behind_is_served_by_a_heartbeat(harness: &impl Harness) {
    if !is_kept(harness, LockKind::Semaphore { permits: 5 }) {
        return;
    }
    let [five, eight] =
        [5, 8].map(|permits| client_with(harness, SLACK * 3).semaphore("greater", permits).unwrap());
    let held = [(); 5].map(|()| five.acquire().unwrap());
    let (first, second) = (five.request().unwrap(), eight.request_many(3).unwrap());
    assert_waits(&second, 1);
    let [one, rest @ ..] = held;
    one.unlock().unwrap();
    let first = granted(first);
    harness.pass(SLACK * 2); // a heartbeat
    let second = granted(second);
    assert_eq!(five.admin().inspect().unwrap().taken(), 8);
    drop((first, second, rest));
    harness.assert_nothing_is_left("greater");
}

/// No server is asked: it could never be granted.
pub fn more_than_there_are_is_refused(harness: &impl Harness) {
    let Some([three]) = semaphores(harness, "more", 3) else { return };
    for n in [0, 4, u32::MAX] {
        match three.try_acquire_many(n) {
            Err(Error::InvalidConfig { reason, .. }) => assert!(reason.contains("`more`"), "{reason}"),
            other => panic!("{n}: {other:?}"),
        }
    }
    for permits in [0, 1_000_001] {
        let refused = client(harness).semaphore("more", permits);
        assert!(matches!(refused, Err(Error::InvalidConfig { .. })), "{permits}: {refused:?}");
    }
    let most = client(harness).semaphore("more", 1_000_000).unwrap();
    most.acquire_many(1_000_000).unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("more");
}

/// The others keep theirs, and the next waiter gets what is free. By force on all, all are told.
pub fn one_of_five_is_taken_by_force(harness: &impl Harness) {
    let Some([b]) = semaphores(harness, "force", 5) else { return };
    let client = client_to_be_told(harness);
    let a = client.semaphore("force", 5).unwrap();
    let [first, second, third, fourth, fifth] = [(); 5].map(|()| a.acquire().unwrap());
    let waiter = b.request().unwrap();
    assert!(b.admin().force_unlock_of(third.owner()).unwrap());
    if harness.promises(Promise::HandOff) {
        until_told(harness);
        let lost = third.lost().recv_timeout(PATIENCE).expect("told by a message, or by the next renewal");
        assert_eq!(lost.cause, LostCause::Taken);
    }
    assert!(matches!(third.renew(), Err(Error::Lost(_))));
    let next = granted(waiter);
    assert!(!b.admin().force_unlock_of(third.owner()).unwrap(), "it has none now");
    assert!(matches!(third.unlock(), Err(Error::Lost(_))));
    assert_eq!(a.admin().inspect().unwrap().taken(), 5);
    for guard in [&first, &second, &fourth, &fifth, &next] {
        guard.renew().unwrap();
    }
    let waiter = b.request_many(5).unwrap();
    assert!(b.admin().force_unlock().unwrap());
    granted(waiter).unlock().unwrap();
    for guard in [first, second, fourth, fifth, next] {
        assert!(matches!(guard.renew(), Err(Error::Lost(_))));
    }
    assert!(!b.admin().force_unlock().unwrap());
    harness.assert_nothing_is_left("force");
}

/// A second caller of the owner that waits would be granted by a number that it did not name.
pub fn a_wait_goes_by_one_number_of_permits(harness: &impl Harness) {
    let client = client(harness);
    if !is_kept(harness, LockKind::Semaphore { permits: 5 }) {
        return;
    }
    let [five, eight] = [5, 8].map(|permits| client.semaphore("wait", permits).unwrap());
    let (held, owner) = (five.acquire_many(4).unwrap(), client.new_owner());
    let request = five.owned_by(&owner).unwrap().request_many(2).unwrap();
    let Err(error) = eight.owned_by(&owner).unwrap().acquire() else { panic!("the wait is of five") };
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    held.unlock().unwrap();
    let two = granted(request);
    let again = eight.owned_by(&owner).unwrap().acquire().unwrap();
    assert_eq!(again.token(), two.token(), "a re-entry by any number");
    drop((two, again));
    until("all are given back", || five.admin().inspect().unwrap().taken() == 0);
    harness.assert_nothing_is_left("wait");
}

/// Each call is its own owner, unless the handle has one: then as many or fewer are a re-entry.
pub fn permits_are_re_entrant_for_an_explicit_owner_only(harness: &impl Harness) {
    let client = client(harness);
    if !is_kept(harness, LockKind::Semaphore { permits: 5 }) {
        return;
    }
    let shared = client.semaphore("owner", 5).unwrap();
    let owned = shared.owned_by(&client.new_owner()).unwrap();
    let two = owned.acquire_many(2).unwrap();
    let again = owned.try_acquire().unwrap().granted().unwrap();
    assert_eq!((again.token(), shared.admin().inspect().unwrap().taken()), (two.token(), 2));
    assert!(matches!(owned.acquire_many(3), Err(Error::Misuse { .. })));
    let (one, other) = (shared.acquire().unwrap(), shared.acquire().unwrap());
    assert!(one.owner() != other.owner() && shared.admin().inspect().unwrap().taken() == 4);
    two.unlock().unwrap();
    assert_eq!(shared.admin().inspect().unwrap().taken(), 4, "the inner guard keeps both");
    again.unlock().unwrap();
    assert_eq!(shared.admin().inspect().unwrap().taken(), 2);
    drop((one, other));
    until("all are given back", || shared.admin().inspect().unwrap().taken() == 0);
    harness.assert_nothing_is_left("owner");
}

/// Its permits are free at once, and its waiters are in nobody's way.
pub fn a_client_that_ends_gives_all_its_permits_back(harness: &impl Harness) {
    let Some([other]) = semaphores(harness, "end", 4) else { return };
    let leaver = client(harness);
    let leaves = leaver.semaphore("end", 4).unwrap();
    let (one, two) = (leaves.acquire().unwrap(), leaves.acquire_many(2).unwrap());
    let (large, small) = (leaves.request_many(4).unwrap(), other.request().unwrap());
    assert_waits(&small, 1);
    leaver.shutdown().unwrap();
    assert!(one.is_lost() && two.is_lost());
    assert!(matches!(large.wait(), Err(Error::Shutdown { .. })));
    let small = granted(small);
    let rest = other.try_acquire_many(3).unwrap().granted().expect("three are free");
    rest.unlock().unwrap();
    small.unlock().unwrap();
    drop((one, two));
    harness.assert_nothing_is_left("end");
}
