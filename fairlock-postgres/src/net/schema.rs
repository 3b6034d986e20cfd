//! The tables: makes them, and says which clients may use them, by the number of their layout (`docs/versions.md`). Connecting changes
//! nothing; migrating is asked for.
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

use std::time::{Duration, Instant};

use fairlock_core::backend::BackendErrorKind;

use super::address::Address;
use super::connection::Connection;
use super::failure::{Failure, identifier};
use super::statement::Statement;

/// The layout that this version writes.
pub(crate) const LAYOUT: i32 = 1;

const SQL: &str = include_str!("../../sql/schema.sql");

/// Two clients that migrate at the same moment would fail, so they take turns. DDL waits for old transactions, and later transactions
/// wait behind the DDL: so the DDL gives up soon.
const BEGIN: &str = "begin isolation level read committed; set local lock_timeout = '2s'";
const FIRST: &str = "select pg_advisory_xact_lock(7378700441894417)";
const RIGHTS: &str = include_str!("../../sql/rights.sql");

/// The longest lease where a crash of the server forgets what was done last: it grants nothing for this time afterwards.
pub(crate) const LONGEST_UNSYNCED: Duration = Duration::from_secs(30);

/// What `migrate` runs, for a transaction of another program, which keeps its own time-outs; and the rights that `migrate` does not
/// give, for those whose roles may not.
pub(crate) fn script() -> String {
    format!("{FIRST};\n{SQL}{RIGHTS}")
}

/// Makes the tables, or brings them to this version's layout, in one transaction. Does nothing if the tables are up to date: even
/// DDL without effect waits for each transaction on the tables, and all later ones wait behind.
pub(crate) fn migrate(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    match migrate_on(con, deadline) {
        Err(failure) if failure.has_code(&["55P03"]) => {
            let message = "another transaction uses fairlock's tables, or makes them, for more than 2 s: try again when it has ended";
            Err(Failure::broken(message))
        }
        // The SQL makes what is missing, but for parts of what is there.
        Err(failure) if failure.is_of_missing_table() => {
            let message = "the schema `fairlock` has a table or a function that lacks something that fairlock's own has: it is another \
                           program's, or half restored; drop it, or use another database";
            Err(Failure::invalid(message))
        }
        done => done,
    }
}

fn migrate_on(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    con.script(&format!("{BEGIN}; {FIRST}"), deadline)?;
    let there = "select to_regclass('fairlock.meta') is not null";
    if con.row(Statement::new(there, []), deadline)?.flag(0)? {
        let rows = con.flight(&[Statement::new("select layout from fairlock.meta", [])], deadline)?;
        let layout = rows.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| row.count(0))?;
        if layout >= LAYOUT {
            return if layout > LAYOUT { Err(newer(layout)) } else { Ok(()) };
        }
    }
    con.script(SQL, deadline).map_err(|failure| match failure.has_code(&["42501"]) {
        true => failure.advising(who_may(con)),
        false => failure,
    })?;
    con.script("commit", deadline)
}

/// Who may make the tables.
fn who_may(con: &Connection) -> String {
    let Address { user, database, .. } = &con.address;
    let [to, database] = [user, database].map(|name| identifier(name));
    format!(
        "user {user} may not make fairlock's tables (`grant create on database {database} to {to}`); another user may run what \
         `fairlock migrate --print` prints"
    )
}

/// Looks whether this client may use the tables.
///
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

fn newer(layout: i32) -> Failure {
    let message = format!(
        "the database has layout {layout} of fairlock's tables, and this version knows them up to {LAYOUT}: use a newer version of \
         fairlock"
    );
    Failure::new(BackendErrorKind::Unsupported, message)
}
