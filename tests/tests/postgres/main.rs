//! The PostgreSQL store against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod histories;
mod standby;

use std::time::Duration;

use fairlock::{Client, PostgresBackend, TryLock};
use fairlock_tests::PostgresServer;

fn connect(server: &PostgresServer) -> Client {
    Client::new(PostgresBackend::connect(&server.url()).unwrap()).unwrap()
}

#[test]
fn a_lock_is_held_over_a_restart_of_the_server() {
    let server = PostgresServer::builder().start();
    let client = connect(&server);
    let guard = client.fair_lock("x").unwrap().lock().unwrap();
    server.restart();
    let other = connect(&server);
    assert!(matches!(other.fair_lock("x").unwrap().try_lock().unwrap(), TryLock::Busy));
    guard.unlock().unwrap();
    let lock = other.fair_lock("x").unwrap();
    assert!(matches!(lock.try_lock_for(Duration::from_secs(5)).unwrap(), TryLock::Granted(_)));
}
