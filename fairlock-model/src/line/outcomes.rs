//! What follows from a step: a script runs, an answer or a push arrives, or none does.

use super::bounds::{Bounds, Discipline};
use super::messages::{Answer, Call, Command, Thread, Verb};
use super::rules::Rules;
use super::server::{Effects, Script};
use super::state::{Event, State};
use super::steps::member;
use super::store::{Place, Server};

impl Bounds {
    /// A command reaches the server.
    pub fn carry_out(&self, state: &mut State, command: Command) -> Answer {
        let Command { member, word } = command;
        let before = self.witness.then(|| state.server.clone());
        // The renewal of a hold does not look at the line: it only must not make it so.
        let was_free = word.verb == Verb::Renew && self.leaves_free(state);
        let mut script = Script { bounds: self, state, effects: Effects::default() };
        let answer = script.run(command);
        let effects = script.effects;
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
        let looked = !was_free && !matches!(answer, Answer::Granted { .. } | Answer::TooLate);
        if self.discipline == Discipline::HandOff && looked && !effects.goes_on && state.server.rests == 0 {
            state.left_free |= self.leaves_free(state);
        }
        if let Some(before) = before {
            notice(state, &before, command, answer, effects);
        }
        answer
    }

    /// Whether a present waiter is next and fits, although no hold is to be dropped any more.
    fn leaves_free(&self, state: &State) -> bool {
        let server = &state.server;
        let first = server.line.iter().find(|place| !place.parked).filter(|place| {
            let client = &state.clients[usize::from(place.member.client)];
            client.lives() == Some(place.member.request) && place.left > 0
        });
        let fits = |place: &Place| {
            let capacity = self.capacity(place.member.client);
            server.taken() + place.takes <= capacity && [0, capacity].contains(&server.capacity)
        };
        !server.any_over() && first.is_some_and(fits)
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
        } else if push.token == 0 {
            state.happened(Event::ToldToLook);
        } else if had_place && is_over {
            state.happened(Event::StalePushRefused);
        }
    }
}

/// Remembers what a script did. `before`: the server before it.
fn notice(state: &mut State, before: &Server, command: Command, answer: Answer, effects: Effects) {
    let place = before.line.iter().find(|place| place.member == command.member);
    let granted = effects.granted > 0;
    let had_ended = before.any_over() || state.expired && before.holds.is_empty();
    let parked = place.filter(|place| place.parked && command.word.is_of_place());
    let is_before = |place: &Place| before.line.iter().any(|other| other.ticket > place.ticket);
    let is_release = command.word.verb == Verb::Release;
    let events = [
        (Event::AbsentPassedOver, granted && effects.parked),
        (Event::EndHandedOn, effects.served > 0 && had_ended),
        (Event::BackAtItsTicket, parked.is_some() && matches!(answer, Answer::Queued { .. })),
        (Event::BackBeforeLater, parked.is_some_and(is_before)),
        (Event::TwoGrants, effects.granted > 1),
        (Event::BlockerParked, effects.parked_blocker && granted),
        (Event::WithdrawalGranted, command.word.verb == Verb::Withdraw && effects.granted > 1),
        (Event::NothingToFree, is_release && answer == Answer::NotHeld),
        (Event::Refused, answer == Answer::Mismatch),
    ];
    events.into_iter().filter(|(_, has)| *has).for_each(|(event, _)| state.happened(event));
    state.expired &= !granted;
}
