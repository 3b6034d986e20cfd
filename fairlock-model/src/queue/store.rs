//! What the server keeps: a [`LockEntry`](fairlock_rules::LockEntry), in ticks from now and with small numbers, so that equal states
//! coincide. `rule` makes it an entry, runs an operation, and reads it back.

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
    /// Ticks until it ends.
    pub left: u8,
    /// The most that its own lease can have left. (For the properties only.)
    pub own: u8,
    /// It was granted when every force that had been sent was past its end. (For the properties only.)
    pub after_force: bool,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The ticket: first asked, first served.
    pub ticket: u8,
    /// The request.
    pub member: Member,
    /// The units that it waits for.
    pub takes: u8,
    /// The requested lease.
    pub lease: u8,
    /// Ticks of the queue clock, from its last heartbeat on, until it is overdue.
    pub left: u8,
    /// Of a place that is overdue, and unheard: since when.
    pub late: u8,
    /// The waiter has named its ticket, so it knows it.
    pub heard: bool,
    /// It was put back after the queue was lost. (For the properties with prompt time only.)
    pub came_back: bool,
}

/// The state of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The units that there are; 0 before there was a hold or a place.
    pub capacity: u8,
    /// The holds, by token.
    pub holds: Vec<Hold>,
    /// The places, by ticket.
    pub queue: Vec<Place>,
    /// The last number of the sequence: not below any token or ticket.
    pub last: u8,
    /// Tickets up to this one have had their turn; 0 before there was a queue.
    pub served: u8,
    /// A lost queue comes back: no waiter is next for this many ticks of the queue clock, from its last heartbeat on.
    pub rests: u8,
    /// Ticks since the last heartbeat of the queue, as far as its clock follows them.
    pub silent: u8,
}

impl Server {
    /// The holds that are not over.
    pub fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| hold.left > 0)
    }

    /// The live hold of a request.
    pub fn hold_of(&self, member: Member) -> Option<&Hold> {
        self.live_holds().find(|hold| hold.member == member)
    }

    /// The units that live holds take.
    pub fn taken(&self) -> u8 {
        self.live_holds().map(|hold| hold.takes).sum()
    }

    /// The place of a request.
    pub fn place_of(&self, member: Member) -> Option<&Place> {
        self.queue.iter().find(|place| place.member == member)
    }

    /// For how much longer the place counts; 0 if it is overdue.
    pub fn left_of(&self, place: &Place) -> u8 {
        place.left.saturating_sub(self.silent)
    }

    /// What makes no difference is dropped: an operation begins by dropping holds that are over, and an empty queue has no clock.
    pub fn tidy(&mut self, bounds: &Bounds) {
        if !bounds.keeps_over() {
            self.holds.retain(|hold| hold.left > 0);
        }
        if self.queue.is_empty() {
            self.rests = 0;
            if !bounds.is(Rules::EndsOnTheQueueClock) {
                self.silent = 0;
            }
            self.capacity = if self.holds.is_empty() { 0 } else { self.capacity };
        }
    }

    /// Time passes. Whether a hold has ended.
    pub fn tick(&mut self, bounds: &Bounds) -> bool {
        let half = bounds.times.place / 2;
        let stands_still = bounds.is(Rules::EndsOnTheQueueClock) && self.silent == half;
        for hold in &mut self.holds {
            hold.left = if stands_still { hold.left } else { hold.left.saturating_sub(1) };
            hold.own = hold.own.saturating_sub(1);
        }
        self.silent = (self.silent + 1).min(half);
        let has_ended = self.holds.iter().any(|hold| hold.left == 0);
        self.tidy(bounds);
        has_ended
    }
}
