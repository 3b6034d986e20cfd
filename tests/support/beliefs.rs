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
    /// How many of the lock's units.
    pub takes: u32,
    /// When the call began that asked for the lock, by [`now_ns`](crate::history::now_ns).
    pub asked: u64,
    /// The first time.
    pub from: u64,
    /// The last time.
    pub until: u64,
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Belief { who, token, takes, from, until, .. } = self;
        let units = if *takes == 1 { String::new() } else { format!("{takes} units, ") };
        write!(f, "{who} ({units}token {token}, from {from} ns to {until} ns)")
    }
}

/// More units of a lock were believed in than it has: of an exclusive one, two holders were certain of it at the same time.
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
    // When, and how many units.
    let mut asked: BTreeMap<(&str, u32, &str), (u64, u32)> = BTreeMap::new();
    let mut open: BTreeMap<(&str, u32, &str), Belief> = BTreeMap::new();
    let mut ended = Vec::new();
    for event in events {
        let me = (event.lock.as_str(), event.pid, event.who.as_str());
        match event.what {
            What::Ask { .. } => drop(asked.insert(me, (event.at, 1))),
            What::Wants { units } => drop(asked.entry(me).and_modify(|(_, takes)| *takes = units)),
            What::Granted { token } => {
                let (asked, takes) = asked.remove(&me).unwrap_or((event.at, 1));
                let belief = Belief {
                    lock: event.lock.clone(),
                    who: format!("{} of process {}", event.who, event.pid),
                    token,
                    takes,
                    asked,
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

/// Each belief that began while no units were left for it, in the order of their beginnings. `capacity` has the units of a lock.
pub fn overlaps(beliefs: &[Belief], capacity: impl Fn(&str) -> u32) -> Vec<Overlap> {
    let mut found = Vec::new();
    let mut active: Vec<&Belief> = Vec::new();
    for belief in beliefs {
        active.retain(|other| other.until >= belief.from);
        active.push(belief);
        let mut here: Vec<&Belief> =
            active.iter().filter(|other| other.lock == belief.lock).copied().collect();
        let capacity = u64::from(capacity(&belief.lock));
        let used = |beliefs: &[&Belief]| beliefs.iter().map(|belief| u64::from(belief.takes)).sum::<u64>();
        if used(&here) <= capacity {
            continue;
        }
        let all: Vec<String> = here.iter().map(ToString::to_string).collect();
        // They are too many until so many have ended that the rest fits, or this one has.
        here.sort_by_key(|other| other.until);
        let fits = (1..=here.len()).find(|ended| used(&here[*ended..]) <= capacity).unwrap_or(here.len());
        let until = here[fits - 1].until.min(belief.until);
        let lasted = Duration::from_nanos(until - belief.from);
        let sentence = format!("`{}`: {} for {lasted:?}", belief.lock, all.join(" and "));
        found.push(Overlap { sentence, lasted });
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

    fn of_one(events: &[Event]) -> Vec<Overlap> {
        overlaps(&beliefs(events), |_| 1)
    }

    #[test]
    fn beliefs_that_share_a_time_overlap_and_others_do_not() {
        let first = hold(1, 0, 1, [10, 20], Some(What::Lost));
        let second = |times| [first.clone(), hold(2, 5, 2, times, Some(What::Release))].concat();
        assert_eq!(of_one(&second([21, 30])), []);
        for (times, lasted) in [([20, 30], 0), ([15, 30], 5), ([12, 13], 1), ([5, 30], 10)] {
            let found = of_one(&second(times));
            assert_eq!(found.len(), 1, "{times:?}");
            assert_eq!(found[0].lasted, Duration::from_nanos(lasted), "{}", found[0].sentence);
        }
    }

    #[test]
    fn a_belief_without_an_end_lasts_until_its_last_certain_time() {
        let killed = hold(1, 0, 1, [10, 20], None);
        assert_eq!(of_one(&[killed.clone(), hold(2, 0, 2, [21, 22], None)].concat()), []);
        assert_eq!(of_one(&[killed, hold(2, 0, 2, [19, 22], None)].concat()).len(), 1);
    }

    #[test]
    fn a_belief_of_one_moment_ends_there() {
        let moment = hold(1, 0, 1, [10, 10], Some(What::Release));
        let next = hold(1, 11, 2, [30, 40], Some(What::Release));
        let events = [moment, next, hold(2, 0, 3, [11, 12], Some(What::Release))].concat();
        assert_eq!(of_one(&events), []);
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

    #[test]
    fn holds_beside_each_other_overlap_if_they_take_more_units_than_there_are() {
        let taking = |units, events: Vec<Event>| {
            let (at, pid) = (events[0].at, events[0].pid);
            [
                vec![event(at, pid, What::Ask { limit: None }), event(at, pid, What::Wants { units })],
                events[1..].to_vec(),
            ]
            .concat()
        };
        let two = taking(2, hold(1, 0, 1, [10, 40], None));
        let one = hold(2, 0, 2, [20, 30], None);
        let [shorter, longer] = [[25, 28], [25, 50]].map(|times| hold(3, 0, 3, times, None));
        let found = |events: &[&[Event]]| overlaps(&beliefs(&events.concat()), |_| 3);
        assert_eq!(found(&[&two, &one]), []);
        for (third, lasted) in [(&shorter, 3), (&longer, 5)] {
            let found = found(&[&two, &one, third]);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].lasted, Duration::from_nanos(lasted), "{}", found[0].sentence);
        }
        // A writer's units are all there are.
        let writer = taking(u32::MAX, hold(4, 0, 4, [40, 50], None));
        assert_eq!(overlaps(&beliefs(&[two.clone(), writer.clone()].concat()), |_| u32::MAX).len(), 1);
        assert_eq!(overlaps(&beliefs(&[one, writer].concat()), |_| u32::MAX), []);
    }
}
