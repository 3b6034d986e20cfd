//! What follows from a step: a script runs, an answer or a push arrives, or none does.

use crate::bounds::{Bounds, Discipline, END, Time};
use crate::client::{Call, Phase};
use crate::messages::{Answer, Command, Member, Push, Word};
use crate::rules::Rules;
use crate::server::{Effects, Script};
use crate::state::{Event, State};
use crate::steps::Caller;

impl Bounds {
    /// Runs a script, in one step. Returns its answer and its effects.
    pub(crate) fn run<T>(
        &self,
        state: &mut State,
        script: impl FnOnce(&mut Script<'_>) -> T,
    ) -> (T, Effects) {
        let seen = state.seen();
        let mut running = Script {
            server: &mut state.server,
            seen: &seen,
            rules: self.rules,
            discipline: self.discipline,
            after_force: state.since_force == END,
            clients_are_prompt: self.time != Time::Free,
            effects: Effects::default(),
        };
        let answer = script(&mut running);
        let effects = running.effects;
        state.barged |= effects.barged;
        if let Some(client) = effects.robbed {
            state.clients[usize::from(client)].robbed = true;
        }
        if let Some(hold) = effects.taken {
            state.seized |= hold.after_force;
            let client = &mut state.clients[usize::from(hold.member.client)];
            if client.alive && client.request == hold.member.request {
                client.forced = hold.token;
            }
            if client.alive && client.subscribed {
                lose_pushes(state, usize::from(hold.member.client));
                state.pushes.push(Push { member: hold.member, token: hold.token, taken: true });
            }
        }
        if let Some(push) = effects.push
            && seen[usize::from(push.member.client)].heard
            && state.clients[usize::from(push.member.client)].alive
        {
            // One late command per client is enough: an older one that has not arrived is lost.
            lose_pushes(state, usize::from(push.member.client));
            state.pushes.push(push);
        }
        (answer, effects)
    }

    pub(crate) fn carry_out(&self, state: &mut State, command: Command) -> Answer {
        let was_free = state.server.hold.is_none();
        let token_before = state.server.hold.map(|hold| hold.token);
        let was_parked = state.server.line.iter().any(|place| place.parked && place.member == command.member);
        let (answer, effects) = self.run(state, |script| script.run(command));
        if let Word::RenewHold { token } = command.word
            && answer == Answer::Renewed
        {
            let client = &state.clients[usize::from(command.member.client)];
            state.untold |= token > 0 && client.forced == token;
        }
        let speaks = matches!(command.word, Word::Acquire { .. } | Word::RenewPlace { .. });
        let speaker = &mut state.clients[usize::from(command.member.client)];
        if speaks && speaker.subscribed && speaker.request == command.member.request {
            speaker.was_deaf = false;
        }
        let last = state.clients.iter().map(|client| client.stood).max().unwrap_or(0);
        let speaker = &mut state.clients[usize::from(command.member.client)];
        let stands =
            speaker.waits_for() == Some(command.member.request) && matches!(answer, Answer::Queued { .. });
        // Places by owner that are over are not put back: such a waiter stands at the tail.
        let is_new = matches!(answer, Answer::Queued { ticket, latest, .. } if ticket == latest);
        let stands_anew = self.discipline == Discipline::ByOwner && is_new && !speaker.robbed;
        if self.remembers_the_order() && stands && (speaker.stood == 0 || stands_anew) {
            speaker.stood = last + 1;
        }
        if effects.put_back {
            happened(state, Event::PutBack);
        }
        if effects.rested {
            happened(state, Event::Rested);
        }
        let granted = state.server.hold.is_some_and(|hold| Some(hold.token) != token_before);
        if granted && effects.parked {
            happened(state, Event::AbsentPassedOver);
        }
        if granted && was_free && state.expired && effects.found_free {
            happened(state, Event::ExpiredHandedOn);
        }
        if granted {
            state.expired = false;
        }
        if was_parked && matches!(answer, Answer::Queued { .. }) {
            happened(state, Event::BackWithItsTicket);
        }
        answer
    }

    pub(crate) fn hear(&self, state: &mut State, at: usize, caller: Caller) {
        let push_lost = state.push_lost;
        let client = &mut state.clients[at];
        let Call::Answered { request, word, age, answer } = std::mem::take(client.call_mut(caller)) else {
            return;
        };
        if caller == Caller::Background {
            return client.tidied(request, answer);
        }
        // A claim is one request: the answer to an older one has no effect.
        if request != client.request || client.phase == Phase::Idle {
            return;
        }
        let overtaken = client.pushed.is_some();
        let before = client.phase;
        client.answered(word, answer, age, self.rules);
        let holds = client.believes() && !matches!(before, Phase::Held { .. });
        if holds && overtaken && matches!(answer, Answer::Queued { .. }) {
            happened(state, Event::PushOvertookAnswer);
        } else if holds && matches!(word, Word::RenewPlace { .. }) && push_lost {
            happened(state, Event::FoundByHeartbeat);
        } else if holds && matches!(word, Word::Withdraw { .. }) {
            happened(state, Event::TakenWhileLeaving);
        }
    }

    /// The command may be executed later with free time; otherwise it is lost.
    pub(crate) fn time_out(&self, state: &mut State, at: usize, caller: Caller) {
        let client = &mut state.clients[at];
        let call = std::mem::take(client.call_mut(caller));
        let (Call::Sent { request, word, age } | Call::Answered { request, word, age, .. }) = call else {
            return;
        };
        if request == client.request {
            client.timed_out(word);
        }
        let is_forgotten =
            matches!(word, Word::Withdraw { .. }) && self.rules == Rules::UnansweredWithdrawalIsForgotten;
        if self.has_end(word) && !is_forgotten {
            client.unanswered(request, age, self.rules);
        }
        if matches!(call, Call::Sent { .. }) && (self.time == Time::Free || self.late) {
            state.late.push(Command { member: member(at, request), word });
        }
    }

    pub(crate) fn deliver_push(&self, state: &mut State, at: usize) {
        let push = state.pushes.remove(at);
        let client = &mut state.clients[usize::from(push.member.client)];
        let waited = client.phase == Phase::Waiting && client.request == push.member.request;
        let is_over = state.server.hold.is_none_or(|hold| hold.token != push.token);
        let event = match client.pushed(push, self.rules) {
            true => Some(Event::HandedOver),
            false => (waited && is_over && client.heard.is_some()).then_some(Event::StalePushRefused),
        };
        if let Some(event) = event {
            happened(state, event);
        }
    }
}

pub(crate) fn member(at: usize, request: u8) -> Member {
    Member { client: at as u8, request }
}

pub(crate) fn lose_pushes(state: &mut State, at: usize) {
    state.pushes.retain(|push| usize::from(push.member.client) != at);
}

pub(crate) fn happened(state: &mut State, event: Event) {
    state.events |= 1 << event as u16;
}
