//! Clients of discipline `HandOff` with short times.

use std::time::{Duration, Instant};

use fairlock::settings::Discipline;
use fairlock::{Client, Guard, RedisBackend};
use fairlock_tests::server_state::queue;
use fairlock_tests::{RedisServer, eventually};

/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late a timed event may be, on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// The lease here.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Each answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn client(url: &str) -> Client {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff);
    let backend = backend.connect_timeout(ANSWER).response_timeout(ANSWER).connect().unwrap();
    Client::builder(backend).lease(LEASE).place_ttl(LEASE).outage_limit(2 * ANSWER).build().unwrap()
}

/// Waits until the guard is lost. Returns how long after `since` it was last seen valid: on a busy machine the look that finds the
/// loss may come late, and the guard counts without it.
pub(crate) fn believed_for(guard: &Guard, since: Instant) -> Duration {
    let mut believed = Duration::ZERO;
    eventually("the guard is lost", || {
        let at = since.elapsed();
        let is_lost = guard.is_lost();
        if !is_lost {
            believed = at;
        }
        is_lost
    });
    believed
}

/// Waits until the queue is empty and the lock is free.
pub(crate) fn until_free(server: &RedisServer, name: &str) {
    eventually("all is given back", || {
        queue(server, name).is_empty() && !server.query::<bool>(&["EXISTS", name])
    });
}
