//! The number of the tables' layout, and which clients may use the tables (`docs/versions.md`).
//!
//! `least_client` is the oldest layout whose clients may write to the tables:
//!
//! | the database has | the client |
//! | --- | --- |
//! | no layout, or an older one | refuses, and names the command that helps |
//! | its own layout | works |
//! | a newer layout that the client's layout may still write to | works |
//! | a newer layout that the client's layout may not write to | refuses |
//!
//! A migration that raises `least_client` gives `fairlock.lock` another name: so the next statement of each client that is connected
//! fails, and the client looks at the number ([`explained`]).

use std::time::Instant;

use fairlock_core::backend::BackendErrorKind;

use super::connection::Connection;
use super::failure::Failure;
use super::statement::Statement;

/// The layout that this version writes.
pub(crate) const LAYOUT: i32 = 1;

/// # Errors
/// `InvalidConfig` if the tables have to be migrated first, `Unsupported` if a newer version has made them.
pub(crate) fn check(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    let sql = "select layout, least_client from fairlock.meta";
    let rows = con.flight(&[Statement::new(sql, [])], deadline)?;
    let Some(row) = rows.first().and_then(|rows| rows.first()) else {
        let what = "the table fairlock.meta has no row, which names the layout: `fairlock migrate --postgres URL` writes it, or \
                    PostgresBackend::migrate";
        return Err(Failure::invalid(what));
    };
    let (layout, least_client) = (row.count(0)?, row.count(1)?);
    if layout < LAYOUT {
        return Err(Failure::invalid(format!(
            "the database has layout {layout} of fairlock's tables, and this version needs {LAYOUT}: run `fairlock migrate \
             --postgres URL`, or the backend's `migrate`"
        )));
    }
    if least_client > LAYOUT {
        return Err(newer(layout));
    }
    Ok(())
}

/// The failure of a statement. If that has found no table, a newer version may have migrated the tables since this client connected.
pub(super) fn explained(con: &mut Connection, failure: Failure, deadline: Instant) -> Failure {
    if !failure.is_of_missing_table() {
        return failure;
    }
    let asked = con.script("rollback", deadline).and_then(|()| check(con, deadline));
    asked.err().filter(|why| why.kind == BackendErrorKind::Unsupported).unwrap_or(failure)
}

pub(crate) fn newer(layout: i32) -> Failure {
    let message = format!(
        "the database has layout {layout} of fairlock's tables, and this version knows them up to {LAYOUT}: use a newer version of \
         fairlock"
    );
    Failure::new(BackendErrorKind::Unsupported, message)
}
