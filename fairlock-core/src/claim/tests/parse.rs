//! Answers and times in the words of a story.

use std::time::Duration;

use crate::FencingToken;
use crate::backend::{Acquired, Answer, BackendError, BackendErrorKind, Renewal};
use crate::tests::store::{LEASE, busy, denied, down};

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

pub(crate) fn time_of(word: &str) -> Duration {
    let number = |number: &str| number.parse().unwrap_or_else(|_| panic!("no time: {word}"));
    match (word, word.strip_suffix("ns"), word.strip_suffix("ms"), word.strip_suffix('s')) {
        ("ever", ..) => Duration::MAX,
        (_, Some(nanos), ..) => Duration::from_nanos(number(nanos)),
        (_, _, Some(millis), _) => Duration::from_millis(number(millis)),
        (.., seconds) => Duration::from_secs(number(seconds.unwrap_or(word))),
    }
}

pub(crate) fn text_of(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{}s", time.as_secs()),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", time.as_millis()),
        _ => format!("{}ns", time.as_nanos()),
    }
}
