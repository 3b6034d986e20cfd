//! What holders believed, read from their histories: beliefs that overlap, and tokens that do not grow.
//!
//! The checkers of [`history`](crate::history) take a hold without an end for endless, and report the first violation of a
//! promise. This module is for runs in which holds may overlap, and counts how often and for how long they do. A holder
//! records times at which it was certain ([`What::Valid`], and the last one as the end), so no belief is recorded longer than it
//! was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::history::{Event, What};

/// A holder was certain of the lock from the first time to the last, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The lock.
    pub lock: String,
    /// The holder and its process.
    pub who: String,
    /// The fencing token.
    pub token: u64,
    /// When the call began that asked for the lock, by [`now_ns`](crate::history::now_ns).
    pub asked: u64,
    /// The first time.
    pub from: u64,
    /// The last time.
    pub until: u64,
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Belief { who, token, from, until, .. } = self;
        write!(f, "{who} (token {token}, from {from} ns to {until} ns)")
    }
}

/// Two holders were certain of one lock at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// In one sentence.
    pub sentence: String,
    /// For how long; zero for one moment.
    pub lasted: Duration,
}

/// All beliefs of a history, by their beginnings. One without an end, of a killed process, ends at its last certain time.
pub fn beliefs(events: &[Event]) -> Vec<Belief> {
    let mut events: Vec<&Event> = events.iter().collect();
    // Of one moment, beginnings come first: it belongs to both beliefs, and one may be that short.
    events.sort_by_key(|event| (event.at, matches!(event.what, What::Release | What::Lost)));
    let mut asked: BTreeMap<(&str, u32, &str), u64> = BTreeMap::new();
    let mut open: BTreeMap<(&str, u32, &str), Belief> = BTreeMap::new();
    let mut ended = Vec::new();
    for event in events {
        let me = (event.lock.as_str(), event.pid, event.who.as_str());
        match event.what {
            What::Ask { .. } => drop(asked.insert(me, event.at)),
            What::Granted { token } => {
                let belief = Belief {
                    lock: event.lock.clone(),
                    who: format!("{} of process {}", event.who, event.pid),
                    token,
                    asked: asked.remove(&me).unwrap_or(event.at),
                    from: event.at,
                    until: event.at,
                };
                ended.extend(open.insert(me, belief));
            }
            What::Valid { until } => {
                if let Some(belief) = open.get_mut(&me) {
                    belief.until = until;
                }
            }
            What::Release | What::Lost => {
                ended.extend(open.remove(&me).map(|belief| Belief { until: event.at, ..belief }));
            }
            // All others tell nothing of a belief.
            _ => {}
        }
    }
    ended.extend(open.into_values());
    ended.sort_by_key(|belief| belief.from);
    ended
}

/// Each pair of beliefs that overlap. They are in the order of their beginnings.
pub fn overlaps(beliefs: &[Belief]) -> Vec<Overlap> {
    let mut found = Vec::new();
    let mut active: Vec<&Belief> = Vec::new();
    for belief in beliefs {
        active.retain(|other| other.until >= belief.from);
        for other in active.iter().filter(|other| other.lock == belief.lock) {
            let lasted = Duration::from_nanos(belief.until.min(other.until) - belief.from);
            let sentence = format!("`{}`: {other} and {belief} for {lasted:?}", belief.lock);
            found.push(Overlap { sentence, lasted });
        }
        active.push(belief);
    }
    found
}

/// A sentence for each token that did not grow: a call that began after a grant was seen gets a greater one, whichever
/// server grants it. The beliefs are in the order of their beginnings.
pub fn tokens_that_did_not_grow(beliefs: &[Belief]) -> Vec<String> {
    let mut found = Vec::new();
    for lock in beliefs.iter().map(|belief| &belief.lock).collect::<BTreeSet<_>>() {
        let here: Vec<&Belief> = beliefs.iter().filter(|belief| belief.lock == *lock).collect();
        // The one with the greatest token so far.
        let mut greatest: Vec<&Belief> = Vec::new();
        for belief in &here {
            let before = greatest.last().filter(|before| before.token > belief.token);
            greatest.push(before.copied().unwrap_or(belief));
        }
        for belief in &here {
            let before = here.partition_point(|other| other.from < belief.asked);
            let before = before.checked_sub(1).map(|last| greatest[last]);
            if let Some(before) = before.filter(|before| before.token >= belief.token) {
                found.push(format!("`{lock}`: {belief} asked at {} ns, after {before}", belief.asked));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, pid: u32, what: What) -> Event {
        Event { at, pid, who: "holder".to_owned(), lock: "a".to_owned(), what }
    }

    /// A hold from `from` that was looked at until `until`.
    fn hold(pid: u32, asked: u64, token: u64, [from, until]: [u64; 2], end: Option<What>) -> Vec<Event> {
        let mut events = vec![
            event(asked, pid, What::Ask { limit: None }),
            event(from, pid, What::Granted { token }),
            event(until, pid, What::Valid { until }),
        ];
        events.extend(end.map(|end| event(until, pid, end)));
        events
    }

    #[test]
    fn beliefs_that_share_a_time_overlap_and_others_do_not() {
        let first = hold(1, 0, 1, [10, 20], Some(What::Lost));
        let second = |times| [first.clone(), hold(2, 5, 2, times, Some(What::Release))].concat();
        assert_eq!(overlaps(&beliefs(&second([21, 30]))), []);
        for (times, lasted) in [([20, 30], 0), ([15, 30], 5), ([12, 13], 1), ([5, 30], 10)] {
            let found = overlaps(&beliefs(&second(times)));
            assert_eq!(found.len(), 1, "{times:?}");
            assert_eq!(found[0].lasted, Duration::from_nanos(lasted), "{}", found[0].sentence);
        }
    }

    #[test]
    fn a_belief_without_an_end_lasts_until_its_last_certain_time() {
        let killed = hold(1, 0, 1, [10, 20], None);
        assert_eq!(overlaps(&beliefs(&[killed.clone(), hold(2, 0, 2, [21, 22], None)].concat())), []);
        assert_eq!(overlaps(&beliefs(&[killed, hold(2, 0, 2, [19, 22], None)].concat())).len(), 1);
    }

    #[test]
    fn a_belief_of_one_moment_ends_there() {
        let moment = hold(1, 0, 1, [10, 10], Some(What::Release));
        let next = hold(1, 11, 2, [30, 40], Some(What::Release));
        let events = [moment, next, hold(2, 0, 3, [11, 12], Some(What::Release))].concat();
        assert_eq!(overlaps(&beliefs(&events)), []);
    }

    #[test]
    fn a_token_has_to_be_greater_than_those_seen_before_its_call() {
        let first = hold(1, 0, 7, [10, 20], Some(What::Release));
        let second = |asked, token| beliefs(&[first.clone(), hold(2, asked, token, [30, 40], None)].concat());
        assert_eq!(tokens_that_did_not_grow(&second(11, 8)), [""; 0]);
        assert_eq!(tokens_that_did_not_grow(&second(11, 7)).len(), 1);
        assert_eq!(tokens_that_did_not_grow(&second(11, 6)).len(), 1);
        // Its server may have granted it before the other grant, and its answer came late.
        assert_eq!(tokens_that_did_not_grow(&second(10, 6)), [""; 0]);
    }
}
