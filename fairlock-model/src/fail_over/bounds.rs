//! The limits of a check: times, faults, servers, clients, requests.

use super::data::{Data, Entry};
use super::rules::Rules;

/// The times of a variant, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How old a proof may be when a request is sent.
    pub fresh: u8,
    /// The lease: a belief ends so long after its request was sent.
    pub lease: u8,
    /// How much longer a server keeps a hold.
    pub extra: u8,
    /// How long a server with a new past grants nothing.
    pub grace: u8,
    /// For how long after it was sent an attempt may begin something. Longer than a lease, so that no call whose client still
    /// waits is refused: everything else is checked without that.
    pub end: u8,
}

impl Times {
    /// The times of the life rule alone: all three are the trust.
    pub const fn life(trust: u8) -> Times {
        Times { fresh: 0, lease: trust, extra: 0, grace: trust, end: trust + 1 }
    }

    /// The times of the quorum rule: a proof is fresh for a tick, the lease is a tick shorter than the trust, and servers keep holds, and
    /// grant nothing in a new life, for the trust and a lease.
    pub const fn quorum(trust: u8) -> Times {
        Times { fresh: 1, lease: trust - 1, extra: trust, grace: 2 * trust - 1, end: trust }
    }
}

/// How many faults of each kind may happen in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// Promotions of a replica, by sentinels or by hand.
    pub promotions: u8,
    /// Times that the sentinels name another master.
    pub namings: u8,
    /// Masters that become replicas.
    pub demotions: u8,
    /// Restarts without data.
    pub restarts: u8,
    /// Restarts with a former state of the data.
    pub old_files: u8,
    /// Servers that are emptied, without a restart.
    pub flushes: u8,
    /// Calls without an answer: the request is executed later, or its answer was lost.
    pub time_outs: u8,
    /// Ticks that a server's clock gains on the others.
    pub drifts: u8,
    /// Attempts of an operator to take the lock by force. Each is executed at any time.
    pub forces: u8,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        promotions: 0,
        namings: 0,
        demotions: 0,
        restarts: 0,
        old_files: 0,
        flushes: 0,
        time_outs: 0,
        drifts: 0,
        forces: 0,
    };
}

/// One check: its rules and its limits.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The right rules, or one wrong rule.
    pub rules: Rules,
    /// Whether requests need a proof by the sentinels. If not, a server is dead when it is replaced.
    pub quorum: bool,
    /// The times.
    pub times: Times,
    /// The units of the lock.
    pub capacity: u8,
    /// The units that the requests of each client take.
    pub takes: [u8; 3],
    /// The number of servers, up to 3. The first is the master.
    pub servers: usize,
    /// The number of clients, 2 or 3.
    pub clients: usize,
    /// The number of requests of each.
    pub requests: u8,
    /// Whether clients wait in the queue. If not, a request takes a free lock or gets nothing.
    pub waits: bool,
    /// Whether a live holder has to keep its hold. Not if a deposed server is named again: there a hold may have a greater token
    /// than a later grant, since a repeat gets a kept hold with its old token.
    pub keeps: bool,
    /// The faults.
    pub faults: Faults,
    /// Treats clients as interchangeable: halves the states, but makes paths hard to read.
    pub alike: bool,
    /// Whether past events are remembered, for the properties about what is possible.
    pub witness: bool,
}

impl Bounds {
    /// Whether this request's hold takes a part of the units only.
    pub fn takes_part(&self, member: Entry) -> bool {
        self.takes[usize::from(member.client)] < self.capacity
    }

    /// Whether the units of this request are free.
    pub fn fits(&self, data: &Data, member: Entry) -> bool {
        let takes = |entry: &Entry| self.takes[usize::from(entry.client)];
        let used: u8 = data.holds.iter().filter(|hold| hold.number > 0).map(takes).sum();
        used + takes(&member) <= self.capacity
    }
}
