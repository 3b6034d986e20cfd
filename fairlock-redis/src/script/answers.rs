//! What the replies of all disciplines mean.

use fairlock_core::backend::{Acquired, BackendError, ForceReleased, HoldKept, Released, Renewal, Withdrawn};
use redis::Value;

use super::reply::{Row, items, lease, rank, recheck_in, token, unintelligible};

pub(crate) fn acquired(row: &Row<'_>) -> Result<Acquired, BackendError> {
    match row.word {
        "granted" => Ok(Acquired::Granted { token: row.at(0, token)?, lease: row.at(1, lease)? }),
        "queued" => {
            let (at, recheck_in, ticket) = (row.at(0, rank)?, row.at(1, recheck_in)?, row.at(2, rank)?);
            // Redisson's queue has no tickets, and sends no message about a grant.
            let latest = if ticket == 0 { 0 } else { row.at(3, rank)? };
            Ok(Acquired::Queued { rank: at, recheck_in, ticket, latest })
        }
        "busy" => Ok(Acquired::Busy { recheck_in: row.at(0, recheck_in)? }),
        _ => Err(row.unexpected()),
    }
}

pub(crate) fn released(row: &Row<'_>) -> Result<Released, BackendError> {
    one_of(row, [("released", Released::Released), ("not_held", Released::NotHeld)])
}

pub(crate) fn kept(row: &Row<'_>) -> Result<HoldKept, BackendError> {
    one_of(row, [("kept", HoldKept::Kept), ("not_held", HoldKept::NotHeld)])
}

pub(crate) fn force_released(row: &Row<'_>) -> Result<ForceReleased, BackendError> {
    one_of(row, [("taken", ForceReleased::Taken), ("not_held", ForceReleased::NotHeld)])
}

/// The answer that the row's word stands for.
fn one_of<T>(row: &Row<'_>, words: [(&str, T); 2]) -> Result<T, BackendError> {
    let found = words.into_iter().find(|(word, _)| *word == row.word);
    found.map(|(_, answer)| answer).ok_or_else(|| row.unexpected())
}

/// The rows of a renewal of `n` places, one each; with several holders, also those of holds.
pub(crate) fn renewed(
    reply: &Value,
    n: usize,
) -> Result<Vec<Option<Result<Renewal, BackendError>>>, BackendError> {
    let rows = items(reply)?;
    if rows.len() != n {
        return Err(unintelligible(reply));
    }
    Ok(rows.iter().map(|row| Some(renewal(row))).collect())
}

fn renewal(reply: &Value) -> Result<Renewal, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "granted" => Ok(Renewal::Granted { token: row.at(0, token)?, lease: row.at(1, lease)? }),
        "waiting" => Ok(Renewal::Waiting {
            rank: row.at(0, rank)?,
            recheck_in: row.at(1, recheck_in)?,
            latest: row.at(2, rank)?,
        }),
        "renewed" => Ok(Renewal::Renewed),
        "lost" => Ok(Renewal::Lost),
        _ => Err(row.unexpected()),
    }
}

/// The answers to a renewal of `n` holds; none for a hold whose renewal was refused. The reply has the positions of lost holds, counted
/// from 1, and of refused ones, with a minus.
pub(crate) fn renewed_holds(
    reply: &Value,
    n: usize,
) -> Result<Vec<Option<Result<Renewal, BackendError>>>, BackendError> {
    let row = Row::of(reply)?;
    if row.word != "renewed" {
        return Err(row.unexpected());
    }
    let mut answers: Vec<_> = (0..n).map(|_| Some(Ok(Renewal::Renewed))).collect();
    for position in row.numbers() {
        let position = position?;
        let index = usize::try_from(position.unsigned_abs()).ok().and_then(|number| number.checked_sub(1));
        let answer = index.and_then(|index| answers.get_mut(index)).ok_or_else(|| row.unexpected())?;
        *answer = (position > 0).then_some(Ok(Renewal::Lost));
    }
    Ok(answers)
}

