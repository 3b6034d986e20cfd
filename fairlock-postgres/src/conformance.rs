//! The whole conformance suite, each case on a database for itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock_core::backend::{Backend, ForceReleased};
use fairlock_core::conformance::{Harness, Promise};
use fairlock_core::{Clock, LockKind, LockName};
use fairlock_line::{LockEntry, Turn};

use crate::PostgresBackend;
use crate::net::{Statement, Value};
use crate::test_server::new_database;

struct Database(String);

impl Database {
    fn connect(&self) -> PostgresBackend {
        PostgresBackend::connect(&self.0).unwrap()
    }
}

impl Harness for Database {
    fn new() -> Self {
        Database(new_database())
    }

    fn kind(&self) -> LockKind {
        LockKind::Fair
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.connect())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        let (backend, name) = (self.connect(), LockName::new(name).unwrap());
        let store = &backend.0.store;
        let lose = |entry: &mut LockEntry, _: &mut Turn<'_>| {
            entry.lose_hold();
            ForceReleased::Taken
        };
        store.step(&name, store.pool.deadline(), lose).unwrap();
    }

    fn promises(&self, _: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let backend = self.connect();
        let pool = &backend.0.store.pool;
        let sql =
            "select count(*) from fairlock.lock where name = $1 and (state <> '' or h_owner is not null)";
        let statement = [Statement::new(sql, [Value::Bytes(name.as_bytes())])];
        let deadline = pool.deadline();
        let rows = pool.lend(deadline, |con| con.flight(&statement, deadline)).unwrap();
        assert_eq!(rows[0][0].number(0).unwrap(), 0, "more than the last number is left of {name}");
    }
}

mod suite {
    fairlock_core::conformance_tests!(super::Database);
}
