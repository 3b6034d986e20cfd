//! The line of one lock: places by ticket, those of absent waiters put aside with their tickets kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Place, RequestId, Waiter};

use crate::ranks::Ranks;
use crate::store::{FORGET_AFTER, Moment};

/// How many of the parked a call looks at, to take out those who are to be forgotten.
const SWEPT_AT_ONCE: usize = 3;

/// How many waiters whose places were taken away are remembered.
const KICKS_KEPT: usize = 100;

/// A waiter's position in the line.
pub(crate) struct KeptPlace {
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    pub(crate) label: Arc<str>,
    /// The lease that it asked for.
    pub(crate) lease: Duration,
    /// The call in which it spoke last.
    pub(crate) spoke_in: u64,
    joined: Moment,
    /// On the line's own clock.
    deadline: Moment,
}

/// A sign of life of a waiter.
#[derive(Clone, Copy)]
pub(crate) struct Sign<'a> {
    pub(crate) place: &'a Place<'a>,
    pub(crate) lease: Duration,
    /// None in a renewal, which keeps the label.
    pub(crate) label: Option<&'a str>,
    pub(crate) call: u64,
}

/// The places. Each is *present*, or *parked*: absent (overdue, or its client hears nothing), so out of the way,
/// and back at its ticket the moment it speaks. One that stays silent for a minute more is forgotten.
///
/// Deadlines are on a clock of the line's own, which judges only who is present. It follows the store's, but
/// from one sign of life (a waiter speaks, or the lock is granted) to the next it moves by at most half of the least time to
/// live of those in the line: waiters renew their places every third of theirs, so a longer pause is not theirs. The process
/// stood still, and must not find on waking that everybody in the line is overdue, for then whoever speaks first would get
/// the lock.
///
/// A waiter knows its ticket and says it whenever it speaks. So a place that is gone is put back where it was: that of a
/// waiter that was granted the lock while it stood still, and whose grant is over; one that was forgotten; a whole line that
/// was lost.
#[derive(Default)]
pub(crate) struct Line {
    present: BTreeMap<u64, KeptPlace>,
    parked: BTreeMap<u64, KeptPlace>,
    tickets: HashMap<(OwnerId, RequestId), u64>,
    ranks: Ranks,
    /// The first ticket of this line, and the last: no other is believed. 0 before there was one.
    first_ticket: u64,
    last_ticket: u64,
    /// The greatest ticket that was granted the lock.
    served: u64,
    /// On the line's clock. A place was put back that was never served, so the line was lost: until then nobody is next.
    rests_until: Moment,
    /// Whose places were taken away, with the last ticket at that moment: they go to the tail.
    kicked: VecDeque<(OwnerId, RequestId, u64)>,
    clock: Moment,
    /// The store's time when `clock` was last moved.
    touched: Moment,
    /// The least time to live of the places.
    ttl: Duration,
    /// On the line's clock: no place with that time to live that spoke before is present any more.
    ttl_until: Moment,
    /// The longest since the line was empty.
    longest_ttl: Duration,
    /// The call that looked last for those who are to be forgotten.
    swept_in: u64,
}

impl Line {
    /// Nobody is in it, not even parked.
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// A sign of life: the line's clock moves.
    pub(crate) fn pulse(&mut self, now: Moment) {
        (self.clock, self.touched) = (self.clock_at(now), now);
    }

    /// A place with this time to live is spoken for. The least one counts until nobody who has spoken with it can be
    /// present any more: so it is that of a waiter who stands there, and not of one who has left.
    pub(crate) fn count_ttl(&mut self, ttl: Duration) {
        if self.is_empty() || ttl <= self.ttl || self.clock >= self.ttl_until {
            (self.ttl, self.ttl_until) = (ttl, self.clock.saturating_add(ttl));
        }
        self.longest_ttl = if self.is_empty() { ttl } else { self.longest_ttl.max(ttl) };
    }

