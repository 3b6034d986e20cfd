//! Answers of the store in words: `rank/2/5s/9/9` is in line with a rank, a time to look, a ticket and the latest number of the lock,
//! `got/7/2ms` a grant with a token and a lease, `down` and the like an error. What is left out is the usual.

use std::time::Duration;

use super::super::store::{LEASE, Op, Plans, busy, denied, down, was_granted};
use super::words::{op_of, repeated, time_of};
use crate::FencingToken;
use crate::backend::{
    Acquired, Answer, BackendError, BackendErrorKind, HoldCountSet, HoldKept, Released, Renewal, Withdrawn,
};

/// The next answers to calls of this kind.
pub(super) fn plan(plans: &mut Plans, op: &str, answers: &[&str]) {
    let words = answers.iter().flat_map(|word| repeated(word));
    match op_of(op) {
        Op::Acquire => plans.acquire.extend(words.map(acquired)),
        Op::Count => plans.count.extend(words.map(|word| error(word).unwrap_or(Ok(HoldCountSet::Lost)))),
        Op::Release => plans.release.extend(words.map(|word| {
            let is_done = word == "done";
            error(word).unwrap_or(Ok(if is_done { Released::Released } else { Released::NotHeld }))
        })),
        Op::Keep => plans.keep.extend(words.map(|word| error(word).unwrap_or(Ok(HoldKept::NotHeld)))),
        Op::Renew => plans.renew.extend(words.map(renewed)),
        Op::Withdraw => plans.withdraw.extend(words.map(|word| match word.split_once('/') {
            Some(("got", token)) => was_granted(token.parse().unwrap()),
            _ => error(word).unwrap_or(Ok(Withdrawn::Left)),
        })),
        Op::TakeHold => panic!("it has no plan"),
    }
}

fn error<T>(word: &str) -> Option<Answer<T>> {
    let refused = |kind| Some(Err(BackendError::new(kind, "planned: refused")));
    match word {
        "down" => Some(down()),
        "denied" => Some(denied()),
        "unsent" => Some(down().map_err(BackendError::unsent)),
        "unsent-denied" => Some(denied().map_err(BackendError::unsent)),
        "InvalidName" => refused(BackendErrorKind::InvalidName),
        "InvalidConfig" => refused(BackendErrorKind::InvalidConfig),
        "Corrupt" => refused(BackendErrorKind::Corrupt),
        "Mismatch" => refused(BackendErrorKind::Mismatch),
        "full" => refused(BackendErrorKind::Refused),
        _ => None,
    }
}

pub(crate) fn acquired(word: &str) -> Answer<Acquired> {
    let number = |word: &str| word.parse::<u64>().unwrap();
    let time = |word: Option<&&str>, usual| word.map_or(usual, |time| time_of(time));
    if let Some(error) = error(word) {
        return error;
    }
    Ok(match word.split('/').collect::<Vec<_>>()[..] {
        ["busy"] => return busy(),
        ["busy", recheck] => Acquired::Busy { recheck_in: time_of(recheck) },
        ["got", token, ref lease @ ..] => {
            Acquired::Granted { token: FencingToken::new(number(token)), lease: time(lease.first(), LEASE) }
        }
        ["rank", rank, ref rest @ ..] => {
            let recheck_in = time(rest.first(), Duration::MAX);
            let ticket = rest.get(1).map_or(1, |ticket| number(ticket));
            let latest = rest.get(2).map_or(ticket, |latest| number(latest));
            Acquired::Queued { rank: number(rank), recheck_in, ticket, latest }
        }
        _ => panic!("no answer: {word}"),
    })
}

pub(crate) fn renewed(word: &str) -> Answer<Renewal> {
    if let Some(error) = error(word) {
        return error;
    }
    Ok(match word.split('/').collect::<Vec<_>>()[..] {
        ["done"] => Renewal::Renewed,
        ["lost"] => Renewal::Lost,
        ["got", token, ref lease @ ..] => {
            let lease = lease.first().map_or(LEASE, |lease| time_of(lease));
            Renewal::Granted { token: FencingToken::new(token.parse().unwrap()), lease }
        }
        ["rank", rank, ref latest @ ..] => {
            let latest = latest.first().map_or(1, |latest| latest.parse().unwrap());
            Renewal::Waiting { rank: rank.parse().unwrap(), recheck_in: Duration::MAX, latest }
        }
        _ => panic!("no answer: {word}"),
    })
}
