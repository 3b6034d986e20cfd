//! What follows from a step: an operation runs, an answer or a push arrives, or none does.

use super::bounds::{Bounds, Discipline};
use super::client::Client;
use super::messages::{Answer, Call, Command, Member, Thread, Verb};
use super::rules::Rules;
use super::server::Script;
use super::state::{Event, State};
use super::steps::member;
use super::store::{Hold, Place, Server};

impl Bounds {
    /// A command reaches the server.
    pub fn carry_out(&self, state: &mut State, command: Command) -> Answer {
        let Command { member, word } = command;
        let before = state.server.clone();
        let is_robbed = |client: &Client| client.robbed && client.lives().is_some();
        let robbed = state.clients.iter().filter(|client| is_robbed(client)).map(|client| client.stood).min();
        let answer = Script { bounds: self, state }.run(command);
        self.look_for_barging(state, &before, robbed);
        let last = state.clients.iter().map(|client| client.stood).max().unwrap_or(0);
        let speaker = &mut state.clients[usize::from(member.client)];
        let renews_forced = answer == Answer::Renewed && speaker.forced == word.number && word.number > 0;
        state.untold |= renews_forced;
        if word.is_of_place() && !speaker.deaf && speaker.request == member.request {
            speaker.was_deaf = false;
        }
        if let Answer::Queued { ticket, latest, .. } = answer
            && self.remembers_the_order()
            && speaker.waits_for() == Some(member.request)
        {
            // Places by owner that are over are not put back: such a waiter stands at the tail.
            let is_anew = self.discipline == Discipline::ByOwner && ticket == latest && !speaker.robbed;
            if speaker.stood == 0 || is_anew {
                speaker.stood = last + 1;
            }
        }
        let stood = before.place_of(member).is_some() || before.hold_of(member).is_some();
        let stands = state.server.place_of(member).is_some() || state.server.hold_of(member).is_some();
        state.begun |= word.verb == Verb::Heartbeat && stands && !stood;
        state.forgotten |= self.is_prompt() && self.is_whole() && self.forgets(state, &before, member);
        // One that is restored looks next.
        let is_restored = before.place_of(member).is_none()
            && state.server.place_of(member).is_some_and(|place| place.ticket <= before.last);
        let looked = word.verb != Verb::Renew && !matches!(answer, Answer::Granted { .. } | Answer::TooLate);
        if self.discipline == Discipline::HandOff && looked && !is_restored && state.server.rests == 0 {
            state.left_free |= self.leaves_free(state);
        }
        if self.witness {
            notice(state, &before, command, answer);
        }
        answer
    }

    /// Whether a present waiter is next and fits.
    fn leaves_free(&self, state: &State) -> bool {
        let server = &state.server;
        let first = server.queue.iter().find(|place| server.left_of(place) > 0).filter(|place| {
            let client = &state.clients[usize::from(place.member.client)];
            client.lives() == Some(place.member.request) && server.left_of(place) > 0
        });
        let fits = |place: &Place| {
            // A waiter that names a greater capacity than the last grant has its turn at its own heartbeat.
            let is_full = !server.holds.is_empty() && server.taken() >= server.capacity;
            !is_full && server.taken() + place.takes <= self.capacity(place.member.client)
        };
        first.is_some_and(fits)
    }

    /// Whether the operation has removed the place of another waiter, which lives and does not know its ticket. (With prompt time it
    /// has had the time to ask again.)
    fn forgets(&self, state: &State, before: &Server, speaker: Member) -> bool {
        let after = &state.server;
        before.queue.iter().any(|place| {
            let client = &state.clients[usize::from(place.member.client)];
            let is_gone = after.place_of(place.member).is_none() && after.hold_of(place.member).is_none();
            let waits = client.waits_for() == Some(place.member.request);
            place.member != speaker && is_gone && waits && client.ticket == 0
        })
    }

