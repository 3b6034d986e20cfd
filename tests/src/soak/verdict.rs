//! The checkers of a round: they compare what the workers saw with the injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::nemesis::{Done, Whom};
use super::{ANSWER, LEASE, LONGEST_FAULT, OUTAGE, PLACE, SLACK, is_fair};
use crate::history::{Event, What, check_call_bounds, check_wake_up_gaps};

/// One hold, as its holder believed in it.
#[derive(Clone, Debug)]
pub struct Hold {
    lock: String,
    pid: u32,
    who: String,
    token: u64,
    /// When it was requested; and when it had its place, if known.
    asked: u64,
    in_line: Option<u64>,
    from: u64,
    until: u64,
}

/// A finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The broken promise.
    pub kind: Kind,
    /// One sentence.
    pub sentence: String,
    /// The lock and the times to look at.
    pub lock: String,
    /// The time.
    pub at: u64,
}

/// The checked promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Two holders believed at the same time that they held a lock.
    Overlap,
    /// A token that did not grow.
    Token,
    /// A later request was granted earlier, though the other waiter was present all the time.
    Inversion,
    /// No waiter was woken, though no fault was active.
    LostWakeUp,
    /// No grant for longer than everything that could delay it.
    Stuck,
    /// A call that did not end in time.
    Call,
}

/// After a fault a waiter may count as absent for this long: it reconnects with a back-off of up to a second, and
/// then sends a heartbeat.
const RECOVERY: Duration = Duration::from_secs(3);

/// All findings, and the number of grants.
pub fn judge(events: &[Event], done: &[Done]) -> (u64, Vec<Finding>) {
    let holds = holds(events, done);
    let mut found = Vec::new();
    overlaps(&holds, &mut found);
    tokens(&holds, &mut found);
    inversions(&holds, done, &mut found);
    lost_wake_ups(events, done, &mut found);
    let all = |kind, result: Result<(), crate::history::Violations>, found: &mut Vec<Finding>| {
        for sentence in result.err().into_iter().flat_map(|violations| violations.0) {
            let at = sentence.split(" at ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
            let lock = sentence.split('`').nth(1).unwrap_or_default().to_owned();
            found.push(Finding { kind, lock, at: at.unwrap_or(0), sentence });
        }
    };
    // The next waiter may be dead or stopped, and so may the one after it.
    let longest = LEASE + PLACE + LONGEST_FAULT + 2 * SLACK;
    all(Kind::Stuck, check_wake_up_gaps(events, longest), &mut found);
    // A process stopped during a call is late by that time.
    let late = LONGEST_FAULT + 4 * ANSWER + SLACK;
    all(Kind::Call, check_call_bounds(events, OUTAGE, late), &mut found);
    (holds.len() as u64, found)
}

/// The holds of a history, by lock and time. A hold ends when it is released or found lost. A hold without an end, of
/// a killed process, ends when its guard last said that it would.
fn holds(events: &[Event], done: &[Done]) -> Vec<Hold> {
    let mut open: BTreeMap<(&str, u32, &str), Hold> = BTreeMap::new();
    let mut asked: BTreeMap<(&str, u32, &str), (u64, Option<u64>)> = BTreeMap::new();
    let mut holds = Vec::new();
    for event in events {
        let me = (event.lock.as_str(), event.pid, event.who.as_str());
        match event.what {
            What::Ask { .. } => drop(asked.insert(me, (event.at, None))),
            What::InLine { .. } => drop(asked.entry(me).and_modify(|place| place.1 = Some(event.at))),
            What::Granted { token } => {
                let (asked, in_line) = asked.remove(&me).unwrap_or((event.at, None));
                let (lock, who) = (event.lock.clone(), event.who.clone());
                let hold = Hold {
                    lock,
                    pid: event.pid,
                    who,
                    token,
                    asked,
                    in_line,
                    from: event.at,
                    until: event.at,
                };
                holds.extend(open.insert(me, hold));
            }
            What::Valid { until } => {
                if let Some(hold) = open.get_mut(&me) {
                    hold.until = hold.until.max(until);
                }
            }
            What::Release | What::Lost => {
                if let Some(mut hold) = open.remove(&me) {
                    hold.until = event.at.max(hold.from);
                    holds.push(hold);
                }
            }
            What::Gone => {
                let dead: Vec<_> = open.keys().filter(|(_, pid, _)| *pid == event.pid).copied().collect();
                for key in dead {
                    let mut hold = open.remove(&key).expect("it was there");
                    hold.until = hold.until.min(event.at);
                    holds.push(hold);
                }
            }
            What::Released | What::Failed | What::Unknown => {}
            What::PlaceKept { .. } | What::Renewed { .. } => {}
        }
    }
    holds.extend(open.into_values());
    for done in done {
        let Whom::HolderOf { lock, token } = &done.whom else { continue };
        // A hold that an administrator deletes is over, whatever its holder believes until it is told.
        let had = |hold: &&mut Hold| hold.lock == *lock && hold.from <= done.until && hold.until >= done.from;
        holds.iter_mut().filter(had).for_each(|hold| hold.until = hold.from.max(done.from));
        // If the grant was still on its way, the hold was over before it began.
        holds.retain(|hold| hold.lock != *lock || hold.from < done.from || hold.token > *token);
    }
    holds.sort_by(|a, b| (&a.lock, a.from, a.token).cmp(&(&b.lock, b.from, b.token)));
    holds
}

fn overlaps(holds: &[Hold], found: &mut Vec<Finding>) {
    let mut last: Option<&Hold> = None;
    for hold in holds {
        if let Some(before) = last.filter(|before| before.lock == hold.lock) {
            if hold.from < before.until {
                found.push(Finding::about(Kind::Overlap, before, hold, "believed in it until after"));
            }
            if hold.until < before.until {
                continue;
            }
        }
        last = Some(hold);
    }
}

fn tokens(holds: &[Hold], found: &mut Vec<Finding>) {
    for pair in holds.windows(2) {
        if pair[0].lock == pair[1].lock && pair[1].token <= pair[0].token {
            found.push(Finding::about(Kind::Token, &pair[0], &pair[1], "has no smaller token than"));
        }
    }
}

/// A waiter had its place before another one asked and saw no fault until its grant: then it has the smaller token.
fn inversions(holds: &[Hold], done: &[Done], found: &mut Vec<Finding>) {
    let locks: BTreeSet<&str> =
        holds.iter().map(|hold| hold.lock.as_str()).filter(|lock| is_fair(lock)).collect();
    let troubles = Troubles::new(done);
    for lock in locks {
        let mut holds: Vec<&Hold> = holds.iter().filter(|hold| hold.lock == lock).collect();
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.token));
        // Of those with a greater token, the longest waiter.
        let mut earliest: Option<&Hold> = None;
        for hold in holds {
            if let Some(passed) = earliest.filter(|passed| passed.in_line < Some(hold.asked)) {
                found.push(Finding::about(Kind::Inversion, passed, hold, "was in line and passed by"));
            }
            let better = hold.in_line.is_some() && earliest.is_none_or(|best| hold.in_line < best.in_line);
            if better && !troubles.meet(hold.pid, hold.in_line.unwrap_or(0), hold.from) {
                earliest = Some(hold);
            }
        }
    }
}

