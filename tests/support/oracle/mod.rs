//! The oracle: what a history shows of the promises. Every run that records one is judged here.
//!
//! | module | what it looks at |
//! | --- | --- |
//! | `holds` | the holds, as their holders believed in them |
//! | this one | holds beside each other, their tokens, their order |
//! | `calls` | waiters that were not woken, calls that did not end |
//!
//! A function returns what it found; its twin `check_…` is for tests that must find nothing. What excuses a finding, such as a
//! fault that was injected, is for the caller to say.

mod calls;
mod holds;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::history::{Event, What, sorted};
pub use calls::call_bounds;
use calls::wake_up_gaps;
pub use holds::{Hold, holds};

/// A promise that a run can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Holders believe in more units than a lock has, or in what the server does not keep.
    Exclusion,
    /// A waiter that was reachable all the time was passed over.
    Order,
    /// A client that was reachable all the time loses no hold, and no place.
    Kept,
    /// Tokens grow.
    Token,
    /// Every loss is told, once, on each way, in time.
    Told,
    /// Every call ends within its bound.
    Bound,
    /// A lock that is free goes to its waiters.
    Liveness,
    /// What no client knows of goes away.
    Ghost,
    /// An answer is true: busy is busy, an error has a reason.
    Answer,
    /// After a shutdown there is nothing.
    Shutdown,
    /// No log storm, and no storm of calls.
    Noise,
    /// Nothing is found by polling when nothing went wrong.
    Polling,
    /// Nothing is left at the end.
    Residue,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which one.
    pub promise: Promise,
    /// Of which lock.
    pub lock: String,
    /// From when to when, by [`now_ns`](crate::history::now_ns).
    pub from: u64,
    /// See `from`.
    pub until: u64,
    /// All of it.
    pub sentence: String,
}

impl Finding {
    /// For how long; zero for one moment.
    pub fn lasted(&self) -> Duration {
        Duration::from_nanos(self.until - self.from)
    }

    fn about(promise: Promise, one: &Hold, does: &str, other: &Hold) -> Finding {
        let sentence = format!("`{}`: {one} {does} {other}", one.lock);
        Finding { promise, lock: one.lock.clone(), from: other.from, until: other.from, sentence }
    }
}

/// What a check found, one sentence each. Never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Violations(pub Vec<String>);

impl Violations {
    /// Ok if there are none.
    pub(crate) fn none_of(found: Vec<String>) -> Result<(), Violations> {
        if found.is_empty() { Ok(()) } else { Err(Violations(found)) }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        write!(f, "{} violations", self.0.len())?;
        self.0.iter().take(SHOWN).try_for_each(|sentence| write!(f, "\n  {sentence}"))?;
        if self.0.len() > SHOWN { write!(f, "\n  …") } else { Ok(()) }
    }
}

/// The same as `Display`, because `unwrap` prints this.
impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn none(found: Vec<Finding>) -> Result<(), Violations> {
    Violations::none_of(found.into_iter().map(|finding| finding.sentence).collect())
}

/// Each hold that began while too few units were left for it, for as long as they were too few. `capacity` has the units of a lock.
pub fn overlaps(holds: &[Hold], capacity: impl Fn(&str) -> u32) -> Vec<Finding> {
    let used = |holds: &[&Hold]| holds.iter().map(|hold| u64::from(hold.units)).sum::<u64>();
    let (mut found, mut current) = (Vec::new(), Vec::<&Hold>::new());
    for hold in holds {
        current.retain(|other| other.lock == hold.lock && other.until > hold.from);
        current.push(hold);
        let capacity = u64::from(capacity(&hold.lock));
        if used(&current) <= capacity {
            continue;
        }
        let all: Vec<String> = current.iter().map(ToString::to_string).collect();
        // They are too many until enough have ended for the rest to fit, or this one has.
        let mut by_end = current.clone();
        by_end.sort_by_key(|other| other.until);
        let fits = (1..=by_end.len()).find(|ended| used(&by_end[*ended..]) <= capacity);
        let until = by_end[fits.unwrap_or(by_end.len()) - 1].until.min(hold.until);
        let lasted = Duration::from_nanos(until - hold.from);
        let sentence = format!("`{}`: {} for {lasted:?}", hold.lock, all.join(" and "));
        let lock = hold.lock.clone();
        found.push(Finding { promise: Promise::Exclusion, lock, from: hold.from, until, sentence });
    }
    found
}

