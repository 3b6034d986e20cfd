//! The checkers of a round: they compare what the workers saw with the injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairlock::LockKind;

use super::nemesis::{Done, Whom};
use super::{ANSWER, LEASE, LONGEST_FAULT, OUTAGE, PLACE, SLACK, kind_of};
use crate::history::{Event, What, check_call_bounds, check_wake_up_gaps};

/// One hold, as its holder believed in it.
#[derive(Clone, Debug)]
pub struct Hold {
    lock: String,
    pid: u32,
    who: String,
    token: u64,
    /// How many of the lock's units it takes.
    takes: u32,
    /// When it was requested; and when it had its place, if known.
    asked: u64,
    in_line: Option<u64>,
    from: u64,
    until: u64,
}

/// What is known of a request before its grant.
struct Request {
    at: u64,
    in_line: Option<u64>,
    takes: u32,
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
    /// Holders believed at the same time that they held more units than the lock has.
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
    let mut asked: BTreeMap<(&str, u32, &str), Request> = BTreeMap::new();
    let mut holds = Vec::new();
    for event in events {
        let me = (event.lock.as_str(), event.pid, event.who.as_str());
        match event.what {
            What::Ask { .. } => drop(asked.insert(me, Request { at: event.at, in_line: None, takes: 1 })),
            What::Wants { units } => drop(asked.entry(me).and_modify(|request| request.takes = units)),
            What::InLine { .. } => {
                _ = asked.entry(me).and_modify(|request| request.in_line = Some(event.at));
            }
            What::Granted { token } => {
                let request = asked.remove(&me).unwrap_or(Request { at: event.at, in_line: None, takes: 1 });
                let Request { at: asked, in_line, takes } = request;
                let (lock, who) = (event.lock.clone(), event.who.clone());
                let hold = Hold {
                    lock,
                    pid: event.pid,
                    who,
                    token,
                    takes,
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

/// At each grant: whether the holders that believe in their holds take more than there is.
fn overlaps(holds: &[Hold], found: &mut Vec<Finding>) {
    let mut current: Vec<&Hold> = Vec::new();
    for hold in holds {
        current.retain(|before| before.lock == hold.lock && before.until > hold.from);
        let taken: u64 = current.iter().map(|before| u64::from(before.takes)).sum();
        if taken + u64::from(hold.takes) > u64::from(kind_of(&hold.lock).capacity()) {
            let before = current.last().copied().unwrap_or(hold);
            found.push(Finding::about(Kind::Overlap, before, hold, "believed in it until after"));
        }
        current.push(hold);
    }
}

/// A hold of one holder at a time ends before the next one begins. Holders that hold together may learn of their grants in
/// any order, so there only a request that was made after a grant must have a greater token.
fn tokens(holds: &[Hold], found: &mut Vec<Finding>) {
    let mut greatest: BTreeMap<&str, (u64, &Hold)> = BTreeMap::new();
    let mut by_request: Vec<(u64, bool, &Hold)> = Vec::new();
    for hold in holds {
        let is_shared = kind_of(&hold.lock).is_shared();
        by_request.push((hold.from, true, hold));
        by_request.push((if is_shared { hold.asked } else { hold.from }, false, hold));
    }
    by_request.sort_by_key(|(at, is_grant, hold)| (*at, *is_grant, hold.token));
    for (_, is_grant, hold) in by_request {
        let before = greatest.get(hold.lock.as_str());
        match (is_grant, before) {
            (false, Some((token, before))) if hold.token <= *token => {
                found.push(Finding::about(Kind::Token, before, hold, "has no smaller token than"));
            }
            (true, before) if before.is_none_or(|(token, _)| *token < hold.token) => {
                greatest.insert(&hold.lock, (hold.token, hold));
            }
            _ => {}
        }
    }
}

/// A waiter had its place before another one asked and saw no fault until its grant: then it has the smaller token.
fn inversions(holds: &[Hold], done: &[Done], found: &mut Vec<Finding>) {
    let locks: BTreeSet<&str> =
        holds.iter().map(|hold| hold.lock.as_str()).filter(|lock| kind_of(lock) != LockKind::Plain).collect();
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

/// After each release of a lock of one unit with a waiter, the next grant comes within a third of a place's time, unless a fault was active
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
            // Where others hold it still, the first waiter may not fit.
            What::Release if !line.is_empty() && !kind_of(lock).is_shared() => {
                _ = open.insert(lock, event.at);
            }
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