    /// Forgets those of the first few parked ones who were silent for too long; once a call.
    pub(crate) fn forget_the_silent(&mut self, call: u64) {
        if self.parked.is_empty() || self.swept_in == call {
            return;
        }
        self.swept_in = call;
        let is_silent = |place: &KeptPlace| place.deadline.saturating_add(FORGET_AFTER) < self.clock;
        let parked = self.parked.iter().take(SWEPT_AT_ONCE);
        let silent: Vec<u64> =
            parked.filter(|(_, place)| is_silent(place)).map(|(ticket, _)| *ticket).collect();
        for ticket in silent {
            self.take(ticket);
        }
    }

    /// The waiter has spoken: its place, if it has one, is present and good for another time to live.
    pub(crate) fn hear(&mut self, sign: Sign<'_>, now: Moment) -> bool {
        let Some(ticket) = self.ticket_of(sign.place.owner, sign.place.request) else { return false };
        self.pulse(now);
        self.count_ttl(sign.place.ttl);
        if let Some(place) = self.parked.remove(&ticket) {
            self.ranks.add(ticket);
            self.present.insert(ticket, place);
        }
        let Some(place) = self.present.get_mut(&ticket) else { return false };
        place.deadline = self.clock.saturating_add(sign.place.ttl);
        place.lease = sign.lease;
        place.spoke_in = sign.call;
        if let Some(label) = sign.label.filter(|label| **label != *place.label) {
            place.label = label.into();
        }
        true
    }

    /// A new waiter takes its place, at the tail. The number is from the sequence of tokens, and greater than all before.
    pub(crate) fn join(&mut self, sign: Sign<'_>, number: u64, now: Moment) {
        if self.last_ticket == 0 {
            (self.first_ticket, self.last_ticket) = (number, number);
        } else {
            self.last_ticket += 1; // dense, for `Ranks`; so it is never ahead of the sequence
        }
        self.insert(sign, self.last_ticket, now);
    }

    /// Whether a waiter that has no place is to be put back where its ticket says. Never above the line's last ticket, where
    /// newcomers would stand before it.
    pub(crate) fn believes(&self, place: &Place<'_>) -> bool {
        let Place { owner, request, ticket, .. } = *place;
        let is_kicked = |(kicked, its_request, last): &(OwnerId, RequestId, u64)| {
            *its_request == request && kicked == owner && ticket <= *last
        };
        ticket > 0
            && (self.first_ticket..=self.last_ticket).contains(&ticket)
            && !self.present.contains_key(&ticket)
            && !self.parked.contains_key(&ticket)
            && !self.kicked.iter().any(is_kicked)
    }

    /// Puts it back. One that was never served shows that the line was lost: others may have stood before it, and speak
    /// within a third of their places' time. So the line rests for half of that time.
    pub(crate) fn put_back(&mut self, sign: Sign<'_>, now: Moment) {
        self.pulse(now);
        if !self.was_served(sign.place.ticket) && self.clock >= self.rests_until {
            self.rests_until = self.clock.saturating_add(sign.place.ttl / 2);
        }
        self.insert(sign, sign.place.ticket, now);
    }

    /// Whether a place with this ticket may have been granted the lock.
    pub(crate) fn was_served(&self, ticket: u64) -> bool {
        ticket <= self.served
    }

    /// For how much longer nobody is next.
    pub(crate) fn rests_for(&self, now: Moment) -> Duration {
        if self.is_empty() {
            return Duration::ZERO;
        }
        self.rests_until.saturating_sub(self.clock_at(now))
    }

    fn insert(&mut self, sign: Sign<'_>, ticket: u64, now: Moment) {
        self.pulse(now);
        let Place { owner, request, ttl, .. } = *sign.place;
        self.count_ttl(ttl);
        self.tickets.insert((owner.clone(), request), ticket);
        self.ranks.add(ticket);
        let place = KeptPlace {
            owner: owner.clone(),
            request,
            label: sign.label.unwrap_or_default().into(),
            lease: sign.lease,
            spoke_in: sign.call,
            joined: now,
            deadline: self.clock.saturating_add(ttl),
        };
        self.present.insert(ticket, place);
    }

    /// A place is taken away, and is not put back.
    pub(crate) fn kick(&mut self, owner: &OwnerId, request: RequestId) {
        self.leave(owner, request);
        self.kicked.push_back((owner.clone(), request, self.last_ticket));
        if self.kicked.len() > KICKS_KEPT {
            self.kicked.pop_front();
        }
    }

