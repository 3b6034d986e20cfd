//! A restart of the server with all its data.

use std::time::Duration;

use fairlock::RedisBackend;
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::server_state::{listeners, queue};
use fairlock_tests::{CleanServer, Proxy, RedisServer, eventually};

use super::support::*;

/// D4. `kill -9` loses nothing that the server acknowledged: the hold, and the queue. The clients are back one by one: until then
/// nobody passes over a waiter whose client is not back. (Only a power loss would show the effect of `appendfsync`.)
#[test]
fn a_restart_with_data_passes_over_no_waiter() {
    let server = CleanServer::of(RedisServer::builder().arg("appendonly", "yes"))
        .allow(&["fairlock_queue:*", "fairlock_record:*"]);
    let proxy = Proxy::start(server.port());
    let (holder, quick) = (client(&server), client(&server));
    // What the proxy swallows is soon sent again.
    let slow = RedisBackend::builder(&proxy.url()).response_timeout(Duration::from_secs(1));
    let slow = builder(slow).build().unwrap();
    let guard = take(&holder, "kept");
    let [first, second] = [&slow, &quick].map(|client| request(client, "kept"));
    let places = queue(&server, "kept");
    let all = [Traffic::Commands, Traffic::Subscriptions];
    proxy.set_all(&all, Rule::Swallow);
    server.restart();
    eventually("the holder has reconnected", || guard.renew().is_ok());
    assert!(!guard.is_lost());
    eventually("the subscriptions of the others are back", || listeners(&server) == 2);
    assert_eq!(queue(&server, "kept"), places);
    guard.unlock().unwrap();
    assert_eq!(queue(&server, "kept"), places[1..], "the first has the lock");
    proxy.set_all(&all, Rule::Pass);
    granted(first, SOON).unlock().unwrap();
    granted(second, SOON).unlock().unwrap();
    assert_eq!(slow.stats().places_lost, 0);
    // Of waiters that have come since the server knows which are gone.
    eventually("all are back", || listeners(&server) == 3);
    // Its subscription may be back before the client knows that it hears; until then it asks as a client that no message reaches.
    eventually("the slow client hears messages", || {
        let (held, polled) = (take(&holder, "other"), slow.stats().granted_by_polling);
        let waits = request(&slow, "other");
        held.unlock().unwrap();
        granted(waits, SOON).unlock().unwrap();
        slow.stats().granted_by_polling == polled
    });
    let guard = take(&holder, "kept");
    let (gone, live) = (request(&slow, "kept"), request(&quick, "kept"));
    proxy.set_all(&all, Rule::Swallow);
    proxy.cut();
    eventually("the server sees that the waiter is gone", || listeners(&server) == 2);
    guard.unlock().unwrap();
    granted(live, SOON).unlock().unwrap();
    proxy.set_all(&all, Rule::Pass);
    drop(gone);
}
