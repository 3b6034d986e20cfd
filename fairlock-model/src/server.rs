//! The scripts of the hand-off, as in `fairlock-redis/scripts/line/`, `lib/line.lua` and `lib/holds.lua`, for one unit: each is one
//! step.

use crate::bounds::{Discipline, HALF_PLACE, PLACE, REST};
use crate::messages::{Answer, Command, Member, Push, Word};
use crate::rules::Rules;

/// A hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The request.
    pub member: Member,
    /// Its fencing token.
    pub token: u8,
    /// Ticks until the key expires.
    pub left: u8,
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
    /// Ticks of the line clock until it counts as absent.
    pub left: u8,
    /// Parked: behind all others, with its ticket kept.
    pub parked: bool,
    /// It was put back after the line was lost. (For the properties with prompt
    /// time only.)
    pub came_back: bool,
}

/// The state of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Server {
    /// The hold; `None` if the lock's key does not exist.
    pub hold: Option<Hold>,
    /// The places, by ticket.
    pub line: Vec<Place>,
    /// The last ticket or token. Only its order among those in use matters.
    pub seq: u8,
    /// The greatest ticket that was granted the lock.
    pub served: u8,
    /// A lost line comes back: no waiter is next for this many ticks of the line clock.
    pub rests: u8,
    /// Ticks since the last script, as far as the line clock follows them.
    pub silent: u8,
}

/// What the server can see of a client, and what only the model knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// NUMSUB of its channel is not 0.
    pub heard: bool,
    /// The request with which it waits alive, never deaf since its last heartbeat: it must not be passed over. (For
    /// the properties only.)
    pub living: Option<u8>,
    /// When that request first stood in line, by order among all; 0 if it has not. (For the properties only.)
    pub stood: u8,
    /// The number of its last request. (For the properties only.)
    pub request: u8,
    /// A command of an older request has cost that request its place. (For the properties only.)
    pub robbed: bool,
}

/// What a script did besides its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effects {
    /// The push that it sent.
    pub push: Option<Push>,
    /// It passed over a live waiter.
    pub barged: bool,
    /// It passed over an absent waiter.
    pub parked: bool,
    /// It handed on a lock that was free when the script began.
    pub found_free: bool,
    /// It put a place back.
    pub put_back: bool,
    /// The lock stayed free because the line rests.
    pub rested: bool,
    /// It took this hold by force.
    pub taken: Option<Hold>,
    /// It took the place of a newer request of this client.
    pub robbed: Option<u8>,
}

/// One running script.
pub struct Script<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// By client.
    pub seen: &'a [Seen],
    /// The right rules, or one wrong rule.
    pub rules: Rules,
    /// By whom places are named.
    pub discipline: Discipline,
    /// Every force that was sent is past its end.
    pub after_force: bool,
    /// Clients ask when they are told to; otherwise they ask at any time, and are not told.
    pub clients_are_prompt: bool,
    /// The effects so far.
    pub effects: Effects,
}

