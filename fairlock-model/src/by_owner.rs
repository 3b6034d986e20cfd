//! The scripts of the other disciplines, in short: `fairlock-redis/scripts/redisson/`. A hold is named by owner
//! and request; a place by its owner alone, and plain locks have none. Waiters ask by themselves (time is free).

use crate::bounds::{Discipline, PLACE};
use crate::messages::{Answer, Member, Word};
use crate::rules::Rules;
use crate::server::{Place, Script};

impl Script<'_> {
    /// Executes a command.
    pub(crate) fn run_by_owner(&mut self, member: Member, word: Word) -> Answer {
        match word {
            Word::Acquire { end, .. } => self.acquire_by_owner(member, end),
            Word::RenewPlace { .. } => self.renew_place_by_owner(member),
            Word::Withdraw { end } => self.withdraw_by_owner(member, end),
            Word::RenewHold { token } => self.renew_hold(member, token),
            Word::Release { token } => {
                if !self.server.hold.is_some_and(|hold| hold.member == member && hold.token == token) {
                    return Answer::NotHeld;
                }
                self.server.hold = None;
                Answer::Released
            }
        }
    }

    fn acquire_by_owner(&mut self, member: Member, end: u8) -> Answer {
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        while self.server.line.first().is_some_and(|place| place.left == 0) {
            self.server.line.remove(0);
        }
        let place = self.place_of_owner(member);
        // A place does not say of which request it is. So it makes no difference here.
        let counts = place.is_some() && self.rules == Rules::OwnersPlaceIsTheRequests;
        if end == 0 && !counts && self.rules != Rules::NoEndOfAnAsk {
            return Answer::TooLate;
        }
        // Held under another request: which of the two is the late one can't be known here.
        let is_owners = self.server.hold.is_some_and(|hold| hold.member.client == member.client);
        if is_owners && self.rules == Rules::LateRequestTakesOver {
            self.server.hold = None;
            return self.grant(member, None, member.lease());
        }
        if self.server.hold.is_none()
            && place.unwrap_or(0) == 0
            && (place.is_some() || self.server.line.is_empty())
        {
            let place = place.map(|at| self.server.line.remove(at));
            self.note_robbed(member, place);
            return self.grant(member, place, member.lease());
        }
        if self.discipline == Discipline::Plain {
            return Answer::Busy;
        }
        let ticket = match place {
            Some(at) => {
                let its = &mut self.server.line[at];
                its.member.request = its.member.request.max(member.request);
                its.ticket
            }
            None => {
                let ticket = self.next_number();
                self.server.line.push(Place { ticket, member, left: PLACE, parked: false, came_back: false });
                ticket
            }
        };
        Answer::Queued { ticket, latest: self.server.seq, look: None }
    }

    /// It puts no place back, so it needs no end.
    fn renew_place_by_owner(&mut self, member: Member) -> Answer {
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        let Some(at) = self.place_of_owner(member) else { return Answer::PlaceLost };
        self.server.line[at].left = PLACE;
        Answer::Queued { ticket: 0, latest: self.server.seq, look: None }
    }

    fn withdraw_by_owner(&mut self, member: Member, end: u8) -> Answer {
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        if let Some(at) = self.place_of_owner(member) {
            // The place may be that of the owner's next request.
            if end == 0 && self.rules != Rules::NoEndOfAWithdrawal {
                return Answer::TooLate;
            }
            let place = self.server.line.remove(at);
            self.note_robbed(member, Some(place));
        }
        Answer::Left
    }

    fn place_of_owner(&self, member: Member) -> Option<usize> {
        self.server.line.iter().position(|place| place.member.client == member.client)
    }

    /// A living waiter has lost its place by a command of an older request.
    fn note_robbed(&mut self, member: Member, place: Option<Place>) {
        let seen = self.seen[usize::from(member.client)];
        let is_living = seen.living.is_some() && seen.stood > 0;
        if is_living && member.request < seen.request && place.is_some_and(|place| place.left > 0) {
            self.effects.robbed = Some(member.client);
        }
    }
}
