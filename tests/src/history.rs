//! What several processes saw of a run: each appends a line an event to one file, on the clock they all share, and
//! checkers look for what must never be.
//!
//! Workers record outermost holds only. A line: `<monotonic ns> <pid> <who> <event> <token or -> <lock>`, with who and
//! lock percent-encoded.

use crate::percent::{decode, encode};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// CLOCK_MONOTONIC in nanoseconds: the same clock in every process of this machine.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).expect("the monotonic clock is not before its start");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    // The order is the one in which events of the same nanosecond are taken: ends first.
    /// From here on the holder no longer believed it held the lock.
    Lost,
    /// The process was killed; so ended whatever it held.
    Gone,
    /// The lock is about to be given back.
    Release,
    /// The lock is about to be asked for.
    Ask,
    /// The lock was granted: the call has returned.
    Granted {
        /// The fencing token of the grant.
        token: u64,
    },
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by [`now_ns`].
    pub at: u64,
    /// The process that it is about.
    pub pid: u32,
    /// Who in that process: a thread's name, or an owner as the server spells it.
    pub who: String,
    /// The lock's name; empty for [`What::Gone`].
    pub lock: String,
    /// What happened.
    pub what: What,
}

/// Writes events to a history file. Threads may share it; each process opens its own.
#[derive(Debug)]
pub struct Recorder {
    file: File,
}

impl Recorder {
    /// Opens `path` for appending; makes the file if there is none.
    pub fn open(path: &Path) -> io::Result<Recorder> {
        Ok(Recorder { file: File::options().create(true).append(true).open(path)? })
    }

    /// Record this before the call that asks for the lock.
    pub fn ask(&self, who: &str, lock: &str) {
        self.record(now_ns(), std::process::id(), who, What::Ask, lock);
    }

    /// Record this when the call has returned with the lock.
    pub fn granted(&self, who: &str, lock: &str, token: u64) {
        self.record(now_ns(), std::process::id(), who, What::Granted { token }, lock);
    }

    /// Record this before the call that gives the lock back.
    pub fn release(&self, who: &str, lock: &str) {
        self.record(now_ns(), std::process::id(), who, What::Release, lock);
    }

    /// Record this when a hold turned out to be lost, with the moment from which its guard said so.
    pub fn lost(&self, who: &str, lock: &str, since_ns: u64) {
        self.record(since_ns, std::process::id(), who, What::Lost, lock);
    }

    /// The one that killed process `pid` records this once it is gone; `at_ns` is the latest moment at which it can
    /// have held anything.
    pub fn gone(&self, pid: u32, at_ns: u64) {
        self.record(at_ns, pid, "", What::Gone, "");
    }

    fn record(&self, at: u64, pid: u32, who: &str, what: What, lock: &str) {
        let (word, token) = match what {
            What::Ask => ("ask", None),
            What::Granted { token } => ("granted", Some(token)),
            What::Release => ("release", None),
            What::Lost => ("lost", None),
            What::Gone => ("gone", None),
        };
        let token = token.map_or("-".to_owned(), |token| token.to_string());
        let line = format!("{at} {pid} {} {word} {token} {}\n", encode(who), encode(lock));
        // One write of an appending file: the lines of several processes don't mix.
        let written = (&self.file).write(line.as_bytes()).expect("the history can be written");
        assert_eq!(written, line.len(), "the history was cut (is the disk full?)");
    }
}

/// Reads a history, sorted by time.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = fs::read_to_string(path)?;
    let mut events = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let event = parse(line).ok_or_else(|| {
            let sentence = format!("{}:{}: not a line of a history: {line:?}", path.display(), number + 1);
            io::Error::new(io::ErrorKind::InvalidData, sentence)
        })?;
        events.push(event);
    }
    sort(&mut events);
    Ok(events)
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let [at, pid, who, word, token, lock] = words.try_into().ok()?;
    let what = match (word, token) {
        ("granted", token) => What::Granted { token: token.parse().ok()? },
        ("ask", "-") => What::Ask,
        ("release", "-") => What::Release,
        ("lost", "-") => What::Lost,
        ("gone", "-") => What::Gone,
        _ => return None,
    };
    Some(Event { at: at.parse().ok()?, pid: pid.parse().ok()?, who: decode(who)?, lock: decode(lock)?, what })
}

fn sort(events: &mut [Event]) {
    events.sort_by_key(|event| (event.at, event.what));
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// When, by [`now_ns`].
    pub at: u64,
    /// The process that got the lock.
    pub pid: u32,
    /// Who in that process.
    pub who: String,
    /// Its fencing token.
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
        What::Ask | What::Release | What::Lost | What::Gone => None,
    }
}

/// How many times `lock` was granted.
pub fn count(events: &[Event], lock: &str) -> usize {
    grants(events, lock).len()
}

/// What a checker found, one sentence each; never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Violations(pub Vec<String>);

impl Violations {
    fn none_of(found: Vec<String>) -> Result<(), Violations> {
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

/// The same as `Display`, because that is what `unwrap` prints.
impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Checks exclusion: no two holders of one lock believed at the same time that they held it.
///
/// A holder believes so from its grant until it gives the lock back, finds it lost, or its process is gone. A hold
/// that has no end in the history lasts for ever. Also found: a grant to one who holds already, and an end without
/// a grant.
pub fn check_overlap(events: &[Event]) -> Result<(), Violations> {
    let mut events = events.to_vec();
    sort(&mut events);
    let mut found = Vec::new();
    let mut held: BTreeMap<String, Vec<Grant>> = BTreeMap::new();
    // Whose hold was lost; it may still be given back later.
    let mut lost: BTreeSet<(String, u32, String)> = BTreeSet::new();
    for event in events {
        let holders = held.entry(event.lock.clone()).or_default();
        let mine = holders.iter().position(|hold| hold.pid == event.pid && hold.who == event.who);
        let me = (event.lock.clone(), event.pid, event.who.clone());
        match event.what {
            What::Ask => {}
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
                        "{:?} of `{}` by process {} `{}` at {} ns, who did not hold it",
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

/// Checks that tokens grow strictly, for each lock in order of its grants.
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

/// Checks that the lock was granted to those who are `expected`, in that order.
pub fn check_order(grants: &[Grant], expected: &[&str]) -> Result<(), Violations> {
    let mut found = Vec::new();
    for number in 0..grants.len().max(expected.len()) {
        match (grants.get(number), expected.get(number)) {
            (Some(grant), Some(who)) if grant.who == *who => {}
            (Some(grant), Some(who)) => {
                found.push(format!("grant {number} should be `{who}`'s and went to {grant}"))
            }
            (Some(grant), None) => found.push(format!("grant {number} was not expected: {grant}")),
            (None, Some(who)) => found.push(format!("grant {number} should be `{who}`'s and never came")),
            (None, None) => {}
        }
    }
    Violations::none_of(found)
}

#[cfg(test)]
mod tests;
