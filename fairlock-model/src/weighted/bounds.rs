//! The limits of a check: units, times, requests, faults, and the kind of time.

use super::rules::Rules;

/// The safety margin that a client subtracts from each lease.
pub const MARGIN: u8 = 1;

/// Durations, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The lease of each hold.
    pub lease: u8,
    /// The interval between two renewals of a hold.
    pub renewal: u8,
    /// The time to live of a place. The line clock advances by at most half of it between two scripts.
    pub place: u8,
    /// The interval between two heartbeats of a place.
    pub heartbeat: u8,
}

impl Times {
    /// The shortest: for free time, where heartbeats come at any time.
    pub const SHORT: Times = Times { lease: 2, renewal: 1, place: 2, heartbeat: 1 };
    /// Finer ones: for prompt time. A hold may end between two heartbeats of a place.
    pub const FINE: Times = Times { lease: 4, renewal: 1, place: 6, heartbeat: 2 };

    /// At this age nothing is believed any more, so older ages are the same.
    pub fn old(self) -> u8 {
        self.lease - MARGIN
    }
}

/// The kinds of time, as in the model of the hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Everything may be delayed without limit: the clock ticks at any time, for ever.
    Free,
    /// No live client is late, and no message is in flight when the clock ticks.
    Prompt {
        /// The end of every path.
        horizon: u8,
        /// The last time for a request.
        last_begin: u8,
        /// For how many ticks a client holds its units at most.
        longest_hold: u8,
        /// For how many ticks units that suffice may be free while a live client is the first to wait for them.
        idle: u8,
    },
}

/// How many faults of each kind may happen in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
}

impl Faults {
    /// No faults.
    pub const NONE: Faults =
        Faults { crashes: 0, dead_holders: 0, time_outs: 0, duplicates: 0, cuts: 0, lost_pushes: 0 };
}

/// One check: its rules and its limits.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The right rules, or one wrong rule.
    pub rules: Rules,
    /// The units that the requests of each client take. Each client has one owner.
    pub takes: &'static [u8],
    /// The units of the lock, as each client says.
    pub capacities: &'static [u8],
    /// The number of requests of each client.
    pub requests: u8,
    /// The durations.
    pub times: Times,
    /// How many holds one script drops, and how many places it grants.
    pub at_once: usize,
    /// Whether waits may time out.
    pub give_ups: bool,
    /// The faults.
    pub faults: Faults,
    /// The kind of time.
    pub time: Time,
    /// Treats the first two clients as interchangeable: nearly halves the states, but makes paths hard to read.
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

    /// Whether clients are never late.
    pub fn is_prompt(&self) -> bool {
        self.time != Time::Free
    }
}