    /// Whether a grant of the operation has passed over a live waiter that asked before it.
    /// `robbed`: when the first waiter stood in the queue that had lost its place before.
    fn look_for_barging(&self, state: &mut State, before: &Server, robbed: Option<u8>) {
        let after = &state.server;
        let is_new = |hold: &&Hold| before.holds.iter().all(|old| old.token != hold.token);
        // The queue at the time of a grant: the places that are left, and those that were removed as absent or granted later.
        let gone = before.queue.iter().filter(|place| after.place_of(place.member).is_none());
        let gone: Vec<Place> =
            gone.copied().map(|place| Place { left: before.left_of(&place), ..place }).collect();
        let stands = after.queue.iter().copied().map(|place| Place { left: after.left_of(&place), ..place });
        let queue: Vec<Place> = stands.chain(gone).collect();
        let is_its = |place: &Place, member: Member| match self.discipline {
            Discipline::ByOwner => place.member.client == member.client,
            _ => place.member == member,
        };
        let barged = after.holds.iter().filter(is_new).any(|granted| {
            let is_granted = |place: &Place| {
                after.holds.iter().any(|hold| is_its(place, hold.member) && hold.token <= granted.token)
            };
            let its = before.queue.iter().find(|place| is_its(place, granted.member));
            let queue: Vec<Place> = queue.iter().filter(|place| !is_granted(place)).copied().collect();
            let earlier = after.holds.iter().filter(|hold| hold.token < granted.token && hold.left > 0);
            let taken = earlier.map(|hold| hold.takes).sum();
            let its_client = &state.clients[usize::from(granted.member.client)];
            // Of a request that ends, only the ticket says when it asked.
            let is_living = its_client.lives() == Some(granted.member.request);
            let stood = if is_living { its_client.stood } else { 0 };
            robbed.is_some_and(|robbed| stood == 0 || robbed < stood)
                || self.passes_over_a_waiter(state, &queue, taken, (granted.member, stood), its)
        });
        state.barged |= barged;
    }

    /// Whether a grant of this request passes over a live waiter of this queue. A waiter that was deaf since its last heartbeat
    /// may be passed over, unless that heartbeat was a moment ago and the waiter's units are not free.
    ///
    /// By tickets; and by the model's own order, since a wrong rule may give out other tickets. With prompt time, if two places
    /// were lost together and the later one came back, it must not be granted first: the earlier waiter has had the time for a
    /// heartbeat.
    fn passes_over_a_waiter(
        &self,
        state: &State,
        queue: &[Place],
        taken: u8,
        (member, stood): (Member, u8),
        granted: Option<&Place>,
    ) -> bool {
        let client_of = |member: Member| &state.clients[usize::from(member.client)];
        let stood_before = |other: &Client| 0 < other.stood && other.stood < stood;
        let in_queue = queue.iter().any(|place| {
            let client = client_of(place.member);
            let lives = client.waits_for() == Some(place.member.request) && place.left > 0;
            let blocks = taken + self.takes(place.member.client) > self.capacity(place.member.client);
            let is_fresh = 2 * place.left > self.times.place;
            let may_be_passed = client.is_deaf_at_times() && !(blocks && is_fresh);
            let earlier = granted.is_none_or(|granted| place.ticket < granted.ticket) || stood_before(client);
            place.member != member && lives && earlier && !may_be_passed
        });
        let mut others = (0..).zip(&state.clients).filter(|(_, client)| client.lives().is_some());
        let lost = granted.is_some_and(|granted| granted.came_back)
            && others.any(|(at, client)| {
                let stands = queue.iter().any(|place| place.member.client == at);
                !stands && at != member.client && stood_before(client)
            });
        in_queue || lost
    }

