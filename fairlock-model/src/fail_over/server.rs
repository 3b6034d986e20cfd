//! The scripts of a server, each as one step: the life rule stands in front of each.

use super::bounds::Bounds;
use super::rules::Rules;
use super::state::{Call, Entry, Event, Life, Phase, Role, State, Word};

/// The answer of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None: the server is no master, refuses the client's epoch, or does not tell in its grace.
    None,
    /// The request holds the lock.
    Granted {
        /// The token.
        token: u8,
        /// For how long, as far as the client may know.
        left: u8,
    },
    /// It is in line.
    Queued {
        /// The ticket.
        ticket: u8,
    },
    /// The hold was renewed or claimed.
    Renewed,
    /// The hold is lost.
    Lost,
    /// The hold is over.
    Released,
}

impl Bounds {
    /// A request reaches its server, `end` before it may begin nothing any more.
    pub fn execute(&self, state: &mut State, client: u8, call: Call, end: u8) -> Answer {
        let at = usize::from(call.server);
        if state.servers[at].role != Role::Master || !self.serves(state, at, call.epoch) {
            return Answer::None;
        }
        let in_grace = state.servers[at].data.life.is_some_and(|life| life.left > 0);
        let member = Entry { client, request: call.request, ..Entry::default() };
        match call.word {
            Word::Ask { told } => {
                let is_late = end == 0 && self.rules != Rules::NoEndOfAnAsk;
                self.ask(state, at, member, told, in_grace, is_late)
            }
            Word::Renew { token } => {
                let is_late = end == 0 && self.rules != Rules::NoEndOfAClaim;
                self.renew(state, at, Entry { number: token, ..member }, in_grace, is_late)
            }
            Word::Force => {
                if end > 0 || self.rules == Rules::NoEndOfAForce {
                    self.force(state, at, in_grace, end == 0);
                }
                Answer::None
            }
            Word::Release { token } => self.release(state, at, Entry { number: token, ..member }, in_grace),
        }
    }

    /// The life rule. False: the client's epoch is too old.
    fn serves(&self, state: &mut State, at: usize, epoch: u8) -> bool {
        let server = &mut state.servers[at];
        if self.rules == Rules::NoLife {
            return true;
        }
        let counts = self.rules != Rules::NoEpochInTheKey;
        let known = server.data.life;
        let key_epoch = known.map_or(0, |life| life.epoch);
        if counts && epoch < key_epoch && self.rules != Rules::OldEpochIsServed {
            state.happened(Event::Refused);
            return false;
        }
        let is_known =
            known.is_some_and(|life| life.replid == server.replid && (!counts || epoch <= life.epoch));
        if !is_known {
            let epoch = epoch.max(key_epoch);
            server.data.life = Some(Life { replid: server.replid, epoch, left: self.times.grace });
            state.begins(at);
        }
        true
    }

    /// An ended request is withdrawn, under an epoch, after the end of its attempts. False if the server has not done it.
    pub fn withdraw(&self, state: &mut State, at: usize, epoch: u8, member: Entry) -> bool {
        if state.servers[at].role != Role::Master || !self.serves(state, at, epoch) {
            return false;
        }
        let data = &mut state.servers[at].data;
        let in_grace = data.life.is_some_and(|life| life.left > 0);
        let holds = data.hold.number > 0 && data.hold.is_of(member);
        if in_grace && holds {
            return false;
        }
        data.remove_place(member);
        if holds {
            data.hold = Entry::default();
        }
        if data.hold.number == 0 && !in_grace {
            self.hand_on(state, at, None);
        }
        true
    }

    fn force(&self, state: &mut State, at: usize, in_grace: bool, is_late: bool) {
        let last = state.last;
        let data = &mut state.servers[at].data;
        let taken = data.hold;
        state.undone |= is_late && taken.number > 0;
        data.hold = Entry::default();
        if in_grace {
            // The server may have forgotten the hold that is meant, or know an older one. It ends all that have been granted.
            data.forced = last;
            let ends = if self.rules == Rules::ForceEndsWhatItFinds { taken.number } else { last };
            data.noted = data.noted.max(ends);
        } else {
            self.hand_on(state, at, None);
        }
        for (at, client) in state.clients.iter_mut().enumerate() {
            match client.phase {
                Phase::Held { token, .. } if in_grace => client.forced = token,
                _ if taken.number > 0 && usize::from(taken.client) == at => client.forced = taken.number,
                _ => {}
            }
        }
    }

