//! The scripts of the other disciplines, in short: `fairlock-redis/scripts/redisson/`. A hold is named by owner
//! and request; a place by its owner alone, and plain locks have none. Waiters ask by themselves (time is free).

use super::bounds::Discipline;
use super::messages::{Answer, Member, Verb, Word};
use super::rules::Rules;
use super::server::Script;
use super::store::Place;

impl Script<'_> {
    /// Executes a command.
    pub fn run_by_owner(&mut self, member: Member, word: Word) -> Answer {
        match word.verb {
            Verb::Renew => return self.renew(member, word.number),
            Verb::Release => {
                let its = |token: u8| token == word.number;
                let found = self.state.server.drop_holds(|hold| hold.member == member && its(hold.token));
                return if found { Answer::Released } else { Answer::NotHeld };
            }
            _ => {}
        }
        if let Some(granted) = self.held_by(member) {
            return granted;
        }
        match word.verb {
            Verb::Ask => self.ask_by_owner(member, word),
            Verb::Heartbeat => self.heartbeat_by_owner(member),
            _ => self.withdraw_by_owner(member, word),
        }
    }

    fn ask_by_owner(&mut self, member: Member, word: Word) -> Answer {
        while self.state.server.line.first().is_some_and(|place| place.left == 0) {
            self.state.server.line.remove(0);
        }
        let place = self.place_of_owner(member);
        // A place does not say of which request it is. So it makes no difference here.
        let counts = place.is_some() && self.is(Rules::OwnersPlaceIsTheRequests);
        if !counts && self.is_late(word, Rules::NoEndOfAnAsk) {
            return Answer::TooLate;
        }
        // Held under another request: which of the two is the late one can't be known here.
        if let Some(granted) = self.take_over(member) {
            return granted;
        }
        if self.state.server.holds.is_empty()
            && place.unwrap_or(0) == 0
            && (place.is_some() || self.state.server.line.is_empty())
        {
            let place = place.map(|at| self.state.server.line.remove(at));
            let granted = self.grant(member, place);
            self.note_robbed(member, place);
            return granted;
        }
        if self.bounds.discipline == Discipline::Plain {
            return Answer::Busy;
        }
        let ticket = match place {
            Some(at) => {
                let its = &mut self.state.server.line[at];
                its.member.request = its.member.request.max(member.request);
                its.ticket
            }
            None => self.join(member),
        };
        Answer::Queued { ticket, latest: self.state.server.last, look: None }
    }

    /// It puts no place back, so it needs no end.
    fn heartbeat_by_owner(&mut self, member: Member) -> Answer {
        let Some(at) = self.place_of_owner(member) else { return Answer::PlaceLost };
        self.state.server.line[at].left = self.bounds.times.place;
        Answer::Queued { ticket: 0, latest: self.state.server.last, look: None }
    }

    fn withdraw_by_owner(&mut self, member: Member, word: Word) -> Answer {
        if let Some(at) = self.place_of_owner(member) {
            // The place may be that of the owner's next request.
            if self.is_late(word, Rules::NoEndOfAWithdrawal) {
                return Answer::TooLate;
            }
            let place = self.state.server.line.remove(at);
            self.note_robbed(member, Some(place));
        }
        Answer::Left
    }

    fn place_of_owner(&self, member: Member) -> Option<usize> {
        self.state.server.line.iter().position(|place| place.member.client == member.client)
    }

    /// A living waiter has lost its place by a command of an older request.
    fn note_robbed(&mut self, member: Member, place: Option<Place>) {
        let client = &mut self.state.clients[usize::from(member.client)];
        let is_living = client.lives().is_some() && client.stood > 0;
        let was_present = place.is_some_and(|place| place.left > 0);
        client.robbed |= is_living && member.request < client.request && was_present;
    }
}