/// No two holders believed at the same time that they held one lock, and none ended a hold that it did not have.
pub fn check_overlap(events: &[Event]) -> Result<(), Violations> {
    let (holds, strays) = holds::holds_and_strays(events);
    none([overlaps(&holds, |_| 1), strays].concat())
}

/// All of it, of a lock with one holder at a time: exclusion, tokens, wake-ups within `gap`, and calls that end in time.
pub fn check_all(
    events: &[Event],
    gap: Duration,
    outage_limit: Duration,
    slack: Duration,
) -> Result<(), Violations> {
    check_overlap(events)?;
    check_token_order(events)?;
    none([wake_up_gaps(events, gap), call_bounds(events, outage_limit, slack)].concat())
}

/// Each hold has a greater token than all that began before `since` of it. That is its beginning where the holds before it have
/// ended by then. Where holders hold together, or several servers grant, it is the call that asked: answers come in any order.
pub fn tokens(holds: &[Hold], since: impl Fn(&Hold) -> u64) -> Vec<Finding> {
    let compared = holds.iter().map(|hold| (since(hold), false, hold));
    let mut moments: Vec<_> = compared.chain(holds.iter().map(|hold| (hold.from, true, hold))).collect();
    moments.sort_by_key(|(at, begins, hold)| (*at, *begins, hold.token));
    let (mut found, mut greatest) = (Vec::new(), BTreeMap::<&str, &Hold>::new());
    for (_, begins, hold) in moments {
        match (begins, greatest.get(hold.lock.as_str())) {
            (false, Some(before)) if hold.token <= before.token => {
                found.push(Finding::about(Promise::Token, before, "has no smaller token than", hold));
            }
            (true, before) if before.is_none_or(|before| before.token < hold.token) => {
                greatest.insert(&hold.lock, hold);
            }
            _ => {}
        }
    }
    found
}

/// The tokens of each lock grow, in the order of its grants.
pub fn check_token_order(events: &[Event]) -> Result<(), Violations> {
    none(tokens(&holds(events), |hold| hold.from))
}

/// The requests that stood in the lock's queue were granted it in the order of their tickets; how many there were. Not for processes that
/// stood still: a place that is over may come back.
pub fn check_tickets(events: &[Event], lock: &str) -> Result<usize, Violations> {
    let (mut places, mut served) = (BTreeMap::new(), Vec::new());
    for event in sorted(events).into_iter().filter(|event| event.lock == lock) {
        let me = (event.pid, event.who.as_str());
        match event.what {
            What::Ask { .. } => drop(places.remove(&me)),
            What::InQueue { ticket: Some(ticket) } => drop(places.insert(me, ticket)),
            What::Granted { token } => {
                served.extend(places.remove(&me).map(|ticket| (token, ticket, &event.who)))
            }
            _ => {}
        }
    }
    served.sort_unstable();
    let passed = served.windows(2).filter(|pair| pair[0].1 >= pair[1].1);
    let sentence = |pair: &[(u64, u64, &String)]| {
        let [(token, ticket, who), (next_token, next_ticket, next)] = [pair[0], pair[1]];
        format!(
            "`{who}` (ticket {ticket}, token {token}) passed `{next}` (ticket {next_ticket}, token {next_token})"
        )
    };
    Violations::none_of(passed.map(sentence).collect())?;
    Ok(served.len())
}

/// The holds of one lock, in order of time.
pub fn grants(events: &[Event], lock: &str) -> Vec<Hold> {
    let mut holds = holds(events);
    holds.retain(|hold| hold.lock == lock);
    holds
}

/// How many times a lock was granted.
pub fn count(events: &[Event], lock: &str) -> usize {
    events.iter().filter(|event| event.lock == lock && matches!(event.what, What::Granted { .. })).count()
}
