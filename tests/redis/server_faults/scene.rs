//! A lock that one client holds and another one wants, and what becomes of both when the server fails.

use std::time::{Duration, Instant};

use fairlock::{Client, OwnedGuard, OwnedRequest, Result, TryLock};
use fairlock_tests::{RedisServer, eventually};

use crate::support::{
    LEASE, SLACK, SOON, assert_loses, assert_within, client, granted, heartbeat_bound, request, take,
};

/// Two clients, of which the first holds the lock and the second waits for it.
pub(crate) fn held_and_wanted(
    server: &RedisServer,
    name: &str,
) -> (Client, Client, OwnedGuard, OwnedRequest) {
    let (holder, waiter) = (client(server), client(server));
    let guard = take(&holder, name);
    let waiting = request(&waiter, name);
    (holder, waiter, guard, waiting)
}

/// The hold ends, and not after the server's lease.
#[track_caller]
pub(crate) fn ends_on_time(server: &RedisServer, guard: &OwnedGuard) {
    let began = Instant::now();
    eventually("the hold is lost", || {
        let over = server.query::<i64>(&["PTTL", guard.name()]) < 0; // first, since the guard may end earlier
        assert!(!over || guard.valid_for().is_zero(), "the server's lease ended before ours");
        guard.is_lost()
    });
    assert_within(began, LEASE + SLACK, "the verdict");
}

/// The lock was gone at `since`: the waiter has it in time, with a greater token, and the holder is told in time.
#[track_caller]
pub(crate) fn recovers(guard: OwnedGuard, waiting: OwnedRequest, since: Instant, rest: Duration) {
    let later = granted(waiting, SOON);
    assert_within(since, heartbeat_bound() + rest, "the grant");
    assert!(later.token() > guard.token());
    assert_loses(guard, since);
    assert!(!later.is_lost());
    later.unlock().unwrap();
}

/// A fair lock, asked for once by a new owner.
pub(crate) fn try_once(client: &Client, name: &str) -> Result<TryLock<OwnedGuard>> {
    client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().try_lock()
}