    /// All places are forgotten, in a test.
    pub(crate) fn lose(&mut self) {
        self.present.clear();
        self.parked.clear();
        self.tickets.clear();
        self.ranks = Ranks::default();
    }

    /// The waiter leaves, if it is in the line.
    pub(crate) fn leave(&mut self, owner: &OwnerId, request: RequestId) {
        if let Some(ticket) = self.ticket_of(owner, request) {
            self.take(ticket);
        }
    }

    /// The ticket of the first who is present; `is_reachable` says whether he would learn of a grant. All who are
    /// found absent on the way are parked, so that nobody walks past them again.
    pub(crate) fn first(&mut self, now: Moment, is_reachable: impl Fn(&KeptPlace) -> bool) -> Option<u64> {
        let clock = self.clock_at(now);
        while let Some((&ticket, place)) = self.present.first_key_value() {
            if clock < place.deadline && is_reachable(place) {
                return Some(ticket);
            }
            if let Some(place) = self.present.remove(&ticket) {
                self.ranks.remove(ticket);
                self.parked.insert(ticket, place);
            }
        }
        None
    }

    /// Whether the request has a place, present or parked.
    pub(crate) fn has(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.ticket_of(owner, request).is_some()
    }

    /// The first of those who spoke in this call.
    pub(crate) fn first_of_call(&self, call: u64) -> Option<RequestId> {
        self.present.values().find(|place| place.spoke_in == call).map(|place| place.request)
    }

    /// Whether anybody is; nobody is parked by this look.
    pub(crate) fn is_anyone_present(&self, now: Moment, is_reachable: impl Fn(&KeptPlace) -> bool) -> bool {
        let clock = self.clock_at(now);
        self.present.values().any(|place| clock < place.deadline && is_reachable(place))
    }

    /// Takes a place out of the line: it is granted the lock.
    pub(crate) fn serve(&mut self, ticket: u64) -> Option<KeptPlace> {
        self.served = self.served.max(ticket);
        self.take(ticket)
    }

    fn take(&mut self, ticket: u64) -> Option<KeptPlace> {
        let place = match self.present.remove(&ticket) {
            Some(place) => {
                self.ranks.remove(ticket);
                place
            }
            None => self.parked.remove(&ticket)?,
        };
        self.tickets.remove(&(place.owner.clone(), place.request));
        Some(place)
    }

    /// What is left of the place's time.
    pub(crate) fn left_of(&self, place: &KeptPlace) -> Duration {
        place.deadline.saturating_sub(self.clock)
    }

    /// How many who are present are ahead of this request; none if it is not present itself.
    pub(crate) fn rank_of(&self, owner: &OwnerId, request: RequestId) -> Option<u64> {
        let ticket = self.ticket_of(owner, request).filter(|ticket| self.present.contains_key(ticket))?;
        let (before, first_of_block) = self.ranks.before_block_of(ticket);
        Some(before + self.present.range(first_of_block..ticket).count() as u64)
    }

    /// How many have a place, present or parked.
    pub(crate) fn length(&self) -> u64 {
        self.tickets.len() as u64
    }

    /// A part of the line as a person sees it: who is present by ticket, then the parked.
    pub(crate) fn inspect(&self, now: Moment, part: Range<u64>) -> Vec<Waiter> {
        let clock = self.clock_at(now);
        let waiter = |place: &KeptPlace| {
            let mut waiter = Waiter::new(place.owner.clone());
            waiter.request = Some(place.request);
            waiter.waiting = Some(now.saturating_sub(place.joined));
            waiter.place_left = Some(place.deadline.saturating_sub(clock));
            waiter.label = (!place.label.is_empty()).then(|| String::from(&*place.label));
            waiter
        };
        let (ahead, first) = self.ranks.block_at(part.start);
        let present = self.present.range(first..).map(|(_, place)| place).skip(count(part.start - ahead));
        let parked = self.parked.values().skip(count(part.start.saturating_sub(self.present.len() as u64)));
        let wanted = part.end.saturating_sub(part.start);
        present.chain(parked).take(count(wanted)).map(waiter).collect()
    }

