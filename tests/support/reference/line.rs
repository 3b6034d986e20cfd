//! The waiters in the order of their tickets: who is present, who is absent, and who is forgotten.

use super::{Ask, Member, Millis};

/// An absent waiter that stays silent this much longer loses its place.
const SWEEP_AFTER: Millis = 60_000;
/// How many of those one command removes.
const SWEPT_AT_ONCE: usize = 3;
/// How many places one command examines at most, so that it never blocks the server for long.
const SCAN_LIMIT: usize = 256;

/// Whether a waiter can be granted the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It gets the lock when its turn comes.
    Present,
    /// When its turn came, it was overdue or its client was deaf. It keeps its ticket, and is back at its next
    /// heartbeat.
    Parked,
}

/// A waiter's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The request.
    pub member: Member,
    /// First asked, first served.
    pub ticket: u64,
    /// The units that it waits for.
    pub takes: u32,
    /// Whether it is passed over.
    pub presence: Presence,
    /// When it is overdue, by the line clock.
    pub deadline: Millis,
    /// The requested lease.
    pub lease: Millis,
    /// When the wait began.
    pub since: Millis,
    /// The human-readable name of the waiter.
    pub label: &'static str,
}

/// The answer to "who is next?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This request.
    Waiter(Member),
    /// No waiter is present.
    NoWaiter,
    /// Unknown: more waiters are absent than one command examines, or a lost line is coming back.
    MoreToScan,
}

/// The line, by ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The places, by ticket.
    pub places: Vec<Place>,
}

impl Line {
    /// Whether there are no places, not even of absent waiters.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The place of this request.
    pub fn place(&self, member: Member) -> Option<&Place> {
        self.places.iter().find(|place| place.member == member)
    }

    /// The present waiters, then the parked ones.
    pub fn in_order(&self) -> impl Iterator<Item = &Place> {
        let of = |presence| self.places.iter().filter(move |place| place.presence == presence);
        of(Presence::Present).chain(of(Presence::Parked))
    }

    /// How many are ahead of this request. Parked waiters are ahead of no other.
    pub fn rank(&self, member: Member) -> Option<usize> {
        self.in_order().position(|place| place.member == member)
    }

    /// Adds a place with this ticket: at the tail, or where it stood before.
    pub fn join(&mut self, ask: &Ask, ticket: u64, now: Millis, clock: Millis) {
        let Ask { member, lease, ttl, label, takes, .. } = *ask;
        let (presence, deadline) = (Presence::Present, clock + ttl);
        self.places.push(Place { member, ticket, takes, presence, deadline, lease, since: now, label });
        self.places.sort_by_key(|place| place.ticket);
    }

    /// A heartbeat: the place lives on, at its ticket.
    pub fn refresh(&mut self, member: Member, lease: Millis, deadline: Millis) -> Option<&mut Place> {
        let place = self.places.iter_mut().find(|place| place.member == member)?;
        (place.presence, place.deadline, place.lease) = (Presence::Present, deadline, lease);
        Some(place)
    }

    /// Removes the place of a request that leaves or gets the lock.
    pub fn remove(&mut self, member: Member) -> Option<Place> {
        let at = self.places.iter().position(|place| place.member == member)?;
        Some(self.places.remove(at))
    }

    /// The same if it can be granted.
    pub fn remove_if(&mut self, member: Member, fits: impl Fn(&Place) -> bool) -> Option<Place> {
        self.place(member).filter(|place| fits(place))?;
        self.remove(member)
    }

    /// Finds the next waiter. Those on the way that do not count are parked.
    pub fn next(&mut self, counts: impl Fn(&Place) -> bool) -> Next {
        for _ in 0..SCAN_LIMIT {
            let first = self.places.iter_mut().find(|place| place.presence == Presence::Present);
            let Some(place) = first else { return Next::NoWaiter };
            if counts(place) {
                return Next::Waiter(place.member);
            }
            place.presence = Presence::Parked;
        }
        Next::MoreToScan
    }

    /// Removes the first parked places if they were silent for too long.
    pub fn sweep(&mut self, clock: Millis) {
        let parked = self.places.iter().filter(|place| place.presence == Presence::Parked);
        let silent = parked.take(SWEPT_AT_ONCE).filter(|place| place.deadline + SWEEP_AFTER < clock);
        let silent: Vec<Member> = silent.map(|place| place.member).collect();
        silent.into_iter().for_each(|member| _ = self.remove(member));
    }
}
