//! How far a check goes: clients, requests, how much of each evil, and what time means.

use crate::rules::Rules;

/// The time to live of a place, in ticks. A heartbeat is due every third of it.
pub const PLACE: u8 = 3;
/// How far the line clock advances between two scripts at the most.
pub const HALF_PLACE: u8 = PLACE / 2;
/// A heartbeat, or a renewal, is due after so long.
pub const BEAT: u8 = 1;
/// The leases that an owner's first and later requests ask for. They differ, since holds of one owner may.
pub const LEASES: [u8; 2] = [2, 4];
/// The longest lease.
pub const LEASE: u8 = 4;
/// What a client gives up of each lease.
pub const MARGIN: u8 = 1;
/// Past this age nothing is believed, so older is the same.
pub const OLD: u8 = LEASE - MARGIN;

/// What time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Time {
    /// Anybody and anything may be late without limit: the clock ticks whenever it likes, for ever.
    Free,
    /// Nobody alive is late, and nothing is under way when the clock ticks: what is not lost arrives at once, and a
    /// hold is given back after a tick or two. This is where progress can be asked for.
    Prompt {
        /// Where every path ends.
        horizon: u8,
        /// Nobody asks for the lock later than this.
        last_begin: u8,
        /// For how many ticks the lock may be of no use to anybody while a live client waits.
        idle: u8,
    },
}

/// How much of each evil may happen in one run of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Evils {
    /// Clients that die.
    pub crashes: u8,
    /// Calls that are not answered: the command may be carried out later, or its answer was lost.
    pub time_outs: u8,
    /// Commands that are carried out a second time, whenever that may be.
    pub duplicates: u8,
    /// Subscriptions of live clients that are cut.
    pub cuts: u8,
    /// Pushes that are lost (if time is free, a push that does not arrive is not delivered yet).
    pub lost_pushes: u8,
    /// Ticks that the server's clock gains on those of the clients.
    pub drifts: u8,
}

impl Evils {
    /// A kind world.
    pub const NONE: Evils =
        Evils { crashes: 0, time_outs: 0, duplicates: 0, cuts: 0, lost_pushes: 0, drifts: 0 };
}

/// One check: its rules and its bounds.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Right, or wrong in one way.
    pub rules: Rules,
    /// How many clients there are.
    pub clients: usize,
    /// How often each asks for the lock.
    pub requests: u8,
    /// Whether the watchdog may have a call under way while the caller has one.
    pub both_calls: bool,
    /// Whether waits may end in vain.
    pub give_ups: bool,
    /// How much of each evil.
    pub evils: Evils,
    /// What time means.
    pub time: Time,
    /// Clients may change names on the way: half as many states with two, but paths that are hard to read.
    pub alike: bool,
    /// Whether what has happened is remembered, for the properties that say what is possible.
    pub witness: bool,
}
