//! The scripts of the weighted line: each is one step.

use super::bounds::Bounds;
use super::rules::Rules;
use super::state::{Answer, Command, Member, Push, Word};
use super::store::{Hold, Place, Server};

/// What the server can see of a client, and what only the model knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// NUMSUB of its channel is not 0.
    pub heard: bool,
    /// The request with which it waits, alive. (For the properties only.)
    pub waits: Option<u8>,
    /// It was deaf at some time since its last heartbeat. (For the properties only.)
    pub was_deaf: bool,
}

/// What a script did besides its answer.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// The grants that it pushed, and the waiter that it told to look.
    pub pushes: Vec<Push>,
    /// It passed over a live waiter.
    pub barged: bool,
    /// A hold that was over lives again.
    pub revived: bool,
    /// How many it granted.
    pub granted: usize,
    /// It parked a waiter that did not fit.
    pub parked_blocker: bool,
    /// It was a release that found no hold.
    pub freed_nothing: bool,
    /// It refused a request that says another capacity.
    pub refused_capacity: bool,
    /// It refused to renew a hold that was over.
    pub refused: bool,
}

/// One running script.
pub struct Script<'a> {
    /// The limits of the check.
    pub bounds: &'a Bounds,
    /// The server.
    pub server: &'a mut Server,
    /// By client.
    pub seen: &'a [Seen],
    /// The effects so far.
    pub effects: Effects,
}

