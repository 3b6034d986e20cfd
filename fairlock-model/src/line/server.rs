//! The scripts of the line, as in `fairlock-redis/scripts/line/`, `lib/line.lua` and `lib/holds.lua`: each is one step.

use super::bounds::{Bounds, Discipline, REST};
use super::messages::{Answer, Command, Member, Push, Verb, Word};
use super::rules::Rules;
use super::state::{Event, State};
use super::store::{Hold, Place};

/// What a script did besides its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effects {
    /// How many it granted.
    pub granted: usize,
    /// How many of them had a place.
    pub served: usize,
    /// It parked an absent waiter.
    pub parked: bool,
    /// It parked a waiter that did not fit.
    pub parked_blocker: bool,
    /// It told a waiter to look.
    pub goes_on: bool,
}

/// One running script.
pub struct Script<'a> {
    /// The limits of the check.
    pub bounds: &'a Bounds,
    /// The server, and what the model knows besides.
    pub state: &'a mut State,
    /// The effects so far.
    pub effects: Effects,
}

impl Script<'_> {
    /// Executes a command.
    pub fn run(&mut self, Command { member, word }: Command) -> Answer {
        self.open_line();
        if self.bounds.discipline != Discipline::HandOff {
            return self.run_by_owner(member, word);
        }
        match word.verb {
            Verb::Ask => self.ask(member, word),
            Verb::Heartbeat => self.heartbeat(member, word),
            Verb::Renew => self.renew(member, word.number),
            Verb::Withdraw => self.withdraw(member),
            Verb::Release => self.release(member, word.number),
        }
    }

    /// `force_release.lua`: takes the lock from any holder.
    pub fn force(&mut self, end: u8) {
        if end == 0 && !self.is(Rules::NoEndOfAForce) {
            return;
        }
        self.open_line();
        if let Some(Hold { member, token, after_force, .. }) = self.state.server.holds.first().copied() {
            self.state.seized |= after_force;
            let client = &mut self.state.clients[usize::from(member.client)];
            if !client.dead && client.request == member.request {
                client.forced = token;
            }
            client.be_told(Push { request: member.request, token, taken: true });
        }
        self.state.server.drop_holds(|_| true);
        if self.bounds.discipline == Discipline::HandOff {
            self.hand_on(None);
        }
    }

    /// The request, and its repeat.
    fn ask(&mut self, member: Member, word: Word) -> Answer {
        let takes = self.bounds.takes(member.client);
        if let Some(granted) = self.held_by(member) {
            if self.is(Rules::RepeatIsGrantedAnew) && self.fits(member, takes) {
                return self.grant(member, None);
            }
            return granted;
        }
        if let Some(granted) = self.take_over(member) {
            return granted;
        }
        if self.state.server.live_holds().next().is_some() && self.is_other(member) {
            return Answer::Mismatch;
        }
        if !self.is(Rules::OwnEndedHoldStays) {
            // One script may not drop all that are over, and another hold of this request would take its place.
            self.state.server.drop_holds(|hold| hold.member == member && hold.left == 0);
        }
        let stands = self.speak(member);
        // The client may have given up this attempt long ago, and nobody would come for what it begins.
        if !stands && self.is_late(word, Rules::NoEndOfAnAsk) {
            return Answer::TooLate;
        }
        let stands = stands || self.put_back(member, word.number);
        if self.is(Rules::NewcomerBarges) && !stands && self.fits(member, takes) {
            return self.grant(member, None);
        }
        let is_done = self.look_at_the_line(Some(member));
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        if !stands {
            let is_next = match self.bounds.rules {
                Rules::NewcomerBargesBetweenParts | Rules::NewcomerBargesAfterManyAbsent if !is_done => true,
                _ => !self.is_resting() && self.state.server.line.iter().all(|place| place.parked),
            };
            if is_next && self.fits(member, takes) && !self.is_other(member) {
                return self.grant(member, None);
            }
            if self.is_other(member) {
                return Answer::Mismatch;
            }
            self.join(member);
        }
        self.queued(member)
    }

    fn heartbeat(&mut self, member: Member, word: Word) -> Answer {
        if self.is(Rules::NobodyLooks) {
            self.speak(member);
            return self.still_queued(member);
        }
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        // It may have crossed the release of the hold that the place became, or the withdrawal: only a place that was lost is put
        // back. A request that still waits asks again.
        let may_be_over =
            !self.state.server.lost.contains(&member) && !self.is(Rules::HeartbeatPutsBackTheServed);
        let mut stands = self.speak(member);
        if !stands && !may_be_over {
            if self.is_late(word, Rules::NoEndOfAHeartbeat) {
                return Answer::TooLate;
            }
            stands = self.put_back(member, word.number);
        }
        self.hand_on(Some(member));
        match self.held_by(member) {
            Some(granted) => granted,
            None if stands => self.still_queued(member),
            None => Answer::PlaceLost,
        }
    }

    /// Touches no other hold, and does not look at the line: waiters have heartbeats, and the first looks at ends.
    pub fn renew(&mut self, member: Member, token: u8) -> Answer {
        let (lease, rules) = (self.bounds.lease(member), self.bounds.rules);
        let any = rules == Rules::RenewalOfAnyHold;
        let mut holds = self.state.server.holds.iter_mut();
        let answer = match holds.find(|hold| hold.member == member && (any || hold.token == token)) {
            Some(own) if own.left > 0 || rules == Rules::EndedIsRenewed => {
                self.state.revived |= own.left == 0;
                (own.left, own.own) = (own.left.max(lease), own.own.max(lease));
                if rules == Rules::RenewalRaisesAll {
                    self.state.server.holds.iter_mut().for_each(|hold| hold.left = lease);
                }
                Answer::Renewed
            }
            own => {
                if own.is_some() {
                    self.state.happened(Event::EndedRefused);
                }
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
        self.state.server.leave(member);
        if !self.is(Rules::WithdrawalWithoutHandOn) {
            self.look_at_the_line(None);
        }
        if self.state.server.any_over() { Answer::More } else { Answer::Left }
    }

    fn release(&mut self, member: Member, token: u8) -> Answer {
        let any = self.is(Rules::ReleaseOfAnyHold);
        let is_its = |hold: &Hold| any || hold.member == member && hold.token == token;
        let found = self.state.server.drop_holds(is_its);
        if !found {
            // A late repeat of its request may have put a place in line.
            self.state.server.leave(member);
            if self.is(Rules::FreedTwice) {
                let takes = self.bounds.takes(member.client);
                self.state.server.used = self.state.server.used.saturating_sub(takes);
            }
        }
        self.look_at_the_line(None);
        match found {
            _ if self.state.server.any_over() => Answer::More,
            true => Answer::Released,
            false => Answer::NotHeld,
        }
    }

    /// The line clock follows the server's, but never jumps.
    fn open_line(&mut self) {
        let passed = std::mem::take(&mut self.state.server.silent);
        for place in &mut self.state.server.line {
            place.left = place.left.saturating_sub(passed);
        }
        self.state.server.rests = self.state.server.rests.saturating_sub(passed);
    }

    /// A heartbeat of the member: its place lives on at its ticket. False if it has none.
    fn speak(&mut self, member: Member) -> bool {
        let left = self.bounds.times.place;
        let place = self.state.server.place_of(member);
        place.map(|place| (place.left, place.parked) = (left, false)).is_some()
    }

    /// The member gets a place at the tail.
    pub fn join(&mut self, member: Member) -> u8 {
        let (takes, left, ticket) =
            (self.bounds.takes(member.client), self.bounds.times.place, self.next_number());
        self.state.server.lost.retain(|lost| *lost != member);
        self.state.server.line.push(Place { ticket, member, takes, left, parked: false, came_back: false });
        ticket
    }

    /// The member's place is gone: it is put back at its ticket. If it was lost, the line was, and rests.
    /// False if it was told none.
    fn put_back(&mut self, member: Member, told: u8) -> bool {
        if told == 0 {
            return false;
        }
        let was_lost = self.state.server.lost.contains(&member);
        // The mark of a new place is later than any grant of the lost one.
        let mark = self.join(member);
        if was_lost && self.state.server.rests == 0 && !self.is(Rules::LostLineDoesNotRest) {
            self.state.server.rests = REST;
        }
        let came_back = was_lost && self.bounds.is_prompt();
        let ticket = if self.is(Rules::PutBackAtTheTail) { mark } else { told };
        let its = self.state.server.place_of(member);
        its.into_iter().for_each(|place| (place.ticket, place.came_back) = (ticket, came_back));
        self.state.server.line.sort_by_key(|place| place.ticket);
        self.state.happened(Event::PutBack);
        true
    }

    fn queued(&self, member: Member) -> Answer {
        let mut present = self.state.server.line.iter().filter(|place| !place.parked);
        let is_first = present.next().is_some_and(|place| place.member == member);
        let lefts = self.state.server.holds.iter().map(|hold| hold.left);
        let end = if self.is(Rules::LastEnd) { lefts.max() } else { lefts.min() };
        let is_blind = matches!(self.bounds.rules, Rules::NoLookAtEnds | Rules::NobodyLooks);
        let looks = |end: &u8| !is_blind && (is_first || *end < self.bounds.times.heartbeat);
        // In 0 ticks only if there are more to drop.
        let least = u8::from(!self.state.server.any_over() || self.is(Rules::CapacityBeforeEnds));
        let look = match end {
            None if self.state.server.rests > 0 => Some(self.state.server.rests),
            end => end.filter(looks).map(|end| end.max(least)),
        };
        let place = self.state.server.line.iter().find(|place| place.member == member);
        Answer::Queued {
            ticket: place.filter(|_| self.bounds.is_whole()).map_or(0, |place| place.ticket),
            latest: self.state.server.last,
            look: look.filter(|_| self.bounds.is_prompt()),
        }
    }

    fn still_queued(&self, member: Member) -> Answer {
        match self.queued(member) {
            Answer::Queued { latest, look, .. } => Answer::Queued { ticket: 0, latest, look },
            answer => answer,
        }
    }

    /// The hold of this request.
    pub fn held_by(&self, member: Member) -> Option<Answer> {
        let hold = self.state.server.live_holds().find(|hold| hold.member == member)?;
        Some(Answer::Granted { token: hold.token, left: hold.left })
    }

    /// Whether its units are free.
    pub fn fits(&self, member: Member, takes: u8) -> bool {
        self.state.server.used + takes <= self.bounds.capacity(member.client)
    }

    /// Whether an attempt is past its end, unless by this wrong rule it has none.
    pub fn is_late(&self, word: Word, endless: Rules) -> bool {
        word.end == 0 && self.bounds.has_end(word.verb) && !self.is(endless)
    }

    /// Whether it was heard less than half of its time ago.
    pub fn is_fresh(&self, place: Place) -> bool {
        2 * place.left > self.bounds.times.place
    }

    /// Whether it says another capacity than that of the lock.
    pub fn is_other(&self, member: Member) -> bool {
        let differs = ![0, self.bounds.capacity(member.client)].contains(&self.state.server.capacity);
        differs && !self.is(Rules::NewcomersCapacity)
    }

    fn is_resting(&self) -> bool {
        self.state.server.rests > 0 && !self.state.server.line.is_empty()
    }

    pub fn next_number(&mut self) -> u8 {
        self.state.server.last += 1;
        self.state.server.last
    }

    /// Whether these are the rules.
    pub fn is(&self, rules: Rules) -> bool {
        self.bounds.is(rules)
    }
}
