//! Clients with short times, and the bounds that follow from them.

use std::time::{Duration, Instant};

use fairlock::{Client, ClientBuilder, Discipline, OwnedGuard, OwnedRequest, RedisBackend};
pub(crate) use fairlock_tests::locks::{granted, request, take_soon as take};
pub(crate) use fairlock_tests::{Alone, CleanServer, RedisServer, assert_no_residue, eventually};

/// The program of worker processes.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const PLACE: Duration = Duration::from_millis(1500);
/// The limit for an answer or a connection.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);
/// How late a timed event may be, on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// A holder learns of a loss by its next renewal: after a third of the lease, plus an answer.
pub(crate) fn renewal_bound() -> Duration {
    LEASE / 3 + ANSWER + SLACK
}

/// A waiter finds out by its next heartbeat, and then asks.
pub(crate) fn heartbeat_bound() -> Duration {
    PLACE / 3 + ANSWER + SLACK
}

pub(crate) fn builder(url: &str) -> ClientBuilder {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff);
    let backend = backend.connect_timeout(ANSWER).response_timeout(ANSWER).connect().unwrap();
    Client::builder(backend).lease(LEASE).place_ttl(PLACE).outage_limit(Duration::from_secs(20))
}

pub(crate) fn client(server: &RedisServer) -> Client {
    builder(&server.url()).build().unwrap()
}

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

#[track_caller]
pub(crate) fn assert_within(start: Instant, bound: Duration, what: &str) {
    let took = start.elapsed();
    assert!(took <= bound, "{what} took {took:?}, {bound:?} are allowed");
}

/// The hold ends, and not after the server's lease.
#[track_caller]
pub(crate) fn ends_on_time(server: &RedisServer, guard: &OwnedGuard) {
    let began = Instant::now();
    eventually(LEASE + SLACK, "the hold is lost", || {
        let over = server.query::<i64>(&["PTTL", guard.name()]) < 0; // first, since the guard may end earlier
        assert!(!over || guard.valid_for().is_zero(), "the server's lease ended before ours");
        guard.is_lost()
    });
    assert_within(began, LEASE + SLACK, "the verdict");
}

/// The holder learns in time that its lock was gone at `since`, and can't release the next hold.
#[track_caller]
pub(crate) fn assert_loses(guard: OwnedGuard, since: Instant) {
    let left = (since + renewal_bound()).saturating_duration_since(Instant::now());
    eventually(left, "the holder learns that its hold is lost", || guard.is_lost());
    assert!(guard.valid_for().is_zero());
    assert!(guard.unlock().is_err());
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
pub(crate) fn try_once(client: &Client, name: &str) -> fairlock::Result<fairlock::TryLock<OwnedGuard>> {
    client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().try_lock()
}

/// For servers that were gone or silent. A request that its client gave up may be executed later, even after the
/// release of its repeat. Its effect ends by itself: a hold with its lease, a place like that of a dead waiter.
#[track_caller]
pub(crate) fn assert_nothing_is_left_but_late_places(server: &RedisServer, allow: &[&str]) {
    let ours = |key: &String| !key.starts_with("fairlock_") && !key.starts_with("filler");
    eventually(LEASE + SOON, "no hold is left", || {
        !server.query::<Vec<String>>(&["KEYS", "*"]).iter().any(ours)
    });
    assert_no_residue(server, &[allow, &["fairlock_line:*", "fairlock_record:*"]].concat());
}
