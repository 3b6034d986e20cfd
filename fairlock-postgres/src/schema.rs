//! The tables in the database: their layout is a number. Connecting changes nothing; migrating is asked for.
//!
//! `least_client` is the oldest layout whose clients may write to the tables:
//!
//! | the database has | the client |
//! | --- | --- |
//! | no layout, or an older one | refuses, and names the command that helps |
//! | its own layout | works |
//! | a newer layout that the client's layout may still write to | works |
//! | a newer layout that the client's layout may not write to | refuses |

use std::time::{Duration, Instant};

use crate::net::address::Address;
use crate::net::{Connection, Failure, Statement, identifier};

/// The layout that this version writes.
pub(crate) const LAYOUT: i32 = 1;
const SQL: &str = include_str!("../sql/schema.sql");

/// Two clients that migrate at the same moment would fail, so they take turns. DDL waits for old transactions, and later transactions
/// wait behind the DDL: so the DDL gives up soon.
const BEGIN: &str = "begin isolation level read committed; set local lock_timeout = '2s'";
const FIRST: &str = "select pg_advisory_xact_lock(7378700441894417)";
const RIGHTS: &str = include_str!("../sql/rights.sql");

/// The longest lease where a crash of the server forgets what was done last: it grants nothing for this time afterwards.
pub(crate) const LONGEST_UNSYNCED: Duration = Duration::from_secs(30);

/// # Errors
/// `InvalidConfig` if this version can't use the tables that are there.
pub(crate) fn check(con: &mut Connection, deadline: Instant) -> Result<(), Failure> {
    let sql = "select layout, least_client from fairlock.meta";
    let rows = con.flight(&[Statement::new(sql, [])], deadline)?;
    let Some(row) = rows.first().and_then(|rows| rows.first()) else {
        return Err(Failure::invalid("the table fairlock.meta has no row: it names the layout"));
    };
    let (layout, least_client) = (row.count(0)?, row.count(1)?);
    if layout < LAYOUT {
        return Err(Failure::invalid(format!(
            "the database has layout {layout} of fairlock's tables, and this version needs {LAYOUT}: run `fairlock migrate \
             --postgres URL`, or call PostgresBackend::migrate"
        )));
    }
    if least_client > LAYOUT {
        return Err(newer(layout));
    }
    Ok(())
}

/// What `migrate` runs, and the rights that it does not give, for those whose roles may not.
pub(crate) fn script() -> String {
    format!("{BEGIN};\n{FIRST};\n{SQL}\ncommit;\n{RIGHTS}")
}

/// The SQL for a transaction of another program, which keeps its own time-outs.
pub(crate) fn script_in_transaction() -> String {
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

fn newer(layout: i32) -> Failure {
    Failure::invalid(format!(
        "the database has layout {layout} of fairlock's tables, and this version knows them up to {LAYOUT}: use a newer version of \
         fairlock"
    ))
}
