//! The limits of a check: units, times, requests, faults, and the kind of time.

use super::messages::{Member, Thread, Verb};
use super::rules::Rules;

/// The safety margin that a client subtracts from each lease.
pub const MARGIN: u8 = 1;
/// For how long after it was sent the server lets an attempt begin what it asks for.
pub const END: u8 = 3;
/// How long a client waits before the withdrawal that comes after the end of an unanswered attempt.
pub const SETTLE: u8 = END + MARGIN;

/// Durations, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The leases of an owner's first and later requests. Holds of one owner may have different ones.
    pub leases: [u8; 2],
    /// The interval between two renewals of a hold.
    pub renewal: u8,
    /// The time to live of a place. The queue clock advances by at most half of it between two scripts.
    pub place: u8,
    /// The interval between two heartbeats of a place.
    pub heartbeat: u8,
}

impl Times {
    /// For a lock of one unit.
    pub const MIXED: Times = Times { leases: [2, 4], renewal: 1, place: 3, heartbeat: 1 };
    /// The shortest: for several units and free time, where heartbeats come at any time.
    pub const SHORT: Times = Times { leases: [2; 2], renewal: 1, place: 2, heartbeat: 1 };
    /// Finer ones: for several units and prompt time. A hold may end between two heartbeats of a place.
    pub const FINE: Times = Times { leases: [4; 2], renewal: 1, place: 6, heartbeat: 2 };

    /// The lease that a client's request of this number asks for.
    pub fn lease(self, request: u8) -> u8 {
        self.leases[usize::from(request > 1)]
    }

    /// At this age nothing is believed any more, so older ages are the same.
    pub fn old(self) -> u8 {
        self.leases[1] - MARGIN
    }
}

/// The disciplines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// The hand-off: places and holds are named by requests.
    HandOff,
    /// As Redisson: places are named by owners, holds by owner and request.
    ByOwner,
    /// Without a queue: holds are named by owner and request.
    Plain,
}

/// How much a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// One call at a time, and little in it: a repeat is the heartbeat of its place, a place that is gone is not put back, an
    /// attempt has no end. So more clients can be checked.
    Single,
    /// The caller's calls and those of the watchdog, by turns.
    ByTurns,
    /// The caller and the watchdog may have calls at the same time.
    Both,
}

/// The kinds of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Everything may be delayed without limit: the clock ticks at any time, for ever.
    Free,
    /// No live client is late, and no message is in flight when the clock ticks. A message that is not lost arrives
    /// at once. Progress is checked with this time.
    Prompt {
        /// The end of every path.
        horizon: u8,
        /// The last time for a request.
        last_begin: u8,
        /// For how many ticks a client keeps its hold at most.
        longest_hold: u8,
        /// For how many ticks the lock, or units that suffice, may stay unused beside a live waiter.
        idle: u8,
    },
}

/// How many faults of each kind may happen in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Clients that die.
    pub crashes: u8,
    /// Clients that die while they believe that they hold units.
    pub dead_holders: u8,
    /// Calls without an answer: the command may be executed later, or its answer was lost.
    pub time_outs: u8,
    /// Commands that are executed a second time, at any time.
    pub duplicates: u8,
    /// Subscriptions of live clients that are cut.
    pub cuts: u8,
    /// Lost pushes. (With free time, a push that never arrives is simply not delivered yet.)
    pub lost_pushes: u8,
    /// Ticks that the server's clock gains on the clients'.
    pub drifts: u8,
    /// Ticks that the server's clock loses.
    pub lags: u8,
    /// Steps of the server's clock: past all ends that clients may know.
    pub jumps: u8,
    /// Lost queues: the server forgets all places.
    pub lost_queues: u8,
    /// Attempts of an operator to take the lock by force. Each is carried out at any time.
    pub forces: u8,
}

/// One check: its rules and its limits.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The right rules, or one wrong rule.
    pub rules: Rules,
    /// By whom places are named.
    pub discipline: Discipline,
    /// The units that the requests of each client take. Each client has one owner.
    pub takes: &'static [u8],
    /// The units of the lock, as each client says.
    pub capacities: &'static [u8],
    /// The number of requests of each client.
    pub requests: u8,
    /// The durations.
    pub times: Times,
    /// How much a client does.
    pub calls: Calls,
    /// Whether waits may time out.
    pub give_ups: bool,
    /// Whether an unanswered command may be executed later with prompt time, too. If not, it is lost.
    pub late: bool,
    /// The faults.
    pub faults: Faults,
    /// The kind of time.
    pub time: Time,
    /// Treats clients that ask for the same as interchangeable: fewer states, but paths that are hard to read.
    pub alike: bool,
    /// Whether past events are remembered, for the properties about what is possible.
    pub witness: bool,
}

impl Bounds {
    /// The units that a client's requests take.
    pub fn takes(&self, client: u8) -> u8 {
        self.takes[usize::from(client)]
    }

    /// The units that the lock has, as a client says.
    pub fn capacity(&self, client: u8) -> u8 {
        self.capacities[usize::from(client)]
    }

    /// The lease that a request asks for.
    pub fn lease(&self, member: Member) -> u8 {
        self.times.lease(member.request)
    }

    /// Whether clients are never late.
    pub fn is_prompt(&self) -> bool {
        self.time != Time::Free
    }

    /// Whether these are the rules.
    pub fn is(&self, rules: Rules) -> bool {
        self.rules == rules
    }

    /// Whether holds that are over are kept until an operation has looked at them.
    pub fn keeps_over(&self) -> bool {
        self.rules.mistake() == Some(fairlock_rules::Wrong::OverIsKept)
    }

    /// Whether a client does all that it can.
    pub fn is_whole(&self) -> bool {
        self.calls != Calls::Single
    }

    /// Who renews places and holds.
    pub fn watchdog(&self) -> Thread {
        if self.is_whole() { Thread::Watchdog } else { Thread::Caller }
    }

    /// Whether places are put back, by the tickets that requests were told.
    pub fn puts_back(&self) -> bool {
        self.is_whole() && self.discipline == Discipline::HandOff
    }

    /// Where places are lost or put back elsewhere, tickets alone don't say who asked first.
    pub fn remembers_the_order(&self) -> bool {
        self.faults.lost_queues > 0
            || self.is(Rules::PutBackAtTheTail)
            || self.discipline == Discipline::ByOwner
    }

    /// Whether such an attempt has an end.
    pub fn has_end(&self, verb: Verb) -> bool {
        let is_by_owner = self.discipline == Discipline::ByOwner;
        match verb {
            Verb::Ask => self.is_whole(),
            Verb::Withdraw => is_by_owner,
            Verb::Heartbeat | Verb::Renew | Verb::Release => false,
        }
    }
}
