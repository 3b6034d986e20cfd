//! Who gets the units of a lock next.

use super::bounds::{Discipline, END};
use super::client::Client;
use super::messages::{Answer, Member, Push};
use super::rules::Rules;
use super::server::Script;
use super::state::Event;
use super::store::{Hold, Place};

impl Script<'_> {
    /// Drops what is over, and hands on. False if it stopped before the end of what there is to grant.
    pub fn look_at_the_line(&mut self, speaking: Option<Member>) -> bool {
        if self.is(Rules::CapacityBeforeEnds) {
            let is_done = self.hand_on(speaking);
            self.drop_over();
            return is_done;
        }
        self.drop_over();
        self.hand_on(speaking)
    }

    pub fn drop_over(&mut self) {
        let mut left = self.bounds.at_once;
        let used = self.state.server.used;
        self.state.server.drop_holds(|hold| {
            let is_dropped = hold.left == 0 && left > 0;
            left -= usize::from(is_dropped);
            is_dropped
        });
        if self.is(Rules::EndFreesNothing) {
            self.state.server.used = used;
        }
    }

    /// Grants units to the first present waiters, as long as they fit.
    pub fn hand_on(&mut self, speaking: Option<Member>) -> bool {
        let mut at = 0;
        while let Some(place) = self.state.server.line.get(at).copied() {
            let is_full =
                self.state.server.capacity > 0 && self.state.server.used >= self.state.server.capacity;
            if is_full && !self.is(Rules::CapacityOfEachPlace) {
                return true;
            }
            if self.state.server.rests > 0 {
                self.state.happened(Event::Rested);
                return false;
            }
            let fits = self.fits(place.member, place.takes);
            if place.parked {
                at += 1;
            } else if self.is_absent(place, fits, speaking) {
                if self.is(Rules::DeadHeadIsWaitedFor) {
                    return false;
                }
                let takes = if self.is(Rules::ParkedTakesOne) { 1 } else { place.takes };
                self.state.server.line[at] = Place { parked: true, takes, ..place };
                self.effects.parked = true;
                self.effects.parked_blocker |= !fits;
                if self.is(Rules::NewcomerBargesAfterManyAbsent) {
                    return false;
                }
            } else if !fits {
                if !self.is(Rules::SmallerPasses) {
                    return true;
                }
                at += 1;
            } else if self.effects.granted == self.bounds.at_once {
                self.push_to(place.member, 0);
                self.effects.goes_on = true;
                return false;
            } else {
                self.state.server.line.remove(at);
                self.grant(place.member, Some(place));
                if Some(place.member) != speaking {
                    self.push_to(place.member, self.state.server.last);
                }
                if self.is(Rules::OneGrantAScript) {
                    return true;
                }
            }
        }
        true
    }

    /// Overdue, or not subscribed. A waiter that does not fit needs no message yet, so it may be deaf for a moment.
    fn is_absent(&self, place: Place, fits: bool, speaking: Option<Member>) -> bool {
        // It is no waiter of this lock, and hears why when it asks.
        if self.is_other(place.member) && !self.is(Rules::CapacityOfEachPlace) {
            return true;
        }
        if Some(place.member) == speaking || !fits && self.is(Rules::BlockerNeverParked) {
            return false;
        }
        let is_deaf = self.state.clients[usize::from(place.member.client)].deaf;
        let may_be_deaf = !fits && !self.is(Rules::DeafBlockerParkedAtOnce);
        place.left == 0 || is_deaf && !(may_be_deaf && self.is_fresh(place))
    }

    fn push_to(&mut self, member: Member, token: u8) {
        let client = &mut self.state.clients[usize::from(member.client)];
        client.be_told(Push { request: member.request, token, taken: false });
    }

    /// Grants the member its units, for what is left of its place if it has waited.
    pub fn grant(&mut self, member: Member, place: Option<Place>) -> Answer {
        self.state.barged |= self.passes_over_a_waiter(member, place);
        self.effects.granted += 1;
        let lease = self.bounds.lease(member);
        let in_line = place.filter(|_| self.bounds.discipline == Discipline::HandOff);
        let left = in_line.map_or(lease, |place| place.left.min(lease).max(1));
        let takes = place.map_or(self.bounds.takes(member.client), |place| place.takes);
        self.effects.served += usize::from(place.is_some());
        let token = self.next_number();
        // A map: another hold of this request is overwritten.
        self.state.server.holds.retain(|hold| hold.member != member);
        self.state.server.holds.push(Hold {
            token,
            member,
            takes,
            left,
            own: left,
            after_force: self.state.since_force == END,
        });
        self.state.server.used += takes;
        if self.state.server.capacity == 0 {
            self.state.server.capacity = self.bounds.capacity(member.client);
        }
        self.join_ends();
        Answer::Granted { token, left }
    }

    /// By a wrong rule the request takes the hold of another one of its owner.
    pub fn take_over(&mut self, member: Member) -> Option<Answer> {
        let takes_over = self.is(Rules::LateRequestTakesOver)
            && self.state.server.drop_holds(|hold| hold.member.client == member.client);
        takes_over.then(|| self.grant(member, None))
    }

    pub fn join_ends(&mut self) {
        let last = self.state.server.holds.iter().map(|hold| hold.left).max();
        if self.is(Rules::OneEnd)
            && let Some(last) = last
        {
            self.state.server.holds.iter_mut().for_each(|hold| hold.left = last);
        }
    }

    /// Whether a grant of this request passes over a live waiter that asked before it. One that was deaf since its last
    /// heartbeat may be passed over; but not if it was heard a moment ago, and its units are not free.
    ///
    /// By tickets, and by what the model alone knows, since a wrong rule may give out other tickets. With prompt time, a place
    /// that came back must not be granted before an earlier one that was lost with it: that waiter has had the time for a
    /// heartbeat.
    fn passes_over_a_waiter(&self, member: Member, granted: Option<Place>) -> bool {
        let client_of = |member: Member| &self.state.clients[usize::from(member.client)];
        let taken = self.state.server.taken();
        // Of a request that ends, only the ticket says when it asked.
        let its = client_of(member);
        let stood = if its.lives() == Some(member.request) { its.stood } else { 0 };
        let stood_before = |other: &Client| 0 < other.stood && other.stood < stood;
        let in_line = self.state.server.line.iter().any(|place| {
            let client = client_of(place.member);
            let lives = client.waits_for() == Some(place.member.request) && place.left > 0;
            let blocks =
                taken + self.bounds.takes(place.member.client) > self.bounds.capacity(place.member.client);
            let may_be_passed = client.is_deaf_at_times() && !(blocks && self.is_fresh(*place));
            let earlier = granted.is_none_or(|granted| place.ticket < granted.ticket) || stood_before(client);
            place.member != member && lives && earlier && !may_be_passed
        });
        let others = || (0..).zip(&self.state.clients).filter(|(_, client)| client.lives().is_some());
        let lost = granted.is_some_and(|granted| granted.came_back)
            && others().any(|(at, client)| {
                let stands = self.state.server.line.iter().any(|place| place.member.client == at);
                !stands && at != member.client && stood_before(client)
            });
        let robbed = others().any(|(_, client)| client.robbed && (stood == 0 || stood_before(client)));
        in_line || lost || robbed
    }
}