/// After each release with a waiter, the next grant comes within a third of a place's time, unless a fault was active
/// just before or since.
fn lost_wake_ups(events: &[Event], done: &[Done], found: &mut Vec<Finding>) {
    let bound = nanos(PLACE / 3 + SLACK);
    let troubles = Troubles::new(done);
    let mut waiting: BTreeMap<&str, BTreeSet<(u32, &str)>> = BTreeMap::new();
    let mut open: BTreeMap<&str, u64> = BTreeMap::new();
    for event in events {
        let (lock, me) = (event.lock.as_str(), (event.pid, event.who.as_str()));
        let line = waiting.entry(lock).or_default();
        match event.what {
            What::Ask { .. } => drop(line.insert(me)),
            What::Failed | What::Unknown => {
                line.remove(&me);
                if line.is_empty() {
                    open.remove(lock);
                }
            }
            What::Granted { .. } => {
                line.remove(&me);
                let Some(since) = open.remove(lock).filter(|since| event.at > since + bound) else {
                    continue;
                };
                if !troubles.any(since, event.at) {
                    let sentence = format!(
                        "`{lock}` was given back at {since} ns, and no waiter was woken until {} ns, though no fault was active",
                        event.at
                    );
                    found.push(Finding {
                        kind: Kind::LostWakeUp,
                        sentence,
                        lock: lock.to_owned(),
                        at: since,
                    });
                }
            }
            What::Release if !line.is_empty() => drop(open.insert(lock, event.at)),
            _ => {}
        }
    }
}

/// The faults: start, end with the time to recover, and the process if it is one.
struct Troubles(Vec<(u64, u64, Option<u32>)>);

impl Troubles {
    fn new(done: &[Done]) -> Troubles {
        let recovery = nanos(RECOVERY);
        Troubles(
            done.iter()
                .map(|done| {
                    let whom = if let Whom::Process(pid) = done.whom { Some(pid) } else { None };
                    (done.from.saturating_sub(nanos(PLACE)), done.until + recovery, whom)
                })
                .collect(),
        )
    }

    fn meet(&self, pid: u32, from: u64, until: u64) -> bool {
        self.0
            .iter()
            .any(|(begin, end, whom)| *begin <= until && from <= *end && whom.is_none_or(|whom| whom == pid))
    }

    fn any(&self, from: u64, until: u64) -> bool {
        self.0.iter().any(|(begin, end, _)| *begin <= until && from <= *end)
    }
}

impl Finding {
    fn about(kind: Kind, one: &Hold, other: &Hold, does: &str) -> Finding {
        let describe = |hold: &Hold| {
            let Hold { pid, who, token, asked, in_line, from, until, .. } = hold;
            let place = in_line.map_or("not known".to_owned(), |at| at.to_string());
            format!(
                "process {pid} `{who}` (token {token}, asked {asked}, in line {place}, held {from} to {until})"
            )
        };
        let sentence = format!("`{}`: {} {does} {}", one.lock, describe(one), describe(other));
        Finding { kind, sentence, lock: one.lock.clone(), at: other.from }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
