//! The whole conformance suite, on a server of this test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock_core::backend::Backend;
use fairlock_core::conformance::{Harness, Promise};
use fairlock_core::{Clock, LockKind, LockName};

use crate::PostgresBackend;
use crate::net::{Statement, Value};

/// The URL of the server: that of the environment.
fn url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let url = std::env::var("FAIRLOCK_TEST_POSTGRES").expect("FAIRLOCK_TEST_POSTGRES names a database");
        PostgresBackend::migrate(&url).unwrap();
        url
    })
}

struct Database;

impl Harness for Database {
    fn new() -> Self {
        Database
    }

    fn kind(&self) -> LockKind {
        LockKind::Fair
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(PostgresBackend::connect(url()).unwrap())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        let backend = PostgresBackend::connect(url()).unwrap();
        let (store, name) = (&backend.0.store, LockName::new(name).unwrap());
        store.step(&name, store.pool.deadline(), |entry, _| entry.lose_hold()).unwrap();
    }

    fn promises(&self, _: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let backend = PostgresBackend::connect(url()).unwrap();
        let pool = &backend.0.store.pool;
        let sql = "select count(*) from fairlock.lock where name = $1 and (state <> '' or h_owner is not null)";
        let statement = [Statement::new(sql, [Value::Bytes(name.as_bytes())])];
        let deadline = pool.deadline();
        let rows = pool.lend(deadline, |con| con.flight(&statement, deadline)).unwrap();
        assert_eq!(rows[0][0].number(0).unwrap(), 0, "more than the last number is left of {name}");
    }
}

mod suite {
    fairlock_core::conformance_tests!(super::Database);
}