    /// Whether nobody has touched it for so long that nobody can be waiting in it. By the store's clock: its own
    /// stands still meanwhile.
    pub(crate) fn is_abandoned(&self, now: Moment) -> bool {
        let patience = self.longest_ttl.saturating_mul(12).max(FORGET_AFTER.saturating_mul(2));
        self.is_empty() || self.touched.saturating_add(patience) <= now
    }

    fn clock_at(&self, now: Moment) -> Moment {
        self.clock.saturating_add(now.saturating_sub(self.touched).min(self.ttl / 2))
    }

    /// The ticket of a place.
    pub(crate) fn ticket_of(&self, owner: &OwnerId, request: RequestId) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.tickets.get(&(owner.clone(), request)).copied()
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::backend::LockId;
    use fairlock_core::{LockKind, LockName};

    /// A line of `c:0`, `c:1`, ... with a time to live of 5 s, on a clock of seconds.
    struct Fixture {
        lock: LockId,
        line: Line,
        calls: u64,
    }

    impl Fixture {
        fn of(waiters: u64) -> Fixture {
            let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
            let mut fixture = Fixture { lock, line: Line::default(), calls: 0 };
            (0..waiters).for_each(|number| fixture.sign(number, 0, true));
            fixture
        }

        fn sign(&mut self, number: u64, at: u64, joins: bool) {
            self.sign_with(number, at, joins, 5);
        }

        fn sign_with(&mut self, number: u64, at: u64, joins: bool, ttl: u64) {
            let owner = owner(number);
            let mut place = Place::new(&self.lock, &owner, RequestId::new(number));
            place.ttl = Duration::from_secs(ttl);
            self.calls += 1;
            let call = self.calls;
            let sign = Sign { place: &place, lease: Duration::from_secs(30), label: Some("label"), call };
            let now = Duration::from_secs(at);
            match joins {
                true => self.line.join(sign, 1, now), // the first ticket is 1
                false => assert!(self.line.hear(sign, now)),
            }
            self.line.forget_the_silent(call);
        }

        fn first_at(&mut self, at: u64) -> Option<u64> {
            self.line.first(Duration::from_secs(at), |_| true)
        }

        /// A sign of life of this waiter every two seconds.
        fn sign_from_to(&mut self, number: u64, start: u64, end: u64) {
            (start..=end).step_by(2).for_each(|at| self.sign(number, at, false));
        }

        fn rank(&self, number: u64) -> Option<u64> {
            self.line.rank_of(&owner(number), RequestId::new(number))
        }
    }

    fn owner(number: u64) -> OwnerId {
        OwnerId::new(&format!("c:{number}"))
    }

    #[test]
    fn ranks_are_right_whoever_leaves_is_parked_or_comes_back() {
        let mut fixture = Fixture::of(300);
        assert_eq!(fixture.rank(299), Some(299));
        for number in (0..300).step_by(3) {
            fixture.line.leave(&owner(number), RequestId::new(number));
        }
        assert_eq!((fixture.rank(299), fixture.rank(3)), (Some(199), None));
        let first = fixture.line.first(Duration::ZERO, |place| place.request.get() >= 100);
        assert_eq!(first, Some(101));
        assert_eq!((fixture.rank(100), fixture.rank(299), fixture.rank(1)), (Some(0), Some(133), None));
        fixture.sign(1, 0, false);
        assert_eq!((fixture.rank(1), fixture.rank(299)), (Some(0), Some(134)));
    }

    #[test]
    fn an_overdue_place_is_parked_and_comes_back_at_its_ticket() {
        let mut fixture = Fixture::of(2);
        fixture.sign_from_to(1, 2, 6);
        assert_eq!(fixture.first_at(6), Some(2));
        assert_eq!(fixture.rank(1), Some(0));
        fixture.sign(0, 7, false);
        assert_eq!(fixture.first_at(7), Some(1));
        assert_eq!(fixture.rank(1), Some(1));
    }

    #[test]
    fn a_parked_place_that_stays_silent_for_a_minute_is_forgotten() {
        let mut fixture = Fixture::of(2);
        fixture.sign_from_to(1, 2, 6);
        assert_eq!(fixture.first_at(6), Some(2));
        fixture.sign_from_to(1, 8, 64);
        assert_eq!(fixture.line.length(), 2);
        fixture.sign(1, 66, false);
        assert_eq!(fixture.line.length(), 1);
        fixture.line.leave(&owner(1), RequestId::new(1));
        assert!(fixture.line.is_empty());
    }

