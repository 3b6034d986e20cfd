//! What the server keeps: holds and places.

use super::bounds::Bounds;
use super::messages::Member;
use super::rules::Rules;

/// A hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Its fencing token.
    pub token: u8,
    /// The request.
    pub member: Member,
    /// The units.
    pub takes: u8,
    /// Ticks until it ends. At 0 it is over, although no script has dropped it yet.
    pub left: u8,
    /// The most that its own lease can have left. (For the properties only.)
    pub own: u8,
    /// It was granted when every force that had been sent was past its end. (For the properties only.)
    pub after_force: bool,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// It was put back after the line was lost. (For the properties with prompt time only.)
    pub came_back: bool,
}

/// The state of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
    /// The requests whose places were lost, until they are back or the requests end.
    pub lost: Vec<Member>,
    /// A lost line comes back: no waiter is next for this many ticks of the line clock.
    pub rests: u8,
    /// Ticks since the last script, as far as the line clock follows them.
    pub silent: u8,
}

impl Server {
    /// The holds that are not over.
    pub fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| hold.left > 0)
    }

    /// The units that they take.
    pub fn taken(&self) -> u8 {
        self.live_holds().map(|hold| hold.takes).sum()
    }

    /// Whether a hold is over, and has not been dropped.
    pub fn any_over(&self) -> bool {
        self.holds.iter().any(|hold| hold.left == 0)
    }

    /// The place of a request.
    pub fn place_of(&mut self, member: Member) -> Option<&mut Place> {
        self.line.iter_mut().find(|place| place.member == member)
    }

    /// Removes it. A rest ends with the last place.
    pub fn remove_place(&mut self, member: Member) {
        let before = self.line.len();
        self.line.retain(|place| place.member != member);
        if self.line.is_empty() && before > 0 {
            self.rests = 0;
        }
    }

    /// The request ends: a late heartbeat finds nothing to bring back.
    pub fn leave(&mut self, member: Member) {
        self.lost.retain(|lost| *lost != member);
        self.remove_place(member);
    }

    /// Drops holds, and frees their units. Whether there were any.
    pub fn drop_holds(&mut self, mut which: impl FnMut(&Hold) -> bool) -> bool {
        let Server { capacity, used, holds, .. } = self;
        let before = holds.len();
        holds.retain(|hold| {
            let is_dropped = which(hold);
            *used = used.saturating_sub(if is_dropped { hold.takes } else { 0 });
            !is_dropped
        });
        if holds.is_empty() {
            *capacity = 0;
        }
        holds.len() < before
    }

    /// Time passes. Whether a hold of all units has ended.
    pub fn tick(&mut self, bounds: &Bounds) -> bool {
        let half = bounds.times.place / 2;
        if self.live_holds().next().is_none() {
            // The keys live for a little longer than the last hold.
            self.holds.clear();
            (self.capacity, self.used) = (0, 0);
        }
        let stands_still = bounds.is(Rules::EndsOnTheLineClock) && self.silent == half;
        for hold in &mut self.holds {
            hold.left = if stands_still { hold.left } else { hold.left.saturating_sub(1) };
            hold.own = hold.own.saturating_sub(1);
        }
        self.silent = if self.line.is_empty() && self.rests == 0 && !bounds.is(Rules::EndsOnTheLineClock) {
            0 // the line clock affects nothing
        } else {
            (self.silent + 1).min(half)
        };
        // Its lease is the time to live of the key.
        let capacity = self.capacity;
        self.drop_holds(|hold| hold.left == 0 && hold.takes == capacity)
    }
}
