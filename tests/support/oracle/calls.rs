//! The calls of a history: waiters are woken, and every call ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Finding, Promise};
use crate::history::{Event, What, sorted};

/// After a release with a waiter, the next grant comes within `bound`. Holders that were killed or lost the lock are left out: a lease
/// decides their end. A waiter that gives up or is killed meanwhile no longer counts.
pub(super) fn wake_up_gaps(events: &[Event], bound: Duration) -> Vec<Finding> {
    let bound = nanos(bound);
    let mut found = Vec::new();
    // The waiters of each lock, and the times of releases without a grant since.
    let mut waiting: BTreeMap<&str, BTreeSet<(u32, &str)>> = BTreeMap::new();
    let mut open: BTreeMap<&str, u64> = BTreeMap::new();
    let events = sorted(events);
    let end = events.last().map_or(0, |event| event.at);
    let gap = |lock: &str, from: u64, until: u64| {
        let sentence = format!("`{lock}` was given back at {from} ns, and no waiter got it until {until} ns");
        Finding { promise: Promise::Liveness, lock: lock.to_owned(), from, until, sentence }
    };
    for event in &events {
        // Every current waiter has waited since before the bound: only this event could change that.
        open.retain(|lock, released| {
            let late = event.at > released.saturating_add(bound);
            if late && waiting.get(lock).is_some_and(|queue| !queue.is_empty()) {
                found.push(gap(lock, *released, event.at));
            }
            !late
        });
        let (lock, me) = (event.lock.as_str(), (event.pid, event.who.as_str()));
        let queue = waiting.entry(lock).or_default();
        match event.what {
            What::Ask { .. } => drop(queue.insert(me)),
            What::Failed | What::Unknown => {
                queue.remove(&me);
                if queue.is_empty() {
                    open.remove(lock);
                }
            }
            What::Granted { .. } => {
                queue.remove(&me);
                open.remove(lock);
            }
            What::Release if !queue.is_empty() => drop(open.insert(lock, event.at)),
            What::Gone => waiting.values_mut().for_each(|queue| queue.retain(|(pid, _)| *pid != event.pid)),
            _ => {}
        }
    }
    let is_waited_for = |lock: &&str| waiting.get(lock).is_some_and(|queue| !queue.is_empty());
    found.extend(open.iter().filter(|(lock, _)| is_waited_for(lock)).map(|(lock, at)| gap(lock, *at, end)));
    found
}

/// A timed wait ends within its limit and `slack`, a release within `outage_limit` and `slack`, a wait without limit at some time. A
/// killed process ends its call.
pub fn call_bounds(events: &[Event], outage_limit: Duration, slack: Duration) -> Vec<Finding> {
    let (outage_limit, slack) = (nanos(outage_limit), nanos(slack));
    let late = |call: &Event, until: u64, ends: &str| {
        let Event { at, pid, who, lock, what } = call;
        let sentence = format!("{what:?} of `{lock}` by process {pid} `{who}` at {at} ns {ends}");
        Finding { promise: Promise::Bound, lock: lock.clone(), from: *at, until, sentence }
    };
    let mut found = Vec::new();
    // By caller: its call, and the latest time for its end.
    let mut calls: BTreeMap<(&str, u32, &str), (&Event, u64)> = BTreeMap::new();
    for event in sorted(events) {
        let until = match event.what {
            What::Gone => {
                calls.retain(|(_, pid, _), _| *pid != event.pid);
                continue;
            }
            // These neither begin nor end a call.
            What::Wants { .. } | What::InQueue { .. } | What::Valid { .. } => continue,
            What::Ask { limit: Some(limit) } => Some(event.at + nanos(Duration::from_millis(limit)) + slack),
            What::Ask { limit: None } => Some(u64::MAX),
            What::Release => Some(event.at + outage_limit + slack),
            _ => None,
        };
        let me = (event.lock.as_str(), event.pid, event.who.as_str());
        if let Some((call, until)) = calls.remove(&me).filter(|(_, until)| *until < event.at) {
            let ends = format!("should have ended by {until} ns and did at {}", event.at);
            found.push(late(call, event.at, &ends));
        }
        if let Some(until) = until {
            calls.insert(me, (event, until));
        }
    }
    found.extend(calls.values().map(|(call, _)| late(call, call.at, "never ended")));
    found
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
