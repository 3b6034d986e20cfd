//! The grants in a history, and a checker for each promise.

use super::{Event, What, sort};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The time, by [`now_ns`](super::now_ns).
    pub at: u64,
    /// The process that got the lock.
    pub pid: u32,
    /// Who in that process.
    pub who: String,
    /// The fencing token.
    pub token: u64,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} `{}` (token {}, granted at {} ns)", self.pid, self.who, self.token, self.at)
    }
}

/// The grants of `lock`, in order of time.
pub fn grants(events: &[Event], lock: &str) -> Vec<Grant> {
    let mut events: Vec<Event> = events.iter().filter(|event| event.lock == lock).cloned().collect();
    sort(&mut events);
    events.into_iter().filter_map(grant).collect()
}

fn grant(event: Event) -> Option<Grant> {
    match event.what {
        What::Granted { token } => Some(Grant { at: event.at, pid: event.pid, who: event.who, token }),
        _ => None,
    }
}

/// How many times `lock` was granted.
pub fn count(events: &[Event], lock: &str) -> usize {
    grants(events, lock).len()
}

/// What a checker found, one sentence each. Never empty.
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

/// Checks exclusion: no two holders believed at the same time that they held one lock.
///
/// A holder believes so from its grant until it releases the lock, finds it lost, or its process is gone. A hold
/// without an end lasts for ever. The check also reports a grant to a holder and an end without a grant.
pub fn check_overlap(events: &[Event]) -> Result<(), Violations> {
    let mut events = events.to_vec();
    sort(&mut events);
    let mut found = Vec::new();
    let mut held: BTreeMap<String, Vec<Grant>> = BTreeMap::new();
    // Lost holds: they may still be released later.
    let mut lost: BTreeSet<(String, u32, String)> = BTreeSet::new();
    for event in events {
        let holders = held.entry(event.lock.clone()).or_default();
        let mine = holders.iter().position(|hold| hold.pid == event.pid && hold.who == event.who);
        let me = (event.lock.clone(), event.pid, event.who.clone());
        match event.what {
            What::Ask { .. } | What::Wants { .. } | What::InLine { .. } | What::Valid { .. } => {}
            What::PlaceKept { .. } | What::Renewed { .. } => {}
            What::Failed | What::Unknown | What::Released => {}
            What::Gone => held.values_mut().for_each(|holders| holders.retain(|hold| hold.pid != event.pid)),
            What::Granted { .. } => {
                let Event { at, lock, .. } = &event;
                found.extend(holders.iter().map(|hold| {
                    format!("`{lock}` granted to process {} `{}` at {at} ns while held by {hold}", me.1, me.2)
                }));
                lost.remove(&me);
                holders.extend(grant(event));
            }
            What::Lost | What::Release => {
                match mine {
                    Some(at) => drop(holders.remove(at)),
                    None if event.what == What::Release && lost.contains(&me) => {}
                    None => found.push(format!(
                        "{:?} of `{}` by process {} `{}` at {} ns, which did not hold it",
                        event.what, event.lock, event.pid, event.who, event.at
                    )),
                }
                if event.what == What::Lost {
                    lost.insert(me);
                } else {
                    lost.remove(&me);
                }
            }
        }
    }
    Violations::none_of(found)
}

/// Checks that the tokens of each lock grow strictly, in the order of its grants.
pub fn check_token_order(events: &[Event]) -> Result<(), Violations> {
    let locks: BTreeSet<&str> = events.iter().map(|event| event.lock.as_str()).collect();
    let mut found = Vec::new();
    for lock in locks {
        for pair in grants(events, lock).windows(2) {
            if pair[1].token <= pair[0].token {
                found.push(format!("`{lock}`: {} came after {}", pair[1], pair[0]));
            }
        }
    }
    Violations::none_of(found)
}

/// Checks that the lock was granted in the `expected` order.
pub fn check_order(grants: &[Grant], expected: &[&str]) -> Result<(), Violations> {
    let mut found = Vec::new();
    for number in 0..grants.len().max(expected.len()) {
        match (grants.get(number), expected.get(number)) {
            (Some(grant), Some(who)) if grant.who == *who => {}
            (Some(grant), Some(who)) => {
                found.push(format!("grant {number} was due to `{who}` and went to {grant}"))
            }
            (Some(grant), None) => found.push(format!("grant {number} was not expected: {grant}")),
            (None, Some(who)) => found.push(format!("grant {number} was due to `{who}` and never came")),
            (None, None) => {}
        }
    }
    Violations::none_of(found)
}

