//! The scripts of the hand-off, as `fairlock-redis/scripts/hand_off/` and `lib/hand_off.lua` have them: each is one step.

use crate::bounds::{HALF_PLACE, LEASES, PLACE};
use crate::rules::Rules;

/// A request: whose, and which of his. It stands for the member `<client>:<owner>:<request>`; each client has one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// Whose.
    pub client: u8,
    /// Which, from 1.
    pub request: u8,
}

impl Member {
    /// The lease that it asks for.
    pub fn lease(self) -> u8 {
        LEASES[usize::from(self.request - 1).min(LEASES.len() - 1)]
    }
}

/// What a command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// `acquire.lua`, with a wait.
    Acquire,
    /// `renew.lua`: a heartbeat of a place.
    RenewPlace,
    /// `renew_hold.lua`
    RenewHold {
        /// Of the hold.
        token: u8,
    },
    /// `withdraw.lua`
    Withdraw,
    /// `release.lua`
    Release {
        /// Of the hold.
        token: u8,
    },
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// Who sent it, and for which request.
    pub member: Member,
    /// What it says.
    pub word: Word,
}

/// What a script returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// The request holds the lock, for so long from now on.
    Granted {
        /// Of the hold.
        token: u8,
        /// What is left of it.
        left: u8,
    },
    /// It stands in line.
    Queued {
        /// Of its place. Any grant with a smaller token is over.
        ticket: u8,
        /// When the first in line should look; the others need not.
        look: Option<u8>,
    },
    /// It does not stand in line, and does not hold the lock.
    PlaceLost,
    /// The hold was prolonged.
    Renewed,
    /// It is not this hold.
    HoldLost,
    /// The line was left, or the hold given up, or there was nothing to give up.
    Done,
}

/// Who holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Which request.
    pub member: Member,
    /// Its fencing token.
    pub token: u8,
    /// Ticks until the key expires.
    pub left: u8,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// First asked, first served.
    pub ticket: u8,
    /// Whose.
    pub member: Member,
    /// Ticks of the line clock until it counts as absent.
    pub left: u8,
    /// Absent: behind all others, its ticket kept.
    pub parked: bool,
}

/// What somebody is told who did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// Which request was granted.
    pub member: Member,
    /// With which token.
    pub token: u8,
}

/// All that the server has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Server {
    /// The lock's key; none when it does not exist.
    pub hold: Option<Hold>,
    /// By ticket.
    pub line: Vec<Place>,
    /// The last ticket or token. Only its order among those that are still about counts.
    pub seq: u8,
    /// Ticks since the last script, as far as the line clock will follow.
    pub silent: u8,
}

/// What the server can know of a client, and what only the model knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// NUMSUB of its channel is not 0.
    pub heard: bool,
    /// For which request it waits, alive, and never deaf since it last spoke: nobody may pass it. (For the properties only.)
    pub living: Option<u8>,
}

/// What a script did besides answering.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effects {
    /// Whom it told.
    pub push: Option<Push>,
    /// It passed over somebody alive.
    pub barged: bool,
    /// It passed over somebody absent.
    pub parked: bool,
    /// It handed on a lock that was free when the script began.
    pub found_free: bool,
}

/// One script under way.
pub struct Script<'a> {
    /// What it works on.
    pub server: &'a mut Server,
    /// By client.
    pub seen: &'a [Seen],
    /// Right, or wrong in one way.
    pub rules: Rules,
    /// Clients look when they are told to; else they look at any time, and are not told.
    pub clients_are_prompt: bool,
    /// What came of it.
    pub effects: Effects,
}

impl Script<'_> {
    /// Carries a command out.
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
        // A repeat, or a push that was lost.
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

    /// The line clock follows the server's, but takes no leap.
    fn open_line(&mut self) {
        let passed = std::mem::take(&mut self.server.silent);
        for place in &mut self.server.line {
            place.left = place.left.saturating_sub(passed);
        }
    }

    /// The member has been heard: its place lives on, where its ticket says. False: it has none.
    fn speak(&mut self, member: Member) -> bool {
        let place = self.server.line.iter_mut().find(|place| place.member == member);
        place.is_some_and(|place| {
            (place.left, place.parked) = (PLACE, false);
            true
        })
    }

    /// The lock is free: the first who is present gets it.
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

/// How a walk along the line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// The lock is somebody's.
    Granted,
    /// Nobody is present.
    Nobody,
    /// Nobody knows: there are more.
    Stopped,
}

impl Server {
    /// Time goes by. True: a hold has expired.
    pub fn tick(&mut self) -> bool {
        self.silent = (self.silent + 1).min(HALF_PLACE);
        if self.line.is_empty() {
            self.silent = 0; // nothing hangs on the line clock
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
