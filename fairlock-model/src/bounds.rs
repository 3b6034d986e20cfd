//! The limits of a check: clients, requests, faults, and the kind of time.

use crate::rules::Rules;

/// The time to live of a place, in ticks. Heartbeats come every third of it.
pub const PLACE: u8 = 3;
/// The most that the line clock advances between two scripts.
pub const HALF_PLACE: u8 = PLACE / 2;
/// How long a lost line rests when it comes back: longer than a heartbeat's interval.
pub const REST: u8 = 2;
/// For how long after it was sent the server lets an attempt begin what it asks for.
pub const END: u8 = 3;
/// How long a client waits before the withdrawal that comes after the end of an unanswered attempt.
pub const SETTLE: u8 = END + MARGIN;
/// The interval of heartbeats and renewals.
pub const BEAT: u8 = 1;
/// The leases of an owner's first and later requests. They differ, since holds of one owner may.
pub const LEASES: [u8; 2] = [2, 4];
/// The longest lease.
pub const LEASE: u8 = 4;
/// The safety margin that a client subtracts from each lease.
pub const MARGIN: u8 = 1;
/// At this age nothing is believed any more, so older ages are the same.
pub const OLD: u8 = LEASE - MARGIN;

/// The disciplines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// The hand-off: places and holds are named by requests.
    HandOff,
    /// As Redisson: places are named by owners, holds by owner and request.
    ByOwner,
    /// Without a line: holds are named by owner and request.
    Plain,
}

/// The kinds of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Time {
    /// Everything may be delayed without limit: the clock ticks at any time, for ever.
    Free,
    /// No live client is late, and no message is in flight when the clock ticks. A message that is not lost arrives
    /// at once, and a hold is released after a tick or two. Progress is checked with this time.
    Prompt {
        /// The end of every path.
        horizon: u8,
        /// The last time for a request.
        last_begin: u8,
        /// For how many ticks the lock may stay unused while a live client waits.
        idle: u8,
    },
}

/// How many faults of each kind may happen in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Clients that die.
    pub crashes: u8,
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
    /// Lost lines: the server forgets all places.
    pub lost_lines: u8,
    /// Attempts of an operator to take the lock by force. Each is carried out at any time.
    pub forces: u8,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        crashes: 0,
        time_outs: 0,
        duplicates: 0,
        cuts: 0,
        lost_pushes: 0,
        drifts: 0,
        lags: 0,
        jumps: 0,
        lost_lines: 0,
        forces: 0,
    };
}

/// One check: its rules and its limits.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The right rules, or one wrong rule.
    pub rules: Rules,
    /// By whom places are named.
    pub discipline: Discipline,
    /// The number of clients.
    pub clients: usize,
    /// The number of requests of each.
    pub requests: u8,
    /// Whether the watchdog and the caller may have calls at the same time.
    pub both_calls: bool,
    /// Whether waits may time out.
    pub give_ups: bool,
    /// Whether an unanswered command may be executed later with prompt time, too. If not, it is lost.
    pub late: bool,
    /// The faults.
    pub faults: Faults,
    /// The kind of time.
    pub time: Time,
    /// Treats clients as interchangeable: halves the states with two clients, but makes paths hard to read.
    pub alike: bool,
    /// Whether past events are remembered, for the properties about what is possible.
    pub witness: bool,
}
