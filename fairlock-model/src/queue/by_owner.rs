//! Redisson's queue, in short: `fairlock-redis/scripts/redisson/`. A hold is named by owner and request; a place by its owner alone.
//! Waiters ask by themselves (time is free).

use super::messages::{Answer, Member, Verb, Word};
use super::rules::Rules;
use super::server::Script;
use super::store::{Place, Server};

impl Script<'_> {
    /// Executes a command.
    pub fn run_by_owner(&mut self, member: Member, word: Word) -> Answer {
        let server = self.server();
        let passed = std::mem::take(&mut server.silent);
        server.queue.iter_mut().for_each(|place| place.left = place.left.saturating_sub(passed));
        match word.verb {
            Verb::Renew => return self.renew(member, word.number),
            Verb::Release => {
                let holds = &mut self.server().holds;
                let before = holds.len();
                holds.retain(|hold| hold.member != member || hold.token != word.number);
                return if holds.len() < before { Answer::Released } else { Answer::NotHeld };
            }
            _ => {}
        }
        if let Some(hold) = self.state.server.hold_of(member) {
            return Answer::Granted { token: hold.token, left: hold.left };
        }
        match word.verb {
            Verb::Ask => self.ask_by_owner(member, word),
            Verb::Heartbeat => self.heartbeat_by_owner(member),
            _ => self.withdraw_by_owner(member, word),
        }
    }

    fn ask_by_owner(&mut self, member: Member, word: Word) -> Answer {
        while self.state.server.queue.first().is_some_and(|place| place.left == 0) {
            self.state.server.queue.remove(0);
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
            && (place.is_some() || self.state.server.queue.is_empty())
        {
            let place = place.map(|at| self.state.server.queue.remove(at));
            let granted = self.grant(member);
            self.note_robbed(member, place);
            return granted;
        }
        let ticket = match place {
            Some(at) => {
                let Server { queue, last, .. } = &mut self.state.server;
                *last += 1; // so this is no new place
                let its = &mut queue[at];
                its.member.request = its.member.request.max(member.request);
                its.ticket
            }
            None => {
                let (takes, lease, left) = (1, self.bounds.lease(member), self.bounds.times.place);
                let server = self.server();
                server.last += 1;
                let ticket = server.last;
                server.queue.push(Place {
                    ticket,
                    member,
                    takes,
                    lease,
                    left,
                    late: 0,
                    heard: true,
                    came_back: false,
                });
                ticket
            }
        };
        Answer::Queued { ticket, latest: self.state.server.last, look: None }
    }

    /// It puts no place back, so it needs no end.
    fn heartbeat_by_owner(&mut self, member: Member) -> Answer {
        let Some(at) = self.place_of_owner(member) else { return Answer::PlaceLost };
        self.state.server.queue[at].left = self.bounds.times.place;
        Answer::Queued { ticket: 0, latest: self.state.server.last, look: None }
    }

    fn withdraw_by_owner(&mut self, member: Member, word: Word) -> Answer {
        if let Some(at) = self.place_of_owner(member) {
            // The place may be that of the owner's next request.
            if self.is_late(word, Rules::NoEndOfAWithdrawal) {
                return Answer::TooLate;
            }
            let place = self.state.server.queue.remove(at);
            self.note_robbed(member, Some(place));
        }
        Answer::Left
    }

    fn place_of_owner(&self, member: Member) -> Option<usize> {
        self.state.server.queue.iter().position(|place| place.member.client == member.client)
    }

    /// A living waiter has lost its place by a command of an older request.
    fn note_robbed(&mut self, member: Member, place: Option<Place>) {
        let client = &mut self.state.clients[usize::from(member.client)];
        let is_living = client.lives().is_some() && client.stood > 0;
        let was_present = place.is_some_and(|place| place.left > 0);
        client.robbed |= is_living && member.request < client.request && was_present;
    }
}
