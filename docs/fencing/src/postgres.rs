//! A row of PostgreSQL keeps the greatest token, and a transaction with a smaller one is refused.

use fairlock::FencingToken;
use postgres::{Error, Transaction};

use crate::Fence;

/// The greatest token of each resource.
pub const TABLE: &str = "CREATE TABLE fence (resource text PRIMARY KEY, token bigint NOT NULL)";

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
