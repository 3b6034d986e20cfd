//! The server that all tests share, with a database for each; and PgBouncer in front of it.

use std::sync::LazyLock;

use fairlock_tests::{PgBouncer, PostgresServer};

pub(crate) static SERVER: LazyLock<&PostgresServer> = LazyLock::new(PostgresServer::shared);

/// The URL of a new database with fairlock's tables.
pub(crate) fn new_database() -> String {
    SERVER.new_database()
}

/// The same database through a PgBouncer in transaction mode.
pub(crate) fn pooled(url: &str) -> String {
    static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| PgBouncer::start(&SERVER));
    url.replace(&SERVER.address(), &POOLER.address())
}
