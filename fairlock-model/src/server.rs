//! The scripts of the hand-off, as in `fairlock-redis/scripts/hand_off/` and `lib/hand_off.lua`: each is one step.

use crate::bounds::{HALF_PLACE, LEASES, PLACE};
use crate::rules::Rules;

/// A request, by its client and number. It models the member `<client>:<owner>:<request>`; each client has one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// The client.
    pub client: u8,
    /// The number of the request, from 1.
    pub request: u8,
}

impl Member {
    /// The lease that it asks for.
    pub fn lease(self) -> u8 {
        LEASES[usize::from(self.request - 1).min(LEASES.len() - 1)]
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// `acquire.lua`, with a wait.
    Acquire,
    /// `renew.lua`: a heartbeat of a place.
    RenewPlace,
    /// `renew_hold.lua`
    RenewHold {
        /// The token of the hold.
        token: u8,
    },
    /// `withdraw.lua`
    Withdraw,
    /// `release.lua`
    Release {
        /// The token of the hold.
        token: u8,
    },
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// The sender and its request.
    pub member: Member,
    /// The command.
    pub word: Word,
}

/// The answer of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// The request holds the lock, for this long from now on.
    Granted {
        /// The token of the hold.
        token: u8,
        /// What is left of the lease.
        left: u8,
    },
    /// It is in line.
    Queued {
        /// The ticket of its place. Any grant with a smaller token has ended.
        ticket: u8,
        /// When the first in line should ask again; the others need not.
        look: Option<u8>,
    },
    /// It is not in line, and does not hold the lock.
    PlaceLost,
    /// The hold was renewed.
    Renewed,
    /// It is not this hold.
    HoldLost,
    /// The place or the hold is gone.
    Done,
}

/// A hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The request.
    pub member: Member,
    /// Its fencing token.
    pub token: u8,
    /// Ticks until the key expires.
    pub left: u8,
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
}

/// A message to a client that did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// The granted request.
    pub member: Member,
    /// Its token.
    pub token: u8,
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
}

/// One running script.
pub struct Script<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// By client.
    pub seen: &'a [Seen],
    /// The right rules, or one wrong rule.
    pub rules: Rules,
    /// Clients ask when they are told to; otherwise they ask at any time, and are not told.
    pub clients_are_prompt: bool,
    /// The effects so far.
    pub effects: Effects,
}

impl Script<'_> {
    /// Executes a command.
    pub fn run(&mut self, Command { member, word }: Command) -> Answer {
        self.open_line();
        match word {
            Word::Acquire => self.acquire(member),
            Word::RenewPlace => self.renew_place(member),
            Word::RenewHold { token } => self.renew_hold(member, token),
            Word::Withdraw => self.withdraw(member),
            Word::Release { token } => self.release(member, token),
        }
    }

    fn acquire(&mut self, member: Member) -> Answer {
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
            self.server.line.push(Place { ticket, member, left: PLACE, parked: false });
        }
        self.queued(member)
    }

    fn renew_place(&mut self, member: Member) -> Answer {
        if self.rules == Rules::NobodyLooks {
            self.speak(member);
            return self.queued(member);
        }
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        let stands = self.speak(member);
        self.hand_on(Some(member));
        match self.held_by(member) {
            Some(granted) => granted,
            None if stands => self.queued(member),
            None => Answer::PlaceLost,
        }
    }

    fn renew_hold(&mut self, member: Member, token: u8) -> Answer {
        match &mut self.server.hold {
            Some(hold) if hold.member == member && hold.token == token => {
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
        Answer::Done
    }

    fn release(&mut self, member: Member, token: u8) -> Answer {
        let any = self.rules == Rules::ReleaseOfAnyHold;
        let found_free = self.server.hold.is_none();
        if self.server.hold.is_some_and(|hold| any || (hold.member == member && hold.token == token)) {
            self.server.hold = None;
        }
        self.hand_on(None);
        self.effects.found_free &= found_free;
        Answer::Done
    }

    /// The line clock follows the server's, but never jumps.
    fn open_line(&mut self) {
        let passed = std::mem::take(&mut self.server.silent);
        for place in &mut self.server.line {
            place.left = place.left.saturating_sub(passed);
        }
    }

    /// A heartbeat of the member: its place lives on at its ticket. False if it has none.
    fn speak(&mut self, member: Member) -> bool {
        let place = self.server.line.iter_mut().find(|place| place.member == member);
        place.is_some_and(|place| {
            (place.left, place.parked) = (PLACE, false);
            true
        })
    }

    /// The lock is free: the first present waiter gets it.
    fn hand_on(&mut self, speaking: Option<Member>) -> Looked {
        if self.server.hold.is_some() {
            return Looked::Granted;
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
                self.grant(place.member, Some(place.ticket), left);
                self.effects.found_free = true;
                if Some(place.member) != speaking {
                    let token = self.server.seq;
                    self.effects.push = Some(Push { member: place.member, token });
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

    fn grant(&mut self, member: Member, ticket: Option<u8>, left: u8) -> Answer {
        self.effects.barged |= self.server.line.iter().any(|place| {
            let living = self.seen[usize::from(place.member.client)].living == Some(place.member.request);
            let earlier = ticket.is_none_or(|ticket| place.ticket < ticket);
            place.member != member && living && earlier && place.left > 0
        });
        let token = self.next_number();
        self.server.hold = Some(Hold { member, token, left });
        Answer::Granted { token, left }
    }

    fn held_by(&self, member: Member) -> Option<Answer> {
        let hold = self.server.hold.filter(|hold| hold.member == member)?;
        Some(Answer::Granted { token: hold.token, left: hold.left })
    }

    fn queued(&self, member: Member) -> Answer {
        let mut present = self.server.line.iter().filter(|place| !place.parked);
        let is_first = present.next().is_some_and(|place| place.member == member);
        let looks = is_first && self.rules != Rules::NobodyLooks;
        let look = looks.then(|| self.server.hold.map_or(1, |hold| hold.left));
        let place = self.server.line.iter().find(|place| place.member == member);
        let look = look.filter(|_| self.clients_are_prompt);
        Answer::Queued { ticket: place.map_or(0, |place| place.ticket), look }
    }

    fn next_number(&mut self) -> u8 {
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
        if self.line.is_empty() {
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
