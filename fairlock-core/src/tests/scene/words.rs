//! The words of a scene: times, calls of the store, and when what is seen is what was expected.

use std::time::Duration;

use super::super::store::{Asked, Op};
use super::super::support::World;
use crate::{LockName, Stats};

/// Whether these words are what is seen, which may tell times that they leave out, but for a list of times.
pub(super) fn fits(words: &[&str], seen: &str) -> bool {
    let mut seen = seen.split_whitespace();
    for word in words {
        if *word == "..." {
            return true;
        }
        if !seen.next().is_some_and(|other| is_same(word, other)) {
            return false;
        }
    }
    let is_time = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('s');
    seen.all(|word| words[0] != "at" && is_time(word))
}

fn is_same(word: &str, seen: &str) -> bool {
    let Some((from, to)) = word.split_once("..") else { return word == seen };
    let [from, seen, to] = [from, seen, to].map(value_of);
    from.is_some() && from <= seen && seen <= to
}

/// A number, or a time in nanoseconds.
fn value_of(word: &str) -> Option<u128> {
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    if is_number(word) { word.parse().ok() } else { Some(time_of(word).as_nanos()) }
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

pub(super) fn find_op(word: &str) -> Option<Op> {
    Some(match word {
        "acquire" => Op::Acquire,
        "count" => Op::Count,
        "release" => Op::Release,
        "keep" => Op::Keep,
        "renew" => Op::Renew,
        "withdraw" => Op::Withdraw,
        _ => return None,
    })
}

pub(super) fn op_of(word: &str) -> Op {
    find_op(word).unwrap_or_else(|| panic!("no call of the store: {word}"))
}

/// The expected words if these calls are meant, and all calls if not.
pub(super) fn seen_of(asked: &[Asked], expected: &[&str]) -> String {
    let is_it = |word: &str, asked: &Asked| {
        let mut rest = word;
        let mut part = |mark: char| {
            let (before, after) = rest.rsplit_once(mark)?;
            rest = before;
            Some(after)
        };
        let (by, lock, at, number) = (part('!'), part(':'), part('@'), part('/'));
        op_of(rest) == asked.op
            && by.is_none_or(|by| {
                asked.by.as_deref().unwrap_or("caller").trim_start_matches("fairlock-") == by
            })
            && lock.is_none_or(|lock| asked.lock == lock)
            && at.is_none_or(|at| is_same(at, &text_of(asked.at)))
            && number.is_none_or(|number| is_same(number, &asked.number.to_string()))
    };
    let (calls, is_open) = match expected {
        ["nothing"] => (&[][..], false),
        [calls @ .., "..."] => (calls, true),
        calls => (calls, false),
    };
    let calls: Vec<&str> = calls.iter().flat_map(|word| repeated(word)).collect();
    let is_all = asked.len() == calls.len() || is_open && asked.len() > calls.len();
    if is_all && calls.iter().zip(asked).all(|(word, asked)| is_it(word, asked)) {
        return format!("asked {}", expected.join(" "));
    }
    format!("asked {asked:?}")
}

/// In their order, each once.
pub(super) fn names<'a>(what: &str, locks: impl Iterator<Item = &'a LockName>) -> String {
    let mut names: Vec<&str> = locks.map(LockName::as_str).collect();
    names.sort_unstable();
    format!("{what} {}", if names.is_empty() { "nobody".to_owned() } else { names.join(" ") })
}

pub(super) fn in_order(world: &World) -> String {
    let (lost, chores) = (world.client.stats().lost, world.shared.chores.len());
    let left = (world.client.held(), world.client.waiting());
    if (lost, chores) == (0, 0) && left.0.is_empty() && left.1.is_empty() && world.shared.timers.is_gone() {
        return "in order".to_owned();
    }
    format!("{lost} lost, {chores} chores, {left:?}")
}

pub(super) fn counted(stats: &Stats, what: &str) -> u64 {
    match what {
        "lost" => stats.lost,
        "holds" => stats.holds.count,
        "longest-hold" => stats.holds.longest.as_secs(),
        "renewals" => stats.renewals,
        "late-renewals" => stats.late_renewals,
        "places-lost" => stats.places_lost,
        "ignored" => stats.wake_ups_ignored,
        "gaps" => stats.gaps,
        "woken" => stats.granted_by_wake_up,
        "polled" => stats.granted_by_polling,
        _ => panic!("nobody counts {what}"),
    }
}

/// `down*3` is three times `down`.
pub(super) fn repeated(word: &str) -> std::iter::RepeatN<&str> {
    let (word, times) = word.split_once('*').unwrap_or((word, "1"));
    std::iter::repeat_n(word, times.parse().unwrap())
}
