//! What the server keeps: holds and places.

use super::bounds::Bounds;
use super::rules::Rules;
use super::state::Member;

/// A hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hold {
    /// Its token.
    pub token: u8,
    /// The request.
    pub member: Member,
    /// The units.
    pub takes: u8,
    /// Ticks until it ends. At 0 it is over, although no script has dropped it yet.
    pub left: u8,
    /// The most that its own lease can have left. (For the properties only.)
    pub own: u8,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The ticket: first asked, first served.
    pub ticket: u8,
    /// The request.
    pub member: Member,
    /// The units that it waits for.
    pub takes: u8,
    /// Ticks of the line clock until it is overdue.
    pub left: u8,
    /// Parked: behind all others, with its ticket kept.
    pub parked: bool,
}

/// The state of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Server {
    /// The units that there are: those that the first of the holds said; 0 without any.
    pub capacity: u8,
    /// The units taken, as counted by the scripts.
    pub used: u8,
    /// The holds, by token.
    pub holds: Vec<Hold>,
    /// The places, by ticket.
    pub line: Vec<Place>,
    /// The last ticket or token. Only its order among those in use matters.
    pub last: u8,
    /// Ticks since the last script, as far as the line clock follows them.
    pub silent: u8,
}

impl Server {
    /// The holds that are not over.
    pub fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| hold.left > 0)
    }

    /// Time passes.
    pub fn tick(&mut self, bounds: &Bounds) {
        let half = bounds.times.place / 2;
        if self.live_holds().next().is_none() {
            // The keys live for a little longer than the last hold.
            self.holds.clear();
            (self.capacity, self.used) = (0, 0);
        }
        let stands_still = bounds.rules == Rules::EndsOnTheLineClock && self.silent == half;
        for hold in &mut self.holds {
            hold.left = if stands_still { hold.left } else { hold.left.saturating_sub(1) };
            hold.own = hold.own.saturating_sub(1);
        }
        self.silent = if self.line.is_empty() && bounds.rules != Rules::EndsOnTheLineClock {
            0 // the line clock affects nothing
        } else {
            (self.silent + 1).min(half)
        };
    }
}
