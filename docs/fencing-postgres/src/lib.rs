//! Fencing with PostgreSQL: a row keeps the greatest token, and a transaction with a smaller one is refused.

use fairlock::FencingToken;
use postgres::{Error, Transaction};

/// The greatest token of each resource.
pub const TABLE: &str = "CREATE TABLE fence (resource text PRIMARY KEY, token bigint NOT NULL)";

/// The outcome of a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// No newer hold has written: go on in this transaction.
    Passed,
    /// A newer hold has written: this hold is over, roll back.
    Stale,
}

/// Call it first in the transaction that does the work. The row stays locked until the end of the transaction. A
/// newer holder waits for the commit, and an older one then finds the newer token.
pub fn pass_fence(work: &mut Transaction<'_>, resource: &str, token: FencingToken) -> Result<Fence, Error> {
    let passed = work.execute(
        "INSERT INTO fence (resource, token) VALUES ($1, $2)
         ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE fence.token <= EXCLUDED.token",
        &[&resource, &token.as_i64()],
    )?;
    Ok(if passed == 1 { Fence::Passed } else { Fence::Stale })
}
