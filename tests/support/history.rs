//! What several processes saw of a run. Each appends one line per event to a shared file, on a clock that they share. The
//! [oracle](crate::oracle) judges it.
//!
//! Workers record outermost holds only. A line reads `<monotonic ns> <pid> <who> <event> <number or -> <lock>`. `who`
//! and the lock are percent-encoded. The number is a token, a ticket, a number of units, the limit of a timed wait in milliseconds, or a time.

mod recording;
#[cfg(test)]
mod tests;

pub use crate::oracle::{Violations, check_overlap, check_tickets, check_token_order, count, grants};
pub use recording::Recording;

use crate::percent::{decode, encode};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// CLOCK_MONOTONIC in nanoseconds: the same clock in every process of this machine.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).expect("the monotonic clock is not negative");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    // The order decides between events of the same nanosecond: ends come first.
    /// From here on the holder no longer believed that it held the lock.
    Lost,
    /// The process was killed, and all its holds ended.
    Gone,
    /// The lock is about to be released.
    Release,
    /// The release has returned.
    Released,
    /// The call has returned without the lock.
    Failed,
    /// An acquisition or a release has returned an error that leaves its outcome open.
    Unknown,
    /// The call that asks for the lock is about to start.
    Ask {
        /// The limit of the wait in milliseconds, if there is one.
        limit: Option<u64>,
    },
    /// The request that is about to start wants more than one of the lock's units.
    Wants {
        /// How many.
        units: u32,
    },
    /// The request has a place in the queue: the call that takes one has returned.
    InQueue {
        /// Its ticket, if that is known.
        ticket: Option<u64>,
    },
    /// The lock was granted: the call has returned.
    Granted {
        /// The fencing token of the grant.
        token: u64,
    },
    /// The guard says until when the hold is valid. Later events may extend it.
    Valid {
        /// The end of validity, by [`now_ns`].
        until: u64,
    },
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time, by [`now_ns`].
    pub at: u64,
    /// The process.
    pub pid: u32,
    /// Who in that process: a thread's name, or an owner as the server writes it.
    pub who: String,
    /// The lock's name; empty for [`What::Gone`].
    pub lock: String,
    /// The event.
    pub what: What,
}

/// Writes events to a history file. Threads may share it; each process opens its own.
#[derive(Debug)]
pub struct Recorder {
    file: File,
}

impl Recorder {
    /// Opens `path` for appending; creates the file if needed.
    pub fn open(path: &Path) -> io::Result<Recorder> {
        Ok(Recorder { file: File::options().create(true).append(true).open(path)? })
    }

    /// Record this before the call that asks for the lock; `limit` for a timed wait.
    pub fn ask(&self, who: &str, lock: &str, limit: Option<Duration>) {
        let limit = limit.map(|limit| u64::try_from(limit.as_millis()).expect("no wait is that long"));
        self.now(who, What::Ask { limit }, lock);
    }

    /// Record this when the call has returned with the lock.
    pub fn granted(&self, who: &str, lock: &str, token: u64) {
        self.now(who, What::Granted { token }, lock);
    }

    /// Record this before the call that releases the lock.
    pub fn release(&self, who: &str, lock: &str) {
        self.now(who, What::Release, lock);
    }

    /// Record this when that call has returned.
    pub fn released(&self, who: &str, lock: &str) {
        self.now(who, What::Released, lock);
    }

    /// Record this when the call that asked has returned without the lock.
    pub fn failed(&self, who: &str, lock: &str) {
        self.now(who, What::Failed, lock);
    }

    /// Record this when a call has returned an error that leaves its outcome open.
    pub fn unknown(&self, who: &str, lock: &str) {
        self.now(who, What::Unknown, lock);
    }

    /// Record this when a hold turned out to be lost, with the time since when the guard said so.
    pub fn lost(&self, who: &str, lock: &str, since_ns: u64) {
        self.note(since_ns, who, What::Lost, lock);
    }

    /// Record this after killing process `pid`. `at_ns` is the latest time at which it can have held a lock.
    pub fn gone(&self, pid: u32, at_ns: u64) {
        self.record(at_ns, pid, "", What::Gone, "");
    }

    /// Records any event of this process that happens now.
    pub fn now(&self, who: &str, what: What, lock: &str) {
        self.note(now_ns(), who, what, lock);
    }

    /// Records any event of this process at an earlier time.
    pub fn note(&self, at_ns: u64, who: &str, what: What, lock: &str) {
        self.record(at_ns, std::process::id(), who, what, lock);
    }

    fn record(&self, at: u64, pid: u32, who: &str, what: What, lock: &str) {
        let (word, number) = match what {
            What::Ask { limit } => ("ask", limit),
            What::Wants { units } => ("wants", Some(u64::from(units))),
            What::Granted { token } => ("granted", Some(token)),
            What::Valid { until } => ("valid", Some(until)),
            What::InQueue { ticket } => ("in_queue", ticket),
            What::Failed => ("failed", None),
            What::Unknown => ("unknown", None),
            What::Release => ("release", None),
            What::Released => ("released", None),
            What::Lost => ("lost", None),
            What::Gone => ("gone", None),
        };
        let number = number.map_or("-".to_owned(), |number| number.to_string());
        let line = format!("{at} {pid} {} {word} {number} {}\n", encode(who), encode(lock));
        // One write to an appending file: lines of several processes don't mix.
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

pub(crate) fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let [at, pid, who, word, number, lock] = words.try_into().ok()?;
    let what = match (word, number) {
        ("wants", units) => What::Wants { units: units.parse().ok()? },
        ("granted", token) => What::Granted { token: token.parse().ok()? },
        ("valid", until) => What::Valid { until: until.parse().ok()? },
        ("in_queue", "-") => What::InQueue { ticket: None },
        ("in_queue", ticket) => What::InQueue { ticket: Some(ticket.parse().ok()?) },
        // Heartbeats, which workers of earlier commits record (tests/upgrade): they say nothing new of the place.
        ("place_kept" | "renewed", _) => What::InQueue { ticket: None },
        ("ask", "-") => What::Ask { limit: None },
        ("ask", limit) => What::Ask { limit: Some(limit.parse().ok()?) },
        ("failed", "-") => What::Failed,
        ("unknown", "-") => What::Unknown,
        ("release", "-") => What::Release,
        ("released", "-") => What::Released,
        ("lost", "-") => What::Lost,
        ("gone", "-") => What::Gone,
        _ => return None,
    };
    Some(Event { at: at.parse().ok()?, pid: pid.parse().ok()?, who: decode(who)?, lock: decode(lock)?, what })
}

fn sort(events: &mut [Event]) {
    events.sort_by_key(|event| (event.at, event.what));
}

/// The events in the order of time.
pub(crate) fn sorted(events: &[Event]) -> Vec<&Event> {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| (event.at, event.what));
    events
}