    #[test]
    fn a_place_that_came_back_is_not_forgotten() {
        let mut fixture = Fixture::of(2);
        fixture.sign_from_to(1, 2, 6);
        fixture.first_at(6);
        fixture.sign_from_to(0, 7, 99);
        assert_eq!(fixture.rank(0), Some(0));
    }

    #[test]
    fn the_clock_of_a_line_starts_when_the_first_joins() {
        let mut fixture = Fixture::of(0);
        fixture.sign(0, 100, true);
        let left = fixture.line.inspect(Duration::from_secs(102), 0..1)[0].place_left;
        assert_eq!(left, Some(Duration::from_secs(3)));
        fixture.sign(0, 102, false);
        let left = fixture.line.inspect(Duration::from_secs(103), 0..1)[0].place_left;
        assert_eq!(left, Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_pause_longer_than_a_place_lives_makes_nobody_overdue() {
        let mut fixture = Fixture::of(2);
        fixture.sign(1, 60, false);
        assert_eq!(fixture.first_at(60), Some(1));
        assert!(!fixture.line.is_abandoned(Duration::from_secs(179)));
        assert!(fixture.line.is_abandoned(Duration::from_secs(180)));
    }

    #[test]
    fn a_pause_makes_nobody_overdue_though_places_live_differently_long() {
        let mut fixture = Fixture::of(1);
        fixture.sign_with(1, 0, true, 60);
        fixture.sign_with(1, 30, false, 60);
        assert_eq!(fixture.first_at(30), Some(1), "the clock moved by half of the shorter time");
    }

    #[test]
    fn the_least_time_to_live_is_forgotten_after_the_waiter_that_had_it() {
        let mut fixture = Fixture::of(1);
        fixture.sign_with(1, 0, true, 60);
        fixture.line.leave(&owner(0), RequestId::new(0));
        for at in [20, 40, 60] {
            fixture.sign_with(1, at, false, 60);
        }
        // Those 20 s are on its clock now; by the shorter time they would have been 2.5 s each.
        fixture.sign_with(2, 60, true, 60);
        assert_eq!(
            fixture.line.inspect(Duration::from_secs(79), 0..1)[0].place_left,
            Some(Duration::from_secs(41))
        );
    }

    #[test]
    fn the_line_shows_who_is_present_first_and_then_the_parked() {
        let mut fixture = Fixture::of(3);
        fixture.line.first(Duration::ZERO, |place| place.request.get() == 1);
        let line = fixture.line.inspect(Duration::from_secs(2), 0..100);
        let owners: Vec<_> = line.iter().map(|waiter| waiter.owner.as_str()).collect();
        assert_eq!(owners, ["c:1", "c:2", "c:0"]);
        assert_eq!(line[0].waiting, Some(Duration::from_secs(2)));
        assert_eq!(line[0].place_left, Some(Duration::from_secs(3)));
        assert_eq!(line[0].label.as_deref(), Some("label"));
    }

    #[test]
    fn each_part_of_the_line_is_what_the_whole_has_there() {
        let mut fixture = Fixture::of(300);
        for number in (0..300).step_by(7) {
            fixture.line.leave(&owner(number), RequestId::new(number));
        }
        fixture.line.first(Duration::ZERO, |place| place.request.get() >= 100);
        let owners = |part: Range<u64>| -> Vec<String> {
            let line = fixture.line.inspect(Duration::ZERO, part);
            line.iter().map(|waiter| waiter.owner.to_string()).collect()
        };
        let whole = owners(0..u64::MAX);
        assert_eq!((whole.len() as u64, fixture.line.length()), (257, 257));
        assert_eq!((whole[0].as_str(), whole[256].as_str()), ("c:100", "c:99"));
        for start in 0..260_u64 {
            let (from, to) = (257.min(start as usize), 257.min(start as usize + 30));
            assert_eq!(owners(start..start + 30), whole[from..to], "from {start}");
        }
        assert!(owners(3..3).is_empty() && owners(u64::MAX..u64::MAX).is_empty());
    }
}
