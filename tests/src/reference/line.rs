//! Who waits, in the order of tickets; and who of them is absent, and who is forgotten.

use super::{Ask, Member, Millis};

/// An absent waiter that stays silent for so much longer has no place any more.
const FORGET_AFTER: Millis = 60_000;
/// So many of those are removed by one command.
const FORGOTTEN_AT_ONCE: usize = 3;
/// A line that nobody touches is forgotten as a whole, after this or twelve lives of a place.
const KEEP_AT_LEAST: Millis = 24 * 3600 * 1000;
/// So many places one command looks at, that none keeps the server for long.
const MOST_LOOKS: usize = 256;

/// Is a waiter in the line's way?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// He is next when his turn comes.
    Present,
    /// His turn came, and he was overdue or his client heard nothing. He keeps his ticket, and is back at it as soon as he speaks.
    Parked,
}

/// A waiter's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose it is.
    pub member: Member,
    /// First asked, first served.
    pub ticket: u64,
    /// Whether he is passed over.
    pub presence: Presence,
    /// When he is overdue, by the line clock.
    pub deadline: Millis,
    /// The lease that he wants.
    pub lease: Millis,
    /// Since when he waits.
    pub since: Millis,
    /// A person's idea of him.
    pub label: &'static str,
}

/// Who is next?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// He is.
    Waiter(Member),
    /// Nobody in line is present.
    Nobody,
    /// So many are absent that one command could not look at all.
    LookAgain,
}

/// The line: by ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The places, by ticket.
    pub places: Vec<Place>,
    /// A line that is not touched is there for the last time then.
    pub kept_until: Millis,
}

impl Line {
    /// Nobody waits, not even an absent one.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The place of this request.
    pub fn place(&self, member: Member) -> Option<&Place> {
        self.places.iter().find(|place| place.member == member)
    }

    /// Those who are not passed over, then those who are.
    pub fn in_order(&self) -> impl Iterator<Item = &Place> {
        let of = |presence| self.places.iter().filter(move |place| place.presence == presence);
        of(Presence::Present).chain(of(Presence::Parked))
    }

    /// How many are ahead of this request: whoever is parked is ahead of nobody.
    pub fn rank(&self, member: Member) -> Option<usize> {
        self.in_order().position(|place| place.member == member)
    }

    /// Takes the place with this ticket: at the tail, or where it stood before.
    pub fn join(&mut self, ask: &Ask, ticket: u64, now: Millis, clock: Millis) {
        let Ask { member, lease, ttl, label, .. } = *ask;
        let (presence, deadline) = (Presence::Present, clock + ttl);
        self.places.push(Place { member, ticket, presence, deadline, lease, since: now, label });
        self.places.sort_by_key(|place| place.ticket);
    }

    /// The waiter has spoken: his place lives on, and is where his ticket says.
    pub fn speak(&mut self, member: Member, lease: Millis, deadline: Millis) -> Option<&mut Place> {
        let place = self.places.iter_mut().find(|place| place.member == member)?;
        (place.presence, place.deadline, place.lease) = (Presence::Present, deadline, lease);
        Some(place)
    }

    /// The waiter leaves, or gets the lock.
    pub fn remove(&mut self, member: Member) -> Option<Place> {
        let at = self.places.iter().position(|place| place.member == member)?;
        let place = self.places.remove(at);
        if self.is_empty() {
            self.kept_until = 0;
        }
        Some(place)
    }

    /// Who is next? Who is absent when his turn has come is parked: overdue on the line clock, or out of reach.
    pub fn next(
        &mut self,
        clock: Millis,
        speaks: impl Fn(Member) -> bool,
        hears: impl Fn(Member) -> bool,
    ) -> Next {
        for _ in 0..MOST_LOOKS {
            let first = self.places.iter_mut().find(|place| place.presence == Presence::Present);
            let Some(place) = first else { return Next::Nobody };
            if speaks(place.member) || place.deadline > clock && hears(place.member) {
                return Next::Waiter(place.member);
            }
            place.presence = Presence::Parked;
        }
        Next::LookAgain
    }

    /// Looks at the first of the parked, and removes those who were silent for too long.
    pub fn forget_the_silent(&mut self, clock: Millis) {
        let parked = self.places.iter().filter(|place| place.presence == Presence::Parked);
        let silent = parked.take(FORGOTTEN_AT_ONCE).filter(|place| place.deadline + FORGET_AFTER < clock);
        let silent: Vec<Member> = silent.map(|place| place.member).collect();
        silent.into_iter().for_each(|member| _ = self.remove(member));
    }

    /// The line is kept for its full time from now on.
    pub fn keep(&mut self, now: Millis, ttl: Millis) {
        if !self.is_empty() {
            self.kept_until = now + Line::kept_for(ttl);
        }
    }

    /// The same if half of that time is over.
    pub fn keep_if_half_is_over(&mut self, now: Millis, ttl: Millis) {
        if self.kept_until.saturating_sub(now) < Line::kept_for(ttl) / 2 {
            self.keep(now, ttl);
        }
    }

    /// Nobody touched it for so long that the store has dropped it.
    pub fn drop_if_abandoned(&mut self, now: Millis) {
        if !self.is_empty() && now > self.kept_until {
            *self = Line::default();
        }
    }

    fn kept_for(ttl: Millis) -> Millis {
        KEEP_AT_LEAST.max(12 * ttl)
    }
}
