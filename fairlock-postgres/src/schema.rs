//! Makes the tables in the database. Connecting changes nothing; migrating is asked for.

use std::time::{Duration, Instant};

use crate::net::address::Address;
use crate::net::{Connection, Failure, LAYOUT, Statement, identifier, newer};

const SQL: &str = include_str!("../sql/schema.sql");

/// Two clients that migrate at the same moment would fail, so they take turns. DDL waits for old transactions, and later transactions
/// wait behind the DDL: so the DDL gives up soon.
const BEGIN: &str = "begin isolation level read committed; set local lock_timeout = '2s'";
const FIRST: &str = "select pg_advisory_xact_lock(7378700441894417)";
const RIGHTS: &str = include_str!("../sql/rights.sql");

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