    /// An answer reaches the client.
    pub fn hear(&self, state: &mut State, at: usize, thread: Thread) {
        let client = &mut state.clients[at];
        let Some(call) = client.calls[thread as usize].take() else { return };
        let Call { request, word, age, answer: Some(answer) } = call else { return };
        if thread == Thread::Background {
            return client.tidied(request, answer);
        }
        // A claim is one request: the answer to an older one has no effect.
        if request != client.request {
            return;
        }
        let (overtaken, believed) = (client.early > 0, client.believes().is_some());
        let asks_again = word.verb == Verb::Heartbeat || client.heard.is_some();
        client.answered(word, answer, age, self);
        if believed || client.believes().is_none() {
            return;
        }
        if overtaken && matches!(answer, Answer::Queued { .. }) {
            state.happened(Event::PushOvertookAnswer);
        } else if word.is_of_place() && asks_again && state.push_lost {
            state.happened(Event::FoundByAsking);
        } else if word.verb == Verb::Withdraw {
            state.happened(Event::TakenWhileLeaving);
        }
    }

    /// The command may be executed later with free time; otherwise it is lost.
    pub fn time_out(&self, state: &mut State, at: usize, thread: Thread) {
        let client = &mut state.clients[at];
        let Some(Call { request, word, age, answer }) = client.calls[thread as usize].take() else { return };
        if request == client.request {
            client.timed_out(word);
        }
        let is_forgotten = word.verb == Verb::Withdraw && self.is(Rules::UnansweredWithdrawalIsForgotten);
        if self.has_end(word.verb) && !is_forgotten {
            client.unanswered(request, age, self.rules);
        }
        if answer.is_none() && (!self.is_prompt() || self.late) {
            state.late.push(Command { member: member(at, request), word });
        }
    }

    /// A push reaches its client.
    pub fn deliver_push(&self, state: &mut State, at: usize) {
        let client = &mut state.clients[at];
        let Some(push) = client.push.take() else { return };
        let had_place = client.waits_for() == Some(push.request) && client.heard.is_some();
        let is_over = state.server.holds.iter().all(|hold| hold.token != push.token);
        if client.pushed(push, self) {
            state.happened(Event::HandedOver);
        } else if had_place && is_over {
            state.happened(Event::StalePushRefused);
        }
    }
}

/// Remembers what an operation did. `before`: the server before it.
fn notice(state: &mut State, before: &Server, command: Command, answer: Answer) {
    let server = &state.server;
    let is_new = |hold: &&Hold| before.holds.iter().all(|old| old.token != hold.token);
    let granted: Vec<Member> = server.holds.iter().filter(is_new).map(|hold| hold.member).collect();
    let served = granted.iter().any(|member| before.place_of(*member).is_some());
    let has_left = |place: &&Place| {
        let member = place.member;
        member != command.member && !granted.contains(&member) && server.place_of(member).is_none()
    };
    let left: Vec<&Place> = before.queue.iter().filter(has_left).collect();
    let blocked = |place: &&Place| server.taken() + place.takes > server.capacity;
    let was_free = before.taken() < before.capacity;
    let put_back = server.place_of(command.member).filter(|place| {
        before.place_of(command.member).is_none() && (1..=before.last).contains(&place.ticket)
    });
    let back = put_back.filter(|place| place.ticket <= before.served);
    let is_before = |place: &Place| before.queue.iter().any(|other| other.ticket > place.ticket);
    let is_release = command.word.verb == Verb::Release;
    let events = [
        (Event::AbsentPassedOver, !granted.is_empty() && !left.is_empty()),
        (Event::EndHandedOn, served && state.expired && was_free),
        (Event::PutBack, put_back.is_some()),
        (Event::Rested, server.rests > 0 && server.taken() < server.capacity),
        (Event::BackAtItsTicket, back.is_some()),
        (Event::BackBeforeLater, back.is_some_and(is_before)),
        (Event::TwoGrants, granted.len() > 1),
        (Event::BlockerLeft, left.iter().any(blocked) && !granted.is_empty()),
        (Event::WithdrawalGranted, command.word.verb == Verb::Withdraw && granted.len() > 1),
        (Event::EndedRefused, answer == Answer::HoldLost && state.expired),
        (Event::NothingToFree, is_release && answer == Answer::NotHeld),
        (Event::Refused, answer == Answer::Mismatch),
    ];
    let is_granted = !granted.is_empty();
    events.into_iter().filter(|(_, has)| *has).for_each(|(event, _)| state.happened(event));
    state.expired &= !is_granted;
}