pub(crate) fn withdrawn(row: &Row<'_>) -> Result<Withdrawn, BackendError> {
    match row.word {
        "left" => Ok(Withdrawn::Left),
        "was_granted" => Ok(Withdrawn::WasGranted { token: row.at(0, token)?, lease: row.at(1, lease)? }),
        _ => Err(row.unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fairlock_core::FencingToken;

    const TOKEN: FencingToken = FencingToken::new(7);
    const LEASE: Duration = Duration::from_secs(30);

    fn reply(word: &str, numbers: &[i64]) -> Value {
        let word = Value::BulkString(word.as_bytes().to_vec());
        Value::Array(std::iter::once(word).chain(numbers.iter().copied().map(Value::Int)).collect())
    }

    /// None for an error.
    fn read<T>(meaning: fn(&Row<'_>) -> Result<T, BackendError>, word: &str, numbers: &[i64]) -> Option<T> {
        meaning(&Row::of(&reply(word, numbers)).unwrap()).ok()
    }

    #[test]
    fn a_request_is_granted_or_queued_or_finds_the_lock_busy() {
        let read = |word, numbers: &[i64]| read(acquired, word, numbers);
        let recheck_in = Duration::from_millis(500);
        assert_eq!(read("granted", &[7, 30_000]), Some(Acquired::Granted { token: TOKEN, lease: LEASE }));
        let queued = Acquired::Queued { rank: 2, recheck_in, ticket: 4, latest: 9 };
        assert_eq!(read("queued", &[2, 500, 4, 9]), Some(queued));
        let without_ticket = Acquired::Queued { rank: 2, recheck_in, ticket: 0, latest: 0 };
        assert_eq!(read("queued", &[2, 500, 0]), Some(without_ticket));
        assert_eq!(read("busy", &[500]), Some(Acquired::Busy { recheck_in }));
        assert_eq!([read("queued", &[2, 500, 4]), read("left", &[]), read("granted", &[])], [None; 3]);
    }

    #[test]
    fn an_answer_with_another_word_is_an_error() {
        assert_eq!(read(released, "released", &[0]), Some(Released::Released));
        assert_eq!(read(released, "not_held", &[0]), Some(Released::NotHeld));
        assert_eq!(read(released, "taken", &[]), None);
        let was_granted = Withdrawn::WasGranted { token: TOKEN, lease: LEASE };
        assert_eq!(read(withdrawn, "left", &[]), Some(Withdrawn::Left));
        assert_eq!(read(withdrawn, "was_granted", &[7, 30_000]), Some(was_granted));
        assert_eq!(read(withdrawn, "granted", &[7, 30_000]), None);
        assert_eq!(read(force_released, "taken", &[]), Some(ForceReleased::Taken));
        assert_eq!(read(force_released, "not_held", &[]), Some(ForceReleased::NotHeld));
        assert_eq!(read(force_released, "released", &[]), None);
    }

    #[test]
    fn a_renewal_has_a_row_for_each_item() {
        let rows = [
            reply("granted", &[7, 30_000]),
            reply("waiting", &[2, -1, 9]),
            reply("renewed", &[]),
            reply("lost", &[]),
            reply("busy", &[]),
        ];
        let many = Value::Array(rows.to_vec());
        let read: Vec<_> = renewed(&many, 5).unwrap().into_iter().map(|row| row?.ok()).collect();
        let waiting = Renewal::Waiting { rank: 2, recheck_in: Duration::MAX, latest: 9 };
        let granted = Renewal::Granted { token: TOKEN, lease: LEASE };
        assert_eq!(read, [Some(granted), Some(waiting), Some(Renewal::Renewed), Some(Renewal::Lost), None]);
        assert!(renewed(&many, 4).is_err() && renewed(&many, 6).is_err());
    }

    #[test]
    fn a_reply_with_a_position_that_was_not_asked_for_says_nothing() {
        let read = |word, positions: &[i64]| {
            let rows = renewed_holds(&reply(word, positions), 3).ok()?.into_iter();
            Some(rows.map(|row| row.map(Result::unwrap)).collect::<Vec<_>>())
        };
        let (renewed, lost) = (Some(Renewal::Renewed), Some(Renewal::Lost));
        assert_eq!(read("renewed", &[]), Some(vec![renewed; 3]));
        assert_eq!(read("renewed", &[1, -3]), Some(vec![lost, renewed, None]));
        for (word, positions) in [("renewed", &[4][..]), ("renewed", &[0]), ("renewed", &[-4]), ("lost", &[])]
        {
            assert_eq!(read(word, positions), None, "{word} {positions:?}");
        }
    }
}
