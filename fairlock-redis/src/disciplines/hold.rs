//! Questions about a hold, whichever rules granted it.

use std::time::Duration;

use fairlock_core::backend::{BackendError, Hold, HoldCountSet, Renewal};
use redis::Value;

use crate::inner::{Inner, Rules};
use crate::net::commands::attempt_length;
use crate::reply::{Row, missing};
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts;

pub(crate) fn set_hold_count(
    inner: &Inner,
    hold: &Hold<'_>,
    holds: u32,
) -> Result<HoldCountSet, BackendError> {
    let arguments =
        [hold.owner.as_str().into(), hold.request.into(), hold.token.into(), u64::from(holds).into()];
    let call = Call::new(&scripts::HOLD_SET_HOLD_COUNT, &inner.keys(hold.lock)?, &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    match row.word {
        "set" => Ok(HoldCountSet::Set),
        "lost" => Ok(HoldCountSet::Lost),
        _ => Err(row.unexpected()),
    }
}

/// Renews holds of one set of rules with one count and one lease, all on one server, and all of fair locks or none.
pub(crate) fn renew(
    inner: &Inner,
    rules: Rules,
    holds: &[&Hold<'_>],
    count: u32,
    lease: Duration,
) -> Result<Call, BackendError> {
    let durability = inner.settings.durability.filter(|_| rules == Rules::Line);
    let mut arguments = Vec::with_capacity(3 + 3 * holds.len());
    let script = match rules {
        Rules::Line => {
            let told = inner.tells_count(count);
            arguments.push(if told { Argument::Number(count.into()) } else { Argument::Text("") });
            arguments.push(Argument::Number(millis(lease)));
            match (durability, holds) {
                // In a grace the script of many marks the holds that are missing, and each of them is claimed alone.
                (Some(durability), [hold]) => {
                    let takes = u64::from(hold.takes).into();
                    // A clock that was read before it jumped shows no claim as newer than the life.
                    let sent_before = attempt_length(inner.settings.timeouts.response) + durability.skew;
                    let sent_before = millis(sent_before).into();
                    arguments.extend([Argument::Hold(hold), takes, Argument::BeginBy, sent_before]);
                    &scripts::LINE_CLAIM
                }
                _ => {
                    let keys_of_each = if has_parts(holds) { 2 } else { 1 };
                    arguments.push(Argument::Number(keys_of_each));
                    arguments.extend(holds.iter().map(|hold| Argument::Hold(hold)));
                    &scripts::LINE_RENEW_HOLDS
                }
            }
        }
        Rules::Redisson | Rules::Plain => {
            arguments.extend([u64::from(count), millis(lease)].map(Argument::Number));
            for hold in holds {
                arguments.push(Argument::Text(hold.owner.as_str()));
                arguments.extend([Argument::from(hold.request), Argument::from(hold.token)]);
            }
            &scripts::HOLD_RENEW
        }
    };
    let locks = holds.iter().map(|hold| inner.keys(hold.lock)).collect::<Result<Vec<_>, _>>()?;
    Call::for_many(script, durability, &locks, &arguments).ok_or_else(missing)
}

/// Whether these holds are of locks in which a hold may take a part.
fn has_parts(holds: &[&Hold<'_>]) -> bool {
    holds.iter().any(|hold| hold.lock.kind.capacity() > 1)
}

/// The answers to a renewal of `n` holds; none for one that was refused. The reply has the positions of those that are lost,
/// counted from 1, and of those refused, with a minus.
pub(crate) fn renewed(reply: &Value, n: usize) -> Result<Vec<Option<Renewal>>, BackendError> {
    let row = Row::of(reply)?;
    if row.word != "renewed" {
        return Err(row.unexpected());
    }
    let mut answers = vec![Some(Renewal::Renewed); n];
    for position in row.numbers() {
        let position = position?;
        let index = usize::try_from(position.unsigned_abs()).ok().and_then(|number| number.checked_sub(1));
        let answer = index.and_then(|index| answers.get_mut(index)).ok_or_else(|| row.unexpected())?;
        *answer = (position > 0).then_some(Renewal::Lost);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_with_a_position_that_was_not_asked_for_says_nothing() {
        let reply = |word: &str, positions: &[i64]| {
            let word = Value::BulkString(word.as_bytes().to_vec());
            Value::Array(std::iter::once(word).chain(positions.iter().copied().map(Value::Int)).collect())
        };
        let read = |word, positions: &[i64]| renewed(&reply(word, positions), 3).ok();
        let (renewed, lost) = (Some(Renewal::Renewed), Some(Renewal::Lost));
        assert_eq!(read("renewed", &[]), Some(vec![renewed; 3]));
        assert_eq!(read("renewed", &[1, -3]), Some(vec![lost, renewed, None]));
        for (word, positions) in [("renewed", &[4][..]), ("renewed", &[0]), ("renewed", &[-4]), ("lost", &[])]
        {
            assert_eq!(read(word, positions), None, "{word} {positions:?}");
        }
    }
}