impl Script<'_> {
    /// Executes a command.
    pub fn run(&mut self, Command { member, word }: Command) -> Answer {
        let passed = std::mem::take(&mut self.server.silent);
        for place in &mut self.server.line {
            place.left = place.left.saturating_sub(passed);
        }
        match word {
            Word::Ask => self.ask(member),
            Word::Renew { token } => self.renew(member, token),
            Word::Withdraw => self.withdraw(member),
            Word::Release { token } => self.release(member, token),
        }
    }

    /// The request, its repeat, and the heartbeat of its place.
    fn ask(&mut self, member: Member) -> Answer {
        if let Some(granted) = self.held_by(member) {
            let takes = self.bounds.takes(member.client);
            if self.is(Rules::RepeatIsGrantedAnew) && self.fits(member, takes) {
                return self.grant(member, takes, None, self.bounds.times.lease);
            }
            return granted;
        }
        if self.server.live_holds().next().is_some() && self.is_other(member) {
            return self.mismatch();
        }
        if !self.is(Rules::OwnEndedHoldStays) {
            // One script may not drop all that are over, and another hold of this request would take its place.
            self.drop_holds(|hold| hold.member == member && hold.left == 0);
        }
        let place = self.bounds.times.place;
        let own = self.server.line.iter_mut().find(|place| place.member == member);
        let stands = own.map(|own| (own.left, own.parked) = (place, false)).is_some();
        let is_done = self.look_at_the_line(Some(member));
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        if !stands {
            let takes = self.bounds.takes(member.client);
            let is_next = match self.bounds.rules {
                Rules::NewcomerBarges => true,
                Rules::NewcomerBargesBetweenParts if !is_done => true,
                _ => !self.server.line.iter().any(|place| !place.parked),
            };
            if is_next && self.fits(member, takes) && !self.is_other(member) {
                let lease = self.bounds.times.lease;
                return self.grant(member, takes, None, lease);
            }
            if self.is_other(member) {
                return self.mismatch();
            }
            let ticket = self.next_number();
            self.server.line.push(Place { ticket, member, takes, left: place, parked: false });
        }
        self.queued(member)
    }

    /// Touches no other hold, and does not look at the line: waiters have heartbeats, and the first looks at ends.
    fn renew(&mut self, member: Member, token: u8) -> Answer {
        let (lease, rules) = (self.bounds.times.lease, self.bounds.rules);
        let own = self.server.holds.iter_mut().find(|hold| hold.member == member && hold.token == token);
        let answer = match own {
            Some(own) if own.left > 0 || rules == Rules::EndedIsRenewed => {
                self.effects.revived |= own.left == 0;
                (own.left, own.own) = (own.left.max(lease), lease);
                if rules == Rules::RenewalRaisesAll {
                    self.server.holds.iter_mut().for_each(|hold| hold.left = lease);
                }
                Answer::Renewed
            }
            own => {
                self.effects.refused = own.is_some();
                Answer::HoldLost
            }
        };
        self.join_ends();
        match self.bounds.rules {
            Rules::RenewalDropsOthers => self.drop_over(),
            Rules::RenewalHandsOn => {
                self.look_at_the_line(None);
            }
            _ => {}
        }
        answer
    }

    fn withdraw(&mut self, member: Member) -> Answer {
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        self.server.line.retain(|place| place.member != member);
        if self.is(Rules::WithdrawalWithoutHandOn) {
            return Answer::Done { more: false };
        }
        self.look_at_the_line(None);
        Answer::Done { more: self.any_over() }
    }

    fn release(&mut self, member: Member, token: u8) -> Answer {
        if !self.drop_holds(|hold| hold.member == member && hold.token == token) {
            self.effects.freed_nothing = true;
            // A late repeat of its request may have put a place in line.
            self.server.line.retain(|place| place.member != member);
            if self.is(Rules::FreedTwice) {
                let takes = self.bounds.takes(member.client);
                self.server.used = self.server.used.saturating_sub(takes);
            }
        }
        self.look_at_the_line(None);
        Answer::Done { more: self.any_over() }
    }

    /// Drops what is over, and hands on. False if there are more to grant.
    fn look_at_the_line(&mut self, speaking: Option<Member>) -> bool {
        if self.is(Rules::CapacityBeforeEnds) {
            let is_done = self.hand_on(speaking);
            self.drop_over();
            return is_done;
        }
        self.drop_over();
        self.hand_on(speaking)
    }

    fn drop_over(&mut self) {
        let mut left = self.bounds.at_once;
        let used = self.server.used;
        self.drop_holds(|hold| {
            let is_dropped = hold.left == 0 && left > 0;
            left -= usize::from(is_dropped);
            is_dropped
        });
        if self.is(Rules::EndFreesNothing) {
            self.server.used = used;
        }
    }

    /// Whether there were any.
    fn drop_holds(&mut self, mut which: impl FnMut(&Hold) -> bool) -> bool {
        let Server { capacity, used, holds, .. } = &mut *self.server;
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

    /// Grants units to the first present waiters, as long as they fit. False if one script may not grant all that fit.
    fn hand_on(&mut self, speaking: Option<Member>) -> bool {
        let mut at = 0;
        while let Some(place) = self.server.line.get(at).copied() {
            let fits = self.fits(place.member, place.takes);
            if place.parked {
                at += 1;
            } else if self.is_absent(place, fits, speaking) {
                let takes = if self.is(Rules::ParkedTakesOne) { 1 } else { place.takes };
                self.server.line[at] = Place { parked: true, takes, ..place };
                self.effects.parked_blocker |= !fits;
            } else if !fits {
                if !self.is(Rules::SmallerPasses) {
                    return true;
                }
                at += 1;
            } else if self.effects.granted == self.bounds.at_once {
                self.effects.pushes.push(push_to(place.member, None));
                return false;
            } else {
                self.server.line.remove(at);
                let lease = place.left.min(self.bounds.times.lease).max(1);
                self.grant(place.member, place.takes, Some(place), lease);
                if Some(place.member) != speaking {
                    self.effects.pushes.push(push_to(place.member, Some(self.server.last)));
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
        if !fits && self.is(Rules::BlockerNeverParked) {
            return false;
        }
        if Some(place.member) == speaking {
            return false;
        }
        let heard = self.seen[usize::from(place.member.client)].heard;
        let may_be_deaf = !fits && !self.is(Rules::DeafBlockerParkedAtOnce);
        place.left == 0 || !(heard || may_be_deaf && is_fresh(place, self.bounds))
    }

    fn grant(&mut self, member: Member, takes: u8, place: Option<Place>, left: u8) -> Answer {
        self.effects.barged |= self.passes_over_a_waiter(member, place);
        self.effects.granted += 1;
        let token = self.next_number();
        // A map: another hold of this request is overwritten.
        self.server.holds.retain(|hold| hold.member != member);
        self.server.holds.push(Hold { token, member, takes, left, own: left });
        self.server.used += takes;
        if self.server.capacity == 0 {
            self.server.capacity = self.bounds.capacity(member.client);
        }
        self.join_ends();
        Answer::Granted { token, left }
    }

    fn join_ends(&mut self) {
        let last = self.server.holds.iter().map(|hold| hold.left).max();
        if self.is(Rules::OneEnd)
            && let Some(last) = last
        {
            self.server.holds.iter_mut().for_each(|hold| hold.left = last);
        }
    }

    /// Whether a grant of this request passes over a live waiter that asked before it. One that was deaf since its last
    /// heartbeat may be passed over; but not if it was heard a moment ago, and its units are not free.
    fn passes_over_a_waiter(&self, member: Member, granted: Option<Place>) -> bool {
        let taken: u8 = self.server.live_holds().map(|hold| hold.takes).sum();
        self.server.line.iter().any(|place| {
            let seen = self.seen[usize::from(place.member.client)];
            let lives = seen.waits == Some(place.member.request) && place.left > 0;
            let client = place.member.client;
            let blocks = taken + self.bounds.takes(client) > self.bounds.capacity(client);
            let may_be_passed = seen.was_deaf && !(blocks && is_fresh(*place, self.bounds));
            let earlier = granted.is_none_or(|granted| place.ticket < granted.ticket);
            place.member != member && lives && earlier && !may_be_passed
        })
    }

    fn queued(&self, member: Member) -> Answer {
        let present: Vec<_> = self.server.line.iter().filter(|place| !place.parked).collect();
        let is_first = present.first().is_some_and(|place| place.member == member);
        let lefts = self.server.holds.iter().map(|hold| hold.left);
        let end = if self.is(Rules::LastEnd) { lefts.max() } else { lefts.min() };
        let is_blind = self.is(Rules::NoLookAtEnds);
        let looks = |end: &u8| !is_blind && (is_first || *end < self.bounds.times.heartbeat);
        // In 0 ticks only if there are more to drop.
        let least = u8::from(!self.any_over() || self.is(Rules::CapacityBeforeEnds));
        let look = end.filter(looks).map(|end| end.max(least)).filter(|_| self.bounds.is_prompt());
        Answer::Queued { latest: self.server.last, look }
    }

    fn held_by(&self, member: Member) -> Option<Answer> {
        let hold = self.server.live_holds().find(|hold| hold.member == member)?;
        Some(Answer::Granted { token: hold.token, left: hold.left })
    }

    fn any_over(&self) -> bool {
        self.server.holds.iter().any(|hold| hold.left == 0)
    }

    fn fits(&self, member: Member, takes: u8) -> bool {
        self.server.used + takes <= self.bounds.capacity(member.client)
    }

    /// Whether it says another capacity than that of the lock.
    fn is_other(&self, member: Member) -> bool {
        let differs = ![0, self.bounds.capacity(member.client)].contains(&self.server.capacity);
        differs && !self.is(Rules::NewcomersCapacity)
    }

    fn mismatch(&mut self) -> Answer {
        self.effects.refused_capacity = true;
        Answer::Mismatch
    }

    fn next_number(&mut self) -> u8 {
        self.server.last += 1;
        self.server.last
    }

    fn is(&self, rules: Rules) -> bool {
        self.bounds.rules == rules
    }
}

fn push_to(member: Member, token: Option<u8>) -> Push {
    Push { client: member.client, request: member.request, token }
}

/// Whether it was heard less than half of its time ago.
fn is_fresh(place: Place, bounds: &Bounds) -> bool {
    2 * place.left > bounds.times.place
}