/// Checks wake-ups: after a release with a waiter, the next grant comes within `bound`.
///
/// It skips holders that were killed or lost the lock, since a lease decides their end. A waiter that gives up or is
/// killed meanwhile no longer counts.
pub fn check_wake_up_gaps(events: &[Event], bound: Duration) -> Result<(), Violations> {
    let mut events = events.to_vec();
    sort(&mut events);
    let bound = nanos(bound);
    let mut found = Vec::new();
    // The waiters of each lock, and the times of releases without a grant since.
    let mut waiting: BTreeSet<(String, u32, String)> = BTreeSet::new();
    let mut open: BTreeMap<String, u64> = BTreeMap::new();
    let end = events.last().map_or(0, |event| event.at);
    for event in &events {
        // Every current waiter has waited since before the bound: only this event could change that.
        open.retain(|lock, released| {
            let late = event.at > released.saturating_add(bound);
            if late && waiting.iter().any(|(other, ..)| other == lock) {
                found.push(format!("`{lock}` was given back at {released} ns, and no waiter got it in time"));
            }
            !late
        });
        let me = (event.lock.clone(), event.pid, event.who.clone());
        match event.what {
            What::Ask { .. } => drop(waiting.insert(me)),
            What::Failed | What::Unknown => drop(waiting.remove(&me)),
            What::Granted { .. } => {
                waiting.remove(&me);
                open.remove(&event.lock);
            }
            What::Release if waiting.iter().any(|(lock, ..)| *lock == event.lock) => {
                open.insert(event.lock.clone(), event.at);
            }
            What::Gone => waiting.retain(|(_, pid, _)| *pid != event.pid),
            What::Release | What::Released | What::Lost | What::InLine { .. } | What::Valid { .. } => {}
            What::Wants { .. } | What::PlaceKept { .. } | What::Renewed { .. } => {}
        }
    }
    let left = open.iter().filter(|(lock, _)| waiting.iter().any(|(other, ..)| other == *lock));
    found.extend(
        left.map(|(lock, at)| {
            format!("`{lock}` was given back at {at} ns, and no waiter got it until {end}")
        }),
    );
    Violations::none_of(found)
}

/// Checks that calls end: a timed wait within its limit and `slack`, a release within `outage_limit` and `slack`, a
/// wait without limit at some time. A killed process ends its call.
pub fn check_call_bounds(
    events: &[Event],
    outage_limit: Duration,
    slack: Duration,
) -> Result<(), Violations> {
    let mut events = events.to_vec();
    sort(&mut events);
    let (outage_limit, slack) = (nanos(outage_limit), nanos(slack));
    let mut found = Vec::new();
    // By caller: its call, and the latest time for its end.
    let mut calls: BTreeMap<(String, u32, String), (Event, u64)> = BTreeMap::new();
    for event in events {
        if event.what == What::Gone {
            calls.retain(|(_, pid, _), _| *pid != event.pid);
            continue;
        }
        let neither_starts_nor_ends_a_call = matches!(
            event.what,
            What::Wants { .. }
                | What::InLine { .. }
                | What::Valid { .. }
                | What::PlaceKept { .. }
                | What::Renewed { .. }
        );
        if neither_starts_nor_ends_a_call {
            continue;
        }
        let me = (event.lock.clone(), event.pid, event.who.clone());
        let until = match event.what {
            What::Ask { limit: Some(limit) } => Some(event.at + nanos(Duration::from_millis(limit)) + slack),
            What::Ask { limit: None } => Some(u64::MAX),
            What::Release => Some(event.at + outage_limit + slack),
            _ => None,
        };
        if let Some((call, until)) = calls.remove(&me).filter(|(_, until)| *until < event.at) {
            found.push(format!("{} should have ended by {until} ns and did at {}", called(&call), event.at));
        }
        if let Some(until) = until {
            calls.insert(me, (event, until));
        }
    }
    found.extend(calls.values().map(|(call, _)| format!("{} never ended", called(call))));
    Violations::none_of(found)
}

fn called(call: &Event) -> String {
    let Event { at, pid, who, lock, what } = call;
    format!("{what:?} of `{lock}` by process {pid} `{who}` at {at} ns")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
