//! What the replies of all disciplines mean.

use fairlock_core::backend::{Acquired, BackendError, ForceReleased, Released, Renewal, Withdrawn};
use redis::Value;

use crate::reply::{Row, items, unintelligible};

pub(super) fn acquired(row: &Row<'_>) -> Result<Acquired, BackendError> {
    match row.word {
        "granted" => Ok(Acquired::Granted { token: row.token(0)?, lease: row.millis(1)? }),
        "queued" => {
            let (rank, recheck_in, ticket) = (row.rank(0)?, row.recheck_in(1)?, row.rank(2)?);
            // Redisson's line has no tickets, and sends no message about a grant.
            let latest = if ticket == 0 { 0 } else { row.rank(3)? };
            Ok(Acquired::Queued { rank, recheck_in, ticket, latest })
        }
        "busy" => Ok(Acquired::Busy { recheck_in: row.recheck_in(0)? }),
        _ => Err(row.unexpected()),
    }
}

pub(super) fn released(row: &Row<'_>) -> Result<Released, BackendError> {
    match row.word {
        "released" => Ok(Released::Released),
        "not_held" => Ok(Released::NotHeld),
        _ => Err(row.unexpected()),
    }
}

/// The rows of a renewal of `n` places, one each; with several holders, also those of holds.
pub(crate) fn renewed(reply: &Value, n: usize) -> Result<Vec<Result<Renewal, BackendError>>, BackendError> {
    let rows = items(reply)?;
    if rows.len() != n {
        return Err(unintelligible(reply));
    }
    Ok(rows.iter().map(renewal).collect())
}

fn renewal(reply: &Value) -> Result<Renewal, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "granted" => Ok(Renewal::Granted { token: row.token(0)?, lease: row.millis(1)? }),
        "waiting" => {
            Ok(Renewal::Waiting { rank: row.rank(0)?, recheck_in: row.recheck_in(1)?, latest: row.rank(2)? })
        }
        "renewed" => Ok(Renewal::Renewed),
        "lost" => Ok(Renewal::Lost),
        _ => Err(row.unexpected()),
    }
}

pub(super) fn withdrawn(row: &Row<'_>) -> Result<Withdrawn, BackendError> {
    match row.word {
        "left" => Ok(Withdrawn::Left),
        "was_granted" => Ok(Withdrawn::WasGranted { token: row.token(0)?, lease: row.millis(1)? }),
        _ => Err(row.unexpected()),
    }
}

pub(super) fn force_released(row: &Row<'_>) -> Result<ForceReleased, BackendError> {
    match row.word {
        "taken" => Ok(ForceReleased::Taken),
        "not_held" => Ok(ForceReleased::NotHeld),
        _ => Err(row.unexpected()),
    }
}
