//! Clients whose calls are answered, and whose leases and places last, however busy the machine is.

use std::time::Duration;

use fairlock::settings::{ClientBuilder, RedisBuilder};
use fairlock::{Client, RedisBackend};
use fairlock_tests::RedisServer;
pub(crate) use fairlock_tests::locks::{granted, request, take_soon as take};

/// The limit for anything immediate, and what a place lives.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn builder(backend: RedisBuilder) -> ClientBuilder {
    Client::builder(backend.connect().unwrap()).lease(4 * SOON).place_ttl(SOON).outage_limit(SOON)
}

pub(crate) fn client(server: &RedisServer) -> Client {
    patient(RedisBackend::builder(&server.url()))
}

pub(crate) fn patient(backend: RedisBuilder) -> Client {
    builder(backend.connect_timeout(SOON).response_timeout(SOON)).build().unwrap()
}
