//! Clients with short times, and the bounds that follow from them.

use std::time::{Duration, Instant};

use fairlock::{Client, ClientBuilder, Discipline, OwnedGuard, RedisBackend};
pub(crate) use fairlock_tests::locks::{granted, request};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

/// The program of worker processes.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const PLACE: Duration = Duration::from_millis(1500);
/// How long an answer, or a connection, may take.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);
/// How late something may be that has its time, on a machine with other things to do.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// The most that a thing takes which needs no time of its own, on such a machine.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// A holder is told of a loss by his next renewal: it comes after a third of the lease, and takes an answer.
pub(crate) fn renewal_bound() -> Duration {
    LEASE / 3 + ANSWER + SLACK
}

/// A waiter finds out by himself by his next heartbeat, and then asks.
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

/// The lock for an owner of its own, who is to have it soon.
#[track_caller]
pub(crate) fn take(client: &Client, name: &str) -> OwnedGuard {
    let lock = client.fair_lock(name).unwrap();
    lock.try_lock_for_as(&client.new_owner(), SOON).unwrap().expect("it is free soon")
}

#[track_caller]
pub(crate) fn assert_within(start: Instant, bound: Duration, what: &str) {
    let took = start.elapsed();
    assert!(took <= bound, "{what} took {took:?}, {bound:?} are allowed");
}

/// A holder whose lock has gone at `since` hears of it in time, and can't give back what is another's.
#[track_caller]
pub(crate) fn assert_loses(guard: OwnedGuard, since: Instant) {
    let left = (since + renewal_bound()).saturating_duration_since(Instant::now());
    eventually(left, "the holder is told that his hold is lost", || guard.is_lost());
    assert!(guard.valid_for().is_zero());
    assert!(guard.unlock().is_err());
}

/// For servers that were gone or silent: a question that its client gave up may be carried out afterwards, even after the
/// release of what a repeat of it got. What it takes then ends by itself: a hold with its lease, a place as the dead's do.
#[track_caller]
pub(crate) fn assert_nothing_is_left_but_late_places(server: &RedisServer, allow: &[&str]) {
    let ours = |key: &String| !key.starts_with("fairlock_") && !key.starts_with("filler");
    eventually(LEASE + SOON, "no hold is left", || {
        !server.query::<Vec<String>>(&["KEYS", "*"]).iter().any(ours)
    });
    assert_no_residue(server, &[allow, &["fairlock_queue:*", "fairlock_places:*"]].concat());
}
