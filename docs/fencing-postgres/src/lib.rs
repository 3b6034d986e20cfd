//! Fencing with PostgreSQL: a row remembers the greatest token, and a transaction with a smaller one is refused.

use fairlock::FencingToken;
use postgres::{Error, Transaction};

/// Where the greatest token of each resource is kept.
pub const TABLE: &str = "CREATE TABLE fence (resource text PRIMARY KEY, token bigint NOT NULL)";

/// What became of a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Nobody with a newer hold has written: go on in this transaction.
    Passed,
    /// Somebody has: this hold is over, roll back.
    Stale,
}

/// Call it first in the transaction that does the work. The row stays locked until the end of it: a newer holder that
/// comes in between waits for the commit, and an older one finds the newer token.
pub fn pass_fence(work: &mut Transaction<'_>, resource: &str, token: FencingToken) -> Result<Fence, Error> {
    let passed = work.execute(
        "INSERT INTO fence (resource, token) VALUES ($1, $2)
         ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE fence.token <= EXCLUDED.token",
        &[&resource, &i64::from(token)],
    )?;
    Ok(if passed == 1 { Fence::Passed } else { Fence::Stale })
}
