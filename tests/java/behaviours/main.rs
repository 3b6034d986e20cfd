//! The behaviours that Redisson's own lock tests show, and no conformance case: `tests/README.md` lists both.

mod crowds;
mod outages;

use std::time::Duration;

use fairlock::{Discipline, RedisBackend};
use fairlock_tests::RedisServer;
use fairlock_tests::locks::response_timeout_for;

/// The default lease of the clients.
const LEASE: Duration = Duration::from_secs(30);
/// The limit for anything immediate, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A new backend, as in another process, for clients with this lease, which may be short.
fn backend(server: &RedisServer, lease: Duration) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson);
    builder.response_timeout(response_timeout_for(lease)).connect().unwrap()
}
