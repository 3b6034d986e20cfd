//! Clients of discipline `HandOff`, and queries of the server.

use std::collections::BTreeMap;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use fairlock::Client;
use fairlock::settings::Discipline;
#[cfg(feature = "night")]
pub(crate) use fairlock_tests::locks::granted;
pub(crate) use fairlock_tests::locks::{patient, request, served, take_soon as take};
use fairlock_tests::server_state::all_calls;
pub(crate) use fairlock_tests::server_state::scripts_run;
pub(crate) use fairlock_tests::{CleanServer, Proxy, RedisServer, eventually};

/// The limit for anything immediate, on a busy machine.
#[cfg(feature = "night")]
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A place's time to live for tests without heartbeats.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A client without heartbeats during the test.
pub(crate) fn client(url: &str) -> Client {
    with_places(url, LONG)
}

/// Its places live this long.
pub(crate) fn with_places(url: &str, place_ttl: Duration) -> Client {
    let backend = patient(url).discipline(Discipline::HandOff).connect().unwrap();
    // A look at a slow wait is a script, and tests count those.
    Client::builder(backend).place_ttl(place_ttl).lease(LONG).slow_wait(LONG).build().unwrap()
}

/// A turn of the lock for a new owner; it is free soon.
#[track_caller]
pub(crate) fn a_turn(client: &Client, name: &str) {
    take(client, name).unlock().unwrap();
}

/// The commands that the server executes meanwhile, including those in scripts. Pings come at any time, and INFO is ours.
pub(crate) fn calls_in<T>(server: &RedisServer, what: impl FnOnce() -> T) -> (T, BTreeMap<String, u64>) {
    let before = all_calls(server);
    let result = what();
    let mut calls = all_calls(server);
    calls.iter_mut().for_each(|(name, n)| *n -= before.get(name).unwrap_or(&0));
    calls.retain(|name, n| *n > 0 && name != "ping" && name != "info");
    (result, calls)
}

/// Waits for a thread, with a limit.
#[track_caller]
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    eventually("the thread ends", || thread.is_finished());
    thread.join().unwrap()
}
