//! What an operator sees of a lock, and which waiters count.

use fairlock_core::backend::{Acquire, Acquired, Waiter, only};
use fairlock_core::{Lock, Owner, OwnerId, Request};

use super::{DEAD, Harness, LEASE, Promise, SLACK, client, lock, lock_of, until, until_in_queue};
use crate::requests::Bench;

/// Waiters in the order of the queue. Each has its own client, and so its own heartbeats.
fn stand_in_queue(harness: &impl Harness, name: &str, n: usize) -> Vec<(Lock, Owner, Request<Owner>)> {
    let waiters = (0..n).map(|_| {
        let client = client(harness);
        let (lock, owner) = (lock_of(harness, &client, name), client.new_owner());
        let request = lock.owned_by(&owner).unwrap().request().unwrap();
        (lock, owner, request)
    });
    waiters.collect()
}

/// The length is the whole queue's, and a part beyond the end is empty.
pub fn inspect_reads_the_part_of_the_queue_that_is_asked_for(harness: &impl Harness) {
    let ours = lock(harness, "long");
    let guard = ours.lock().unwrap();
    let waiters = stand_in_queue(harness, "long", 5);
    until_in_queue(harness, &ours, 5);
    let whole = if harness.promises(Promise::Order) { waiters.as_slice() } else { &[] };
    for part in [0..0, 0..1, 1..3, 3..100, 4..5, 5..6, 7..9, 2..2, 100..u64::MAX, u64::MAX..u64::MAX] {
        let state = ours.admin().inspect_queue(part.clone()).unwrap();
        assert_eq!(state.holder().cloned().unwrap().owner, *guard.owner());
        assert_eq!(state.queue_length, whole.len() as u64, "{part:?}");
        let seen = state.queue.iter().map(|waiter| &waiter.owner);
        let there =
            (0..).zip(whole).filter(|(rank, _)| part.contains(rank)).map(|(_, (_, owner, _))| owner.id());
        assert!(seen.eq(there), "{part:?}: {:?}", state.queue);
    }
    drop(waiters);
    guard.unlock().unwrap();
    // A withdrawal may still run in the background.
    until("all have left", || {
        let state = ours.admin().inspect().unwrap();
        state.holder().is_none() && state.queue_length == 0
    });
    harness.assert_nothing_is_left("long");
}

/// Waiters that nothing renews, behind a live one and its holder; and on a lock whose queue no call has come to since.
pub fn an_absent_waiter_is_marked_and_not_counted(harness: &impl Harness) {
    if !harness.promises(Promise::Order) || !harness.promises(Promise::DeadWaitersArePassedOver) {
        return;
    }
    let ours = lock(harness, "used");
    let guard = ours.lock().unwrap();
    let alive = lock(harness, "used").request().unwrap();
    let used = Bench::new(harness, "used");
    (0..3).for_each(|number| drop(dies_in_queue(&used, number)));
    harness.pass(2 * DEAD);
    until("only the live one counts", || {
        let state = ours.admin().inspect().unwrap();
        let (alive, dead) = state.queue.split_first().unwrap();
        !alive.is_absent() && dead.iter().all(Waiter::is_absent) && (state.waiting(), state.absent) == (1, 3)
    });
    drop(alive);
    guard.unlock().unwrap();

    // The holder dies as well, and nobody comes. What the last call knew of the time is all that the queue has.
    let idle = Bench::new(harness, "idle");
    idle.token(&idle.owner(), 100);
    (0..3).for_each(|number| drop(dies_in_queue(&idle, number)));
    harness.pass(LEASE + SLACK);
    let state = lock(harness, "idle").admin().inspect().unwrap();
    assert_eq!((state.holders.len(), state.waiting(), state.queue_length), (0, 0, state.absent), "{state:?}");
    assert!(state.queue.iter().all(Waiter::is_absent), "{state:?}");
}

/// A place without a client that renews it.
fn dies_in_queue(bench: &Bench, request: u64) -> OwnerId {
    let owner = bench.owner();
    let mut place = bench.place(&owner, request);
    place.ttl = DEAD;
    let asked = only(bench.backend.acquire(&[Acquire::new(place, LEASE)])).unwrap();
    assert!(matches!(asked, Acquired::Queued { .. }), "{asked:?}");
    owner
}
