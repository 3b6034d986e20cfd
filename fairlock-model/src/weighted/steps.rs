//! All possible next steps, and their effects.

use stateright::{Model, Property};

use super::bounds::{Bounds, Time};
use super::client::{Call, Client, Phase};
use super::properties;
use super::server::{Effects, Script};
use super::state::{Answer, Command, Event, Member, State, Word};
use super::store::Place;
use super::witnesses::notice;

/// One step. Numbers are those of clients, or the position of a late command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes everywhere.
    Tick,
    /// A client makes a new request.
    Begin(usize),
    /// Its wait times out.
    GiveUp(usize),
    /// It releases its hold.
    Unlock(usize),
    /// It asks again, or renews its hold.
    Repeat(usize),
    /// It tells the server again that the request has ended.
    Tell(usize),
    /// Its command reaches the server.
    CarryOut(usize),
    /// The answer reaches the client.
    Hear(usize),
    /// No answer comes: the client stops waiting for it.
    TimeOut(usize),
    /// Its command is in flight twice.
    Duplicate(usize),
    /// A command without a waiting caller reaches the server.
    CarryOutLate(usize),
    /// The push reaches its client.
    DeliverPush(usize),
    /// The push is lost.
    LosePush(usize),
    /// A client's subscription is cut.
    Cut(usize),
    /// The subscription is back.
    HearAgain(usize),
    /// A client dies.
    Crash(usize),
    /// A client dies while it believes that it holds its units.
    CrashHolding(usize),
}

