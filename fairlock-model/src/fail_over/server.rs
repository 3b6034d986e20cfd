//! The scripts of a server, each as one step: the life rule stands in front of each.

use super::bounds::Bounds;
use super::data::{Entry, Life, add, remove};
use super::rules::Rules;
use super::state::{Call, Event, Phase, Role, State, Verb};

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
    /// The request is in the queue.
    Queued {
        /// The ticket.
        ticket: u8,
    },
    /// The hold was renewed or reclaimed.
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
        let in_grace = state.servers[at].data.is_in_grace();
        let member = Entry { number: call.number, client, request: call.request, ..Entry::default() };
        match call.verb {
            Verb::Ask => self.ask(state, at, member, in_grace, end),
            Verb::Renew => self.renew(state, at, member, end),
            Verb::Force => {
                if end > 0 || self.rules == Rules::NoEndOfAForce {
                    self.force(state, at, in_grace, end == 0);
                }
                Answer::None
            }
            Verb::Release => self.release(state, at, member, in_grace),
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
            server.data.holds.iter_mut().for_each(|hold| hold.heard = false);
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
        let in_grace = data.is_in_grace();
        if in_grace && data.hold_of(member).is_some() {
            return false;
        }
        remove(&mut data.places, |place| place.is_of(member));
        remove(&mut data.holds, |hold| hold.is_of(member));
        if !in_grace {
            self.serve_the_first(state, at, None);
        }
        true
    }

    fn force(&self, state: &mut State, at: usize, in_grace: bool, is_late: bool) {
        let last = state.last;
        let data = &mut state.servers[at].data;
        let taken = std::mem::take(&mut data.holds);
        let of = |at: usize| taken.into_iter().find(|hold| hold.number > 0 && usize::from(hold.client) == at);
        state.undone |= is_late && taken[0].number > 0;
        if in_grace {
            // The server may have forgotten the hold that is meant, or know an older one. It ends all that have been granted.
            data.forced = last;
            if self.rules == Rules::ForceEndsWhatItFinds {
                taken.iter().for_each(|hold| data.ended.one(hold.number));
            } else {
                data.ended.all_to(last);
            }
        } else {
            self.serve_the_first(state, at, None);
        }
        for (at, client) in state.clients.iter_mut().enumerate() {
            match client.phase {
                Phase::Held { token, .. } if in_grace => client.forced = token,
                _ => client.forced = of(at).map_or(client.forced, |hold| hold.number),
            }
        }
    }

    /// The request, with the ticket that it was told.
    fn ask(&self, state: &mut State, at: usize, member: Entry, in_grace: bool, end: u8) -> Answer {
        let data = &mut state.servers[at].data;
        if let Some(hold) = data.hold_of(member) {
            if in_grace && self.rules != Rules::FoundInTheGrace {
                return Answer::None;
            }
            // A hold that is only kept is granted anew, since its request asks.
            let left = match hold.left.saturating_sub(self.times.extra) {
                _ if self.rules == Rules::RepeatProlongs => self.times.lease,
                0 => self.times.lease,
                left => left.min(self.times.lease),
            };
            if self.rules != Rules::RepeatProlongs {
                hold.left = hold.left.max(left + self.times.extra);
            }
            return Answer::Granted { token: hold.number, left };
        }
        let place = data.places.iter().position(|place| place.number > 0 && place.is_of(member));
        if place.is_none() && end == 0 && self.rules != Rules::NoEndOfAnAsk {
            return Answer::None;
        }
        let ticket = match place {
            Some(place) => {
                data.places[place].left = self.times.lease;
                data.places[place].number
            }
            None if member.number > 0 && self.rules != Rules::PutBackAtTheTail => {
                self.add_place(state, at, member);
                member.number
            }
            None => 0,
        };
        let may_grant = !in_grace || self.rules == Rules::FreeIsGrantedInTheGrace;
        if may_grant {
            if let Some(won) = self.serve_the_first(state, at, Some(member)) {
                return Answer::Granted { token: won.number, left: self.times.lease };
            }
            let data = &state.servers[at].data;
            if ticket == 0 && data.places[0].number == 0 && self.fits(data, member) {
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

    fn release(&self, state: &mut State, at: usize, hold: Entry, in_grace: bool) -> Answer {
        let data = &mut state.servers[at].data;
        let is_free = data.holds[0].number == 0;
        let is_found = remove(&mut data.holds, |found| found.number == hold.number);
        remove(&mut data.places, |place| place.is_of(hold));
        if in_grace || self.rules == Rules::ReclaimsAfterTheGrace {
            data.released |= 1 << hold.number;
        }
        if in_grace && (is_free || is_found || self.rules != Rules::EndedBesideAnotherHold) {
            // A hold of all units shows that all earlier holds are over. (Where a lock has several units, only a hold that is found is
            // known to take all.)
            let is_alone = self.capacity == 1 || is_found && !self.takes_part(hold);
            if is_alone || self.rules == Rules::PartEndsAllBefore {
                data.ended.all_to(hold.number);
            } else {
                data.ended.one(hold.number);
            }
        }
        if !in_grace || self.rules == Rules::HandedOnInTheGrace {
            self.serve_the_first(state, at, None);
        }
        Answer::Released
    }

    fn add_place(&self, state: &mut State, at: usize, place: Entry) {
        let data = &mut state.servers[at].data;
        let is_in_front = data.places[0].number > place.number;
        add(&mut data.places, Entry { left: self.times.lease, ..place });
        if is_in_front {
            state.happened(Event::PutBackInFront);
        }
    }

    /// Gives the free units to the first in the queue: by pushes, and to the asker by the grant that this returns.
    fn serve_the_first(&self, state: &mut State, at: usize, asker: Option<Entry>) -> Option<Entry> {
        let mut won = None;
        loop {
            let data = &mut state.servers[at].data;
            let place = data.places[0];
            if place.number == 0 || !self.fits(data, place) {
                return won;
            }
            remove(&mut data.places, |other| other.is_of(place));
            let extra = if self.rules == Rules::HandedOnForThePlace { 0 } else { self.times.extra };
            let hold = Entry { number: state.draw(), left: place.left + extra, ..place };
            self.grant(state, at, hold, place.number);
            let client = &mut state.clients[usize::from(place.client)];
            if asker.is_some_and(|asker| asker.is_of(place)) {
                won = Some(hold);
            } else if client.request == place.request {
                client.pushes[at] = hold.number;
            }
        }
    }

    /// Writes the hold. No other waiter that stands where it was told must have asked earlier.
    fn grant(&self, state: &mut State, at: usize, hold: Entry, ticket: u8) {
        let asked = |place: Entry| {
            let client = &state.clients[usize::from(place.client)];
            let Phase::Waiting { ticket, asked, .. } = client.phase else { return None };
            (client.request == place.request && ticket == place.number).then_some(asked)
        };
        let winner = asked(Entry { number: ticket, ..hold }).unwrap_or(ticket);
        let places = state.servers[at].data.places.into_iter().filter(|place| place.number > 0);
        let barged = places.filter_map(asked).any(|asked| asked < winner);
        state.barged |= barged;
        add(&mut state.servers[at].data.holds, hold);
        if state.has_begun(at) {
            state.happened(Event::GrantedAfterAGrace);
        }
        if state.has(Event::PutBackInFront) && state.servers[at].data.places[0].number > ticket {
            state.happened(Event::PutBackServedFirst);
        }
    }
}
