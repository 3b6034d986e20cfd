//! The table of PostgreSQL does in SQLite, too.

use fairlock::FencingToken;
use rusqlite::{Result, Transaction};

use crate::Fence;

/// The greatest token of each resource.
pub const TABLE: &str = "CREATE TABLE fence (resource text PRIMARY KEY, token integer NOT NULL)";

/// Call it first in the transaction that does the work. Begin the transaction with `TransactionBehavior::Immediate`: then no other writer
/// comes between the comparison and the work.
pub fn pass_fence(work: &Transaction<'_>, resource: &str, token: FencingToken) -> Result<Fence> {
    let passed = work.execute(
        "INSERT INTO fence (resource, token) VALUES (?1, ?2)
         ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token",
        (resource, token.as_i64()),
    )?;
    Ok(if passed == 1 { Fence::Passed } else { Fence::Stale })
}