impl Model for Bounds {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.takes.len(), self.faults)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (at, client) in state.clients.iter().enumerate() {
            self.steps_of(state, at, client, steps);
        }
        steps.extend((0..state.late.len()).map(Step::CarryOutLate));
        if self.may_tick(state, steps) {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step);
        if !self.witness {
            state.events = 0;
        } else if state.clients.iter().filter(|client| client.believes().is_some()).count() > 1 {
            state.happened(Event::HeldTogether);
        }
        Some(self.normal(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl Bounds {
    fn steps_of(&self, state: &State, at: usize, client: &Client, steps: &mut Vec<Step>) {
        let faults = state.faults;
        if !client.alive {
            if client.subscribed {
                steps.push(Step::Cut(at)); // at some time the server sees that the connection is gone
            }
            return;
        }
        match (client.phase, client.call) {
            (Phase::Idle, None) if client.request < self.requests && self.may_begin(state) => {
                steps.push(Step::Begin(at));
            }
            (Phase::Waiting, None) if self.give_ups => steps.push(Step::GiveUp(at)),
            (Phase::Held { .. }, None) => steps.push(Step::Unlock(at)),
            (Phase::Leaving { .. }, None) => steps.push(Step::Tell(at)),
            _ => {}
        }
        if client.due(self.is_prompt()).is_some() {
            steps.push(Step::Repeat(at));
        }
        if let Some(call) = client.call {
            match call.answer {
                Some(_) => steps.push(Step::Hear(at)),
                None => steps.push(Step::CarryOut(at)),
            }
            if call.answer.is_none() && faults.duplicates > 0 {
                steps.push(Step::Duplicate(at));
            }
            if faults.time_outs > 0 {
                steps.push(Step::TimeOut(at));
            }
        }
        if client.push.is_some() {
            steps.push(Step::DeliverPush(at));
            if faults.lost_pushes > 0 {
                steps.push(Step::LosePush(at));
            }
        }
        let is_idle = client.phase == Phase::Idle;
        match client.subscribed {
            true if faults.cuts > 0 && !is_idle => steps.push(Step::Cut(at)),
            true => {}
            false => steps.push(Step::HearAgain(at)),
        }
        if faults.crashes > 0 && !is_idle {
            steps.push(Step::Crash(at));
        }
        if faults.dead_holders > 0 && client.believes().is_some() {
            steps.push(Step::CrashHolding(at));
        }
    }

    fn may_begin(&self, state: &State) -> bool {
        match self.time {
            Time::Free => true,
            Time::Prompt { last_begin, .. } => state.now <= last_begin,
        }
    }

    /// For prompt time: nothing is in flight, and nothing is due.
    fn may_tick(&self, state: &State, steps: &[Step]) -> bool {
        let Time::Prompt { horizon, longest_hold, .. } = self.time else { return true };
        let may_wait = |step: &Step| match step {
            Step::Begin(_) | Step::GiveUp(_) | Step::Cut(_) | Step::HearAgain(_) => true,
            Step::Crash(_) | Step::CrashHolding(_) => true,
            Step::Unlock(at) => state.clients[*at].held_for < longest_hold,
            _ => false,
        };
        state.now < horizon && steps.iter().all(may_wait)
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => self.tick(state),
            Step::Begin(at) => state.clients[at].begin(),
            Step::GiveUp(at) => {
                state.clients[at].leave(Word::Withdraw);
                state.clients[at].send(Word::Withdraw);
            }
            Step::Unlock(at) => {
                if let Phase::Held { token, .. } = state.clients[at].phase {
                    let word = Word::Release { token };
                    state.clients[at].leave(word);
                    state.clients[at].send(word);
                }
            }
            Step::Repeat(at) => {
                if let Some(word) = state.clients[at].due(self.is_prompt()) {
                    state.clients[at].send(word);
                }
            }
            Step::Tell(at) => {
                if let Phase::Leaving { word } = state.clients[at].phase {
                    state.clients[at].send(word);
                }
            }
            Step::CarryOut(at) => {
                if let Some(Call { request, word, age, .. }) = state.clients[at].call {
                    let answer = self.carry_out(state, Command { member: member(at, request), word });
                    state.clients[at].call = Some(Call { request, word, age, answer: Some(answer) });
                }
            }
            Step::Hear(at) => self.hear(state, at),
            Step::TimeOut(at) => {
                state.faults.time_outs -= 1;
                self.time_out(state, at);
            }
            Step::Duplicate(at) => {
                state.faults.duplicates -= 1;
                if let Some(Call { request, word, .. }) = state.clients[at].call {
                    state.late.push(Command { member: member(at, request), word });
                }
            }
            Step::CarryOutLate(at) => {
                let command = state.late.remove(at);
                self.carry_out(state, command);
            }
            Step::DeliverPush(at) => {
                if let Some(push) = state.clients[at].push.take() {
                    state.clients[at].pushed(push, self);
                    if push.token.is_none() {
                        state.happened(Event::ToldToLook);
                    }
                }
            }
            Step::LosePush(at) => {
                state.faults.lost_pushes -= 1;
                state.clients[at].push = None;
            }
            Step::Cut(at) => {
                let client = &mut state.clients[at];
                (client.subscribed, client.push) = (false, None);
                if client.alive {
                    client.was_deaf = true;
                    state.faults.cuts -= 1;
                }
            }
            Step::HearAgain(at) => state.clients[at].hear_again(),
            Step::Crash(at) | Step::CrashHolding(at) => {
                let faults = &mut state.faults;
                match step {
                    Step::Crash(_) => faults.crashes -= 1,
                    _ => faults.dead_holders -= 1,
                }
                self.time_out(state, at);
                state.clients[at].die();
            }
        }
    }

    fn tick(&self, state: &mut State) {
        if self.is_prompt() {
            state.now += 1;
            state.idle = if self.is_next_free(state) { state.idle + 1 } else { 0 };
        }
        state.server.tick(self);
        state.clients.iter_mut().for_each(|client| client.tick(self));
    }

    /// Whether units that suffice for the first live waiter are free: by the ends that each hold should have.
    fn is_next_free(&self, state: &State) -> bool {
        let holds = state.server.holds.iter().filter(|hold| hold.own > 0);
        let taken: u8 = holds.map(|hold| hold.takes).sum();
        let waits =
            |member: Member| state.clients[usize::from(member.client)].waits() == Some(member.request);
        let first = state.server.line.iter().find(|place| waits(place.member));
        first.is_some_and(|first| {
            let client = first.member.client;
            taken + self.takes(client) <= self.capacity(client)
        })
    }

    /// Runs one script, in one step.
    fn carry_out(&self, state: &mut State, command: Command) -> Answer {
        let Command { member, word } = command;
        let before = state.server.clone();
        // The renewal of a hold does not look at the line: it only must not make it so.
        let was_free = matches!(word, Word::Renew { .. }) && self.leaves_free(state, &Effects::default());
        let seen = state.seen();
        let mut script =
            Script { bounds: self, server: &mut state.server, seen: &seen, effects: Effects::default() };
        let answer = script.run(command);
        let effects = script.effects;
        state.barged |= effects.barged;
        state.revived |= effects.revived;
        let is_granted = matches!(answer, Answer::Granted { .. });
        state.left_free |= !was_free && !is_granted && self.leaves_free(state, &effects);
        for push in &effects.pushes {
            let client = &mut state.clients[usize::from(push.client)];
            if client.alive && client.subscribed {
                client.push = Some(*push);
            }
        }
        let speaker = &mut state.clients[usize::from(member.client)];
        if word == Word::Ask && speaker.subscribed && speaker.request == member.request {
            speaker.was_deaf = false;
        }
        if self.witness {
            notice(state, &before, command, &effects);
        }
        answer
    }

    /// Whether a present waiter is next and fits, and no message tells anyone to go on.
    fn leaves_free(&self, state: &State, effects: &Effects) -> bool {
        let goes_on = effects.pushes.iter().any(|push| push.token.is_none());
        let taken: u8 = state.server.live_holds().map(|hold| hold.takes).sum();
        let seen = state.seen();
        let first = state.server.line.iter().find(|place| !place.parked).filter(|place| {
            let client = seen[usize::from(place.member.client)];
            client.waits == Some(place.member.request) && !client.was_deaf && place.left > 0
        });
        let may_drop_more = state.server.holds.iter().any(|hold| hold.left == 0);
        let fits = |place: &Place| {
            let capacity = self.capacity(place.member.client);
            taken + place.takes <= capacity && [0, capacity].contains(&state.server.capacity)
        };
        !goes_on && !may_drop_more && first.is_some_and(fits)
    }

    fn hear(&self, state: &mut State, at: usize) {
        let client = &mut state.clients[at];
        let Some(Call { request, word, age, answer: Some(answer) }) = client.call.take() else { return };
        // The answer to an older request has no effect.
        if request != client.request {
            return;
        }
        let waited_in_line = client.heard.is_some();
        client.answered(word, answer, age, self);
        let granted = client.believes().is_some() && matches!(answer, Answer::Granted { .. });
        match word {
            Word::Ask if granted && waited_in_line && client.push.is_none() => {
                state.happened(Event::FoundByAsking);
            }
            Word::Withdraw if granted => state.happened(Event::TakenWhileLeaving),
            _ => {}
        }
    }

    /// The command may be executed later with free time; otherwise it is lost.
    fn time_out(&self, state: &mut State, at: usize) {
        let client = &mut state.clients[at];
        let Some(Call { request, word, answer, .. }) = client.call.take() else { return };
        if request == client.request {
            client.timed_out(word);
        }
        if answer.is_none() && !self.is_prompt() {
            state.late.push(Command { member: member(at, request), word });
        }
    }
}

fn member(at: usize, request: u8) -> Member {
    Member { client: at as u8, request }
}
