//! Clients with short times, and the bounds that follow from them.

use std::time::{Duration, Instant};

use fairlock::settings::{ClientBuilder, Discipline};
use fairlock::{Client, RedisBackend};
pub(crate) use fairlock_tests::locks::{granted, request, take_soon as take};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

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

#[track_caller]
pub(crate) fn assert_within(start: Instant, bound: Duration, what: &str) {
    let took = start.elapsed();
    assert!(took <= bound, "{what} took {took:?}, {bound:?} are allowed");
}

/// For servers that were gone or silent. A request that its client gave up may be executed later, even after the
/// release of its repeat. Its effect ends by itself: a hold with its lease, a place like that of a dead waiter.
#[track_caller]
pub(crate) fn assert_nothing_is_left_but_late_places(server: &RedisServer, allow: &[&str]) {
    let ours = |key: &String| !key.starts_with("fairlock_") && !key.starts_with("filler");
    eventually("no hold is left", || !server.query::<Vec<String>>(&["KEYS", "*"]).iter().any(ours));
    assert_no_residue(server, &[allow, &["fairlock_queue:*", "fairlock_record:*"]].concat());
}