    fn ask(
        &self,
        state: &mut State,
        at: usize,
        member: Entry,
        told: u8,
        in_grace: bool,
        is_late: bool,
    ) -> Answer {
        let data = &mut state.servers[at].data;
        let hold = data.hold;
        if hold.number > 0 && hold.is_of(member) {
            if in_grace && self.rules != Rules::FoundInTheGrace {
                return Answer::None;
            }
            // A hold that is only kept is granted anew, since its request asks.
            let known = match hold.left.saturating_sub(self.times.extra) {
                0 => self.times.lease,
                left => left.min(self.times.lease),
            };
            if self.rules != Rules::RepeatProlongs {
                data.hold.left = hold.left.max(known + self.times.extra);
            }
            let left = if self.rules == Rules::RepeatProlongs { self.times.lease } else { known };
            return Answer::Granted { token: hold.number, left };
        }
        let place = data.places.iter().position(|place| place.number > 0 && place.is_of(member));
        if is_late && place.is_none() {
            return Answer::None;
        }
        let ticket = match place {
            Some(place) => {
                data.places[place].left = self.times.lease;
                data.places[place].number
            }
            None if told > 0 && self.rules != Rules::PutBackAtTheTail => {
                self.add_place(state, at, Entry { number: told, ..member });
                told
            }
            None => 0,
        };
        let may_grant = !in_grace || self.rules == Rules::FreeIsGrantedInTheGrace;
        if hold.number == 0 && may_grant {
            if let Some(winner) = self.hand_on(state, at, Some(member))
                && winner.is_of(member)
            {
                return Answer::Granted { token: winner.number, left: self.times.lease };
            }
            if ticket == 0 && state.servers[at].data.hold.number == 0 {
                let number = state.draw();
                let left = self.times.lease + self.times.extra;
                self.grant(state, at, Entry { number, left, ..member }, u8::MAX);
                return Answer::Granted { token: number, left: self.times.lease };
            }
        }
        if !self.waits {
            return Answer::None;
        }
        if ticket > 0 {
            return Answer::Queued { ticket };
        }
        let ticket = state.draw();
        self.add_place(state, at, Entry { number: ticket, ..member });
        Answer::Queued { ticket }
    }

    fn renew(&self, state: &mut State, at: usize, hold: Entry, in_grace: bool, is_late: bool) -> Answer {
        let data = &mut state.servers[at].data;
        let left = self.times.lease + self.times.extra;
        if data.hold.number == hold.number {
            data.hold.left = data.hold.left.max(left);
            return Answer::Renewed;
        }
        if is_late {
            return Answer::None;
        }
        let may_claim = in_grace || self.rules == Rules::ClaimsAfterTheGrace;
        let is_taken =
            data.hold.number > 0 && data.hold.number > hold.number && self.rules != Rules::ClaimsInAnyOrder;
        let is_over = hold.number <= data.noted && self.rules != Rules::EndedIsForgotten;
        if !may_claim || is_taken || is_over {
            return Answer::Lost;
        }
        state.came_back |= hold.number == data.ended;
        state.undone |= hold.number <= data.forced;
        data.remove_place(hold);
        data.hold = Entry { left, ..hold };
        Answer::Renewed
    }

    fn release(&self, state: &mut State, at: usize, hold: Entry, in_grace: bool) -> Answer {
        let data = &mut state.servers[at].data;
        let found = data.hold.number;
        data.remove_place(hold);
        if in_grace || self.rules == Rules::ClaimsAfterTheGrace {
            data.ended = data.ended.max(hold.number);
        }
        let is_noted = found == 0 || found == hold.number || self.rules != Rules::EndedBesideAnotherHold;
        if in_grace && is_noted {
            data.noted = data.noted.max(hold.number);
        }
        if found == hold.number {
            data.hold = Entry::default();
        }
        if data.hold.number == 0 && (!in_grace || self.rules == Rules::HandedOnInTheGrace) {
            self.hand_on(state, at, None);
        }
        Answer::Released
    }

    fn add_place(&self, state: &mut State, at: usize, place: Entry) {
        let places = &mut state.servers[at].data.places;
        let is_in_front = places[0].number > place.number;
        if let Some(free) = places.iter_mut().find(|place| place.number == 0) {
            *free = Entry { left: self.times.lease, ..place };
        }
        state.servers[at].data.sort_places();
        if is_in_front {
            state.happened(Event::PutBackInFront);
        }
    }

    /// The lock is free: the first in line gets it, by a push unless it is the one that asks.
    fn hand_on(&self, state: &mut State, at: usize, asker: Option<Entry>) -> Option<Entry> {
        let data = &mut state.servers[at].data;
        let place = *data.places.iter().find(|place| place.number > 0)?;
        data.remove_place(place);
        let extra = if self.rules == Rules::HandedOnForThePlace { 0 } else { self.times.extra };
        let hold = Entry { number: state.draw(), left: place.left + extra, ..place };
        self.grant(state, at, hold, place.number);
        if !asker.is_some_and(|asker| asker.is_of(place)) {
            let client = &mut state.clients[usize::from(place.client)];
            if client.request == place.request {
                client.pushes[at] = hold.number;
            }
        }
        Some(hold)
    }

    /// Writes the hold. No other waiter that stands where it was told must have asked earlier.
    fn grant(&self, state: &mut State, at: usize, hold: Entry, ticket: u8) {
        let asked = |place: Entry| {
            let client = &state.clients[usize::from(place.client)];
            match client.phase {
                Phase::Waiting { ticket, asked, .. }
                    if client.request == place.request && ticket == place.number =>
                {
                    Some(asked)
                }
                _ => None,
            }
        };
        let winner = asked(Entry { number: ticket, ..hold }).unwrap_or(ticket);
        let places = state.servers[at].data.places.into_iter().filter(|place| place.number > 0);
        let barged = places.filter_map(asked).any(|asked| asked < winner);
        state.barged |= barged;
        state.servers[at].data.hold = hold;
        if state.has_begun(at) {
            state.happened(Event::GrantedAfterAGrace);
        }
        if state.has(Event::PutBackInFront) && state.servers[at].data.places[0].number > ticket {
            state.happened(Event::PutBackServedFirst);
        }
    }
}