impl Script<'_> {
    /// Executes a command.
    pub fn run(&mut self, Command { member, word }: Command) -> Answer {
        self.open_line();
        if self.discipline != Discipline::HandOff {
            return self.run_by_owner(member, word);
        }
        match word {
            Word::Acquire { told, end } => self.acquire(member, told, end),
            Word::RenewPlace { told, end } => self.renew_place(member, told, end),
            Word::RenewHold { token } => self.renew_hold(member, token),
            Word::Withdraw { .. } => self.withdraw(member),
            Word::Release { token } => self.release(member, token),
        }
    }

    /// `force_release.lua`: takes the lock from any holder.
    pub fn force(&mut self, end: u8) {
        if end == 0 && self.rules != Rules::NoEndOfAForce {
            return;
        }
        self.open_line();
        self.effects.taken = self.server.hold.take();
        if self.discipline == Discipline::HandOff {
            self.hand_on(None);
        }
    }

    fn acquire(&mut self, member: Member, told: u8, end: u8) -> Answer {
        // A repeat, or a lost push.
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        if self.rules == Rules::LateRequestTakesOver
            && self.server.hold.is_some_and(|hold| hold.member.client == member.client)
        {
            self.server.hold = None;
            return self.grant(member, None, member.lease());
        }
        let stands = self.speak(member);
        // The client may have given up this attempt long ago, and nobody would come for what it begins.
        if !stands && end == 0 && self.rules != Rules::NoEndOfAnAsk {
            return Answer::TooLate;
        }
        let stands = stands || self.put_back(member, told);
        if self.server.hold.is_none() {
            if self.rules == Rules::NewcomerBarges && !stands {
                return self.grant(member, None, member.lease());
            }
            let looked = self.hand_on(Some(member));
            if let Some(granted) = self.held_by(member) {
                return granted;
            }
            let may_be_next = match looked {
                Looked::Granted => false,
                Looked::Nobody => true,
                Looked::Stopped => self.rules == Rules::NewcomerBargesAfterManyAbsent,
            };
            if may_be_next && !stands {
                return self.grant(member, None, member.lease());
            }
        }
        if !stands {
            let ticket = self.next_number();
            self.server.line.push(Place { ticket, member, left: PLACE, parked: false, came_back: false });
        }
        self.queued(member)
    }

    fn renew_place(&mut self, member: Member, told: u8, end: u8) -> Answer {
        if self.rules == Rules::NobodyLooks {
            self.speak(member);
            return self.still_queued(member);
        }
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        // It may have crossed the release of the very hold that this place became. A request that still waits asks again.
        let may_be_over = told <= self.server.served && self.rules != Rules::HeartbeatPutsBackTheServed;
        let mut stands = self.speak(member);
        if !stands && !may_be_over {
            if end == 0 && self.rules != Rules::NoEndOfAHeartbeat {
                return Answer::TooLate;
            }
            stands = self.put_back(member, told);
        }
        self.hand_on(Some(member));
        match self.held_by(member) {
            Some(granted) => granted,
            None if stands => self.still_queued(member),
            None => Answer::PlaceLost,
        }
    }

    pub(crate) fn renew_hold(&mut self, member: Member, token: u8) -> Answer {
        let any = self.rules == Rules::RenewalOfAnyHold;
        match &mut self.server.hold {
            Some(hold) if hold.member == member && (hold.token == token || any) => {
                hold.left = hold.left.max(member.lease());
                Answer::Renewed
            }
            _ => Answer::HoldLost,
        }
    }

    fn withdraw(&mut self, member: Member) -> Answer {
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        self.server.line.retain(|place| place.member != member);
        self.hand_on(None);
        Answer::Left
    }

    fn release(&mut self, member: Member, token: u8) -> Answer {
        let any = self.rules == Rules::ReleaseOfAnyHold;
        let found_free = self.server.hold.is_none();
        let found =
            self.server.hold.is_some_and(|hold| any || (hold.member == member && hold.token == token));
        if found {
            self.server.hold = None;
        } else {
            // A late repeat of its request may have put a place in line.
            self.server.line.retain(|place| place.member != member);
        }
        self.hand_on(None);
        self.effects.found_free &= found_free;
        if found { Answer::Released } else { Answer::NotHeld }
    }

    /// The line clock follows the server's, but never jumps.
    fn open_line(&mut self) {
        let passed = std::mem::take(&mut self.server.silent);
        for place in &mut self.server.line {
            place.left = place.left.saturating_sub(passed);
        }
        self.server.rests = self.server.rests.saturating_sub(passed);
    }

    /// A heartbeat of the member: its place lives on at its ticket. False if it has none.
    fn speak(&mut self, member: Member) -> bool {
        let place = self.server.line.iter_mut().find(|place| place.member == member);
        place.is_some_and(|place| {
            (place.left, place.parked) = (PLACE, false);
            true
        })
    }

    /// The member's place is gone: it is put back at its ticket. If that was never served, the line was lost, and rests.
    /// False if it was told none.
    fn put_back(&mut self, member: Member, told: u8) -> bool {
        if told == 0 {
            return false;
        }
        // Later than any grant of the lost place.
        let mark = self.next_number();
        let ticket = if self.rules == Rules::PutBackAtTheTail { mark } else { told };
        let was_lost = told > self.server.served;
        if was_lost && self.server.rests == 0 && self.rules != Rules::LostLineDoesNotRest {
            self.server.rests = REST;
        }
        let came_back = was_lost && self.clients_are_prompt;
        self.server.line.push(Place { ticket, member, left: PLACE, parked: false, came_back });
        self.server.line.sort_by_key(|place| place.ticket);
        self.effects.put_back = true;
        true
    }

    /// The lock is free: the first present waiter gets it.
    fn hand_on(&mut self, speaking: Option<Member>) -> Looked {
        if self.server.hold.is_some() {
            return Looked::Granted;
        }
        if self.server.rests > 0 && !self.server.line.is_empty() {
            self.effects.rested = true;
            return Looked::Stopped;
        }
        let mut looks = 0;
        for at in 0..self.server.line.len() {
            let place = self.server.line[at];
            if place.parked {
                continue;
            }
            let heard = self.seen[usize::from(place.member.client)].heard;
            if Some(place.member) == speaking || (place.left > 0 && heard) {
                let left = place.left.min(place.member.lease()).max(1);
                self.server.line.remove(at);
                self.grant(place.member, Some(place), left);
                self.effects.found_free = true;
                if Some(place.member) != speaking {
                    let token = self.server.seq;
                    self.effects.push = Some(Push { member: place.member, token, taken: false });
                }
                return Looked::Granted;
            }
            if self.rules == Rules::DeadHeadIsWaitedFor {
                return Looked::Stopped;
            }
            self.server.line[at].parked = true;
            self.effects.parked = true;
            looks += 1;
            let most = if self.rules == Rules::NewcomerBargesAfterManyAbsent { 1 } else { u8::MAX };
            if looks == most {
                return Looked::Stopped;
            }
        }
        Looked::Nobody
    }

    pub(crate) fn grant(&mut self, member: Member, place: Option<Place>, left: u8) -> Answer {
        self.effects.barged |= self.passes_over_a_waiter(member, place);
        self.server.served = self.server.served.max(place.map_or(0, |place| place.ticket));
        let token = self.next_number();
        self.server.hold = Some(Hold { member, token, left, after_force: self.after_force });
        Answer::Granted { token, left }
    }

    /// Whether a grant of this request passes over a live waiter that asked before it. By tickets, and by what the model
    /// alone knows, since a wrong rule may give out other tickets. With prompt time, a place that came back must not be
    /// granted before an earlier one that was lost with it: that waiter has had the time for a heartbeat.
    fn passes_over_a_waiter(&self, member: Member, granted: Option<Place>) -> bool {
        let seen = |member: Member| self.seen[usize::from(member.client)];
        // Of a request that ends, only the ticket says when it asked.
        let stood = match seen(member) {
            Seen { living, stood, .. } if living == Some(member.request) => stood,
            _ => 0,
        };
        let stood_before = |of_other: Seen| 0 < of_other.stood && of_other.stood < stood;
        let robbed = self.seen.iter().any(|of_client| {
            of_client.robbed && of_client.living.is_some() && (stood == 0 || stood_before(*of_client))
        });
        let in_line = self.server.line.iter().any(|place| {
            let (of_place, is_it) = (seen(place.member), place.member == member);
            let living = of_place.living == Some(place.member.request);
            let by_ticket = granted.is_none_or(|granted| place.ticket < granted.ticket);
            let earlier = by_ticket || stood_before(of_place);
            !is_it && living && earlier && place.left > 0
        });
        let lost = self.clients_are_prompt
            && granted.is_some_and(|granted| granted.came_back)
            && self.seen.iter().enumerate().any(|(client, of_client)| {
                let stands = self.server.line.iter().any(|place| usize::from(place.member.client) == client);
                let is_it = usize::from(member.client) == client;
                of_client.living.is_some() && !stands && !is_it && stood_before(*of_client)
            });
        in_line || lost || robbed
    }

    pub(crate) fn held_by(&self, member: Member) -> Option<Answer> {
        let hold = self.server.hold.filter(|hold| hold.member == member)?;
        Some(Answer::Granted { token: hold.token, left: hold.left })
    }

    fn queued(&self, member: Member) -> Answer {
        let mut present = self.server.line.iter().filter(|place| !place.parked);
        let is_first = present.next().is_some_and(|place| place.member == member);
        let looks = is_first && self.rules != Rules::NobodyLooks;
        let look = match self.server.hold {
            None if self.server.rests > 0 => Some(self.server.rests),
            hold => looks.then(|| hold.map_or(1, |hold| hold.left)),
        };
        let place = self.server.line.iter().find(|place| place.member == member);
        let look = look.filter(|_| self.clients_are_prompt);
        Answer::Queued { ticket: place.map_or(0, |place| place.ticket), latest: self.server.seq, look }
    }

    fn still_queued(&self, member: Member) -> Answer {
        match self.queued(member) {
            Answer::Queued { latest, look, .. } => Answer::Queued { ticket: 0, latest, look },
            answer => answer,
        }
    }

    pub(crate) fn next_number(&mut self) -> u8 {
        self.server.seq += 1;
        self.server.seq
    }
}

/// The end of a walk along the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// A waiter got the lock.
    Granted,
    /// No waiter is present.
    Nobody,
    /// Unknown: there are more to check.
    Stopped,
}

impl Server {
    /// Time passes. Returns whether a hold has expired.
    pub fn tick(&mut self) -> bool {
        self.silent = (self.silent + 1).min(HALF_PLACE);
        if self.line.is_empty() && self.rests == 0 {
            self.silent = 0; // the line clock affects nothing
        }
        let Some(hold) = &mut self.hold else { return false };
        hold.left -= 1;
        let over = hold.left == 0;
        if over {
            self.hold = None;
        }
        over
    }
}
