//! What a request's receiver reports when its claim fails and the request continues with another; and grants of requests
//! that no claim knows.

use std::time::Duration;

use fairlock::backend::{Acquire, Acquired, Backend, LockId, Place, RequestId};
use fairlock::crossbeam_channel::TryRecvError;
use fairlock::{LockKind, LockName, OwnerId};
use fairlock_tests::eventually;

use crate::support::World;

/// The longest wait for a message.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn the_receiver_reports_each_grant_even_if_the_first_was_lost_untaken() {
    let world = World::new();
    let (ours, theirs) = (world.client(), world.client());
    let (mine, other) = (ours.fair_lock("twice").unwrap(), theirs.fair_lock("twice").unwrap());
    let guard = other.lock().unwrap();
    let mut waiting = mine.request().unwrap();
    guard.unlock().unwrap();
    waiting.decided().recv_timeout(SOON).unwrap();
    // The grant was not taken by the caller, and is then taken away.
    assert!(other.force_unlock().unwrap());
    let guard = other.lock().unwrap();
    assert!(waiting.wait_for(Duration::ZERO).unwrap().guard().is_none());
    assert_eq!(waiting.decided().try_recv(), Err(TryRecvError::Empty), "a `select!` would spin");
    guard.unlock().unwrap();
    waiting.decided().recv_timeout(SOON).unwrap();
    waiting.wait().unwrap().unlock().unwrap();
}

/// The ask of a request that was withdrawn arrives at the server after the withdrawal: no caller waits for its grant.
#[test]
fn a_grant_of_a_request_that_nobody_knows_is_given_back() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let lock = other.fair_lock("stray").unwrap();
    let guard = lock.lock().unwrap();
    let id = LockId::new(LockName::new("stray").unwrap(), LockKind::Fair);
    let owner = OwnerId::new(&format!("{}:77", client.id()));
    let ask = Acquire::new(Place::new(&id, &owner, RequestId::new(7)), Duration::from_secs(30));
    assert!(matches!(world.store.acquire(&ask).unwrap(), Acquired::Queued { .. }));
    guard.unlock().unwrap(); // handed to the stray request, and its client is told
    // The clock stands still: no lease ends.
    eventually(SOON, "the lock is free", || lock.inspect().unwrap().holder().is_none());
    assert_eq!(client.stats().wake_ups_ignored, 1);
}
