//! The holds of a history, as their holders believed in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Finding, Promise};
use crate::history::{Event, What};

/// One hold. All times are those of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub lock: String,
    /// The process.
    pub pid: u32,
    /// Who in that process.
    pub who: String,
    /// The fencing token.
    pub token: u64,
    /// How many of the lock's units.
    pub units: u32,
    /// When the call began that asked for the lock.
    pub asked: u64,
    /// When the call had returned with the lock.
    pub from: u64,
    /// When its holder believed in it no more.
    pub until: u64,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hold { pid, who, token, units, asked, from, until, .. } = self;
        write!(
            f,
            "process {pid} `{who}` ({units} units, token {token}, asked {asked}, held {from} to {until})"
        )
    }
}

/// All holds, by lock and time.
///
/// A hold ends when it is released or found lost, or its process is gone; also when its holder is granted the lock again. If none of
/// this is recorded, it lasts until its guard last said that it would, and for ever if it never said.
pub fn holds(events: &[Event]) -> Vec<Hold> {
    holds_and_strays(events).0
}

/// The holds, and the ends of holds that their holders did not have. A hold that was found lost may be released once.
pub(super) fn holds_and_strays(events: &[Event]) -> (Vec<Hold>, Vec<Finding>) {
    let mut events: Vec<&Event> = events.iter().collect();
    // A hold may begin and end in one moment.
    events.sort_by_key(|event| (event.at, matches!(event.what, What::Release | What::Lost | What::Gone)));
    // Of each caller: its request; its hold, and until when that is valid, if its guard said so; whether it has lost one.
    let mut requests: BTreeMap<(&str, u32, &str), Hold> = BTreeMap::new();
    let mut open: BTreeMap<(&str, u32, &str), (Hold, Option<u64>)> = BTreeMap::new();
    let mut lost = BTreeSet::new();
    let (mut holds, mut strays) = (Vec::new(), Vec::new());
    let last_until = |(hold, valid): (Hold, Option<u64>)| Hold { until: valid.unwrap_or(u64::MAX), ..hold };
    for event in events {
        let me = (event.lock.as_str(), event.pid, event.who.as_str());
        match event.what {
            What::Ask { .. } => drop(requests.insert(me, asked(event))),
            What::Wants { units } => drop(requests.entry(me).and_modify(|request| request.units = units)),
            What::Granted { token } => {
                let request = requests.remove(&me).unwrap_or_else(|| asked(event));
                lost.remove(&me);
                let before = open.insert(me, (Hold { token, from: event.at, ..request }, None));
                holds.extend(before.map(last_until));
            }
            What::Valid { until } => {
                if let Some((_, valid)) = open.get_mut(&me) {
                    *valid = Some(until).max(*valid);
                }
            }
            What::Release | What::Lost => {
                match open.remove(&me) {
                    Some((hold, _)) => holds.push(Hold { until: event.at, ..hold }),
                    None if event.what == What::Release && lost.remove(&me) => {}
                    None => strays.push(stray(event)),
                }
                if event.what == What::Lost {
                    lost.insert(me);
                }
            }
            What::Gone => {
                open.retain(|(_, pid, _), hold| {
                    let is_over = *pid == event.pid;
                    if is_over {
                        let hold = last_until(hold.clone());
                        holds.push(Hold { until: hold.until.min(event.at), ..hold });
                    }
                    !is_over
                });
            }
            What::Released | What::Failed | What::Unknown | What::InQueue { .. } => {}
        }
    }
    holds.extend(open.into_values().map(last_until));
    holds.sort_by(|a, b| (&a.lock, a.from, a.token).cmp(&(&b.lock, b.from, b.token)));
    (holds, strays)
}

/// The request that begins with this event.
fn asked(event: &Event) -> Hold {
    let Event { at, pid, .. } = *event;
    let (lock, who) = (event.lock.clone(), event.who.clone());
    Hold { lock, pid, who, token: 0, units: 1, asked: at, from: at, until: at }
}

fn stray(event: &Event) -> Finding {
    let Event { at, pid, who, lock, what } = event;
    let sentence = format!("{what:?} of `{lock}` by process {pid} `{who}` at {at} ns, which did not hold it");
    Finding { promise: Promise::Exclusion, lock: lock.clone(), from: *at, until: *at, sentence }
}
