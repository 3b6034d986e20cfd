//! All possible next steps, and their effects.

use stateright::{Model, Property};

use crate::bounds::{Bounds, Discipline, END, Time};
use crate::client::{Call, Client, Phase};
use crate::messages::{Command, Word};
use crate::outcomes::{happened, lose_pushes, member};
use crate::properties;
use crate::rules::Rules;
use crate::state::{Event, State};

/// One of a client's two callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The caller's call: acquire, withdraw, release.
    Caller,
    /// The watchdog's call: renewals.
    Watchdog,
    /// The call for an ended request.
    Background,
}

/// One step. Numbers are those of clients, or positions in the list of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes everywhere.
    Tick,
    /// Time passes at the server only.
    Drift,
    /// Time passes at the clients only.
    Lag,
    /// The server's clock is set past all ends that are known.
    Jump,
    /// A client asks for the lock with a new request.
    Begin(usize),
    /// Its wait times out. `true`: it takes the lock if it was granted at this moment.
    GiveUp(usize, bool),
    /// It releases the lock.
    Unlock(usize),
    /// It asks again.
    Ask(usize),
    /// Its watchdog renews a place or a hold.
    Renew(usize),
    /// It tells the server again that the request has ended.
    Tell(usize),
    /// It withdraws an ended request once more.
    Tidy(usize),
    /// Its command reaches the server.
    CarryOut(usize, Caller),
    /// The answer reaches the client.
    Hear(usize, Caller),
    /// No answer comes: the client stops waiting for it.
    TimeOut(usize, Caller),
    /// Its command is in flight twice.
    Duplicate(usize, Caller),
    /// A command without a waiting caller reaches the server.
    CarryOutLate(usize),
    /// A push reaches its client.
    DeliverPush(usize),
    /// A push is lost.
    LosePush(usize),
    /// A client's subscription is cut.
    Cut(usize),
    /// The subscription is back.
    HearAgain(usize),
    /// An operator takes the lock by force.
    Force,
    /// This attempt reaches the server.
    CarryOutForce(usize),
    /// A client dies.
    Crash(usize),
    /// The server forgets all places.
    LoseLine,
}

const CALLERS: [Caller; 3] = [Caller::Caller, Caller::Watchdog, Caller::Background];

impl Client {
    fn call(&self, caller: Caller) -> Call {
        match caller {
            Caller::Caller => self.ask,
            Caller::Watchdog => self.renew,
            Caller::Background => self.tidy,
        }
    }

    pub(crate) fn call_mut(&mut self, caller: Caller) -> &mut Call {
        match caller {
            Caller::Caller => &mut self.ask,
            Caller::Watchdog => &mut self.renew,
            Caller::Background => &mut self.tidy,
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.clients, self.faults)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let prompt = matches!(self.time, Time::Prompt { .. });
        for (at, client) in state.clients.iter().enumerate() {
            self.steps_of(state, at, client, steps);
        }
        steps.extend((0..state.late.len()).map(Step::CarryOutLate));
        for at in 0..state.pushes.len() {
            steps.push(Step::DeliverPush(at));
            if state.faults.lost_pushes > 0 {
                steps.push(Step::LosePush(at));
            }
        }
        if state.faults.lost_lines > 0 && !state.server.line.is_empty() {
            steps.push(Step::LoseLine);
        }
        if state.faults.drifts > 0 && state.server.hold.is_some() {
            steps.push(Step::Drift);
        }
        if state.faults.lags > 0 {
            steps.push(Step::Lag);
        }
        if state.faults.jumps > 0 {
            steps.push(Step::Jump);
        }
        if state.faults.forces > 0 && state.server.hold.is_some() {
            steps.push(Step::Force);
        }
        steps.extend((0..state.forces.len()).map(Step::CarryOutForce));
        if !prompt || self.may_tick(state, steps) {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step);
        if self.time == Time::Free {
            state.clients.iter_mut().for_each(Client::forget_what_is_due);
        }
        if !self.witness {
            (state.events, state.expired, state.push_lost) = (0, false, false);
        }
        if !self.witness {
            state.forget_what_is_old(self.rules, self.time == Time::Free);
            self.forget_what_is_past(&mut state);
        }
        if self.alike {
            state.sort_clients();
        }
        Some(state.normal())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl Bounds {
    fn steps_of(&self, state: &State, at: usize, client: &Client, steps: &mut Vec<Step>) {
        if !client.alive {
            if client.subscribed {
                steps.push(Step::Cut(at)); // at some time the server sees that the connection is gone
            }
            return;
        }
        match client.phase {
            Phase::Idle
                if client.request < self.requests
                    && client.ask == Call::None
                    && self.may_begin(state)
                    && self.is_tidy(client) =>
            {
                steps.push(Step::Begin(at));
            }
            Phase::Waiting if self.give_ups && client.ask == Call::None => {
                steps.extend([Step::GiveUp(at, false), Step::GiveUp(at, true)]);
            }
            Phase::Held { .. } if client.ask == Call::None => steps.push(Step::Unlock(at)),
            _ => {}
        }
        if client.should_ask() && (self.both_calls || client.renew == Call::None) {
            steps.push(Step::Ask(at));
        }
        if client.should_renew().is_some() && (self.both_calls || client.ask == Call::None) {
            steps.push(Step::Renew(at));
        }
        if client.should_tell().is_some() {
            steps.push(Step::Tell(at));
        }
        if client.should_tidy().is_some() {
            steps.push(Step::Tidy(at));
        }
        for caller in CALLERS {
            match client.call(caller) {
                Call::None => continue,
                Call::Sent { .. } => {
                    steps.push(Step::CarryOut(at, caller));
                    if state.faults.duplicates > 0 {
                        steps.push(Step::Duplicate(at, caller));
                    }
                }
                Call::Answered { .. } => steps.push(Step::Hear(at, caller)),
            }
            if state.faults.time_outs > 0 {
                steps.push(Step::TimeOut(at, caller));
            }
        }
        if client.subscribed && state.faults.cuts > 0 && client.phase != Phase::Idle {
            steps.push(Step::Cut(at));
        }
        if !client.subscribed {
            steps.push(Step::HearAgain(at));
        }
        if state.faults.crashes > 0 && client.phase != Phase::Idle {
            steps.push(Step::Crash(at));
        }
    }

    /// Where places are lost or put back elsewhere, tickets alone don't say who asked first.
    pub(crate) fn remembers_the_order(&self) -> bool {
        self.faults.lost_lines > 0
            || self.rules == Rules::PutBackAtTheTail
            || self.discipline == Discipline::ByOwner
    }

    /// Where places are named by owners, an owner withdraws its ended requests first.
    fn is_tidy(&self, client: &Client) -> bool {
        client.owed.is_empty()
            || self.discipline != Discipline::ByOwner
            || self.rules == Rules::NextRequestBeforeTheWithdrawal
    }

    /// Whether an attempt has an end.
    pub(crate) fn has_end(&self, word: Word) -> bool {
        match word {
            Word::Acquire { .. } => true,
            Word::RenewPlace { .. } => self.discipline == Discipline::HandOff,
            Word::Withdraw { .. } => self.discipline == Discipline::ByOwner,
            Word::RenewHold { .. } | Word::Release { .. } => false,
        }
    }

    /// The end of an attempt that this client sends now.
    fn end_of(&self, client: &Client) -> u8 {
        match self.rules {
            Rules::EndIsAhead => END + 2,
            _ if client.behind => 0,
            _ => END,
        }
    }

    fn stamped(&self, client: &Client, word: Word) -> Word {
        // Where places are not put back, a ticket says nothing.
        let word = if self.discipline == Discipline::HandOff { word } else { word.carried_out() };
        if self.has_end(word) { word.until(self.end_of(client)) } else { word }
    }

    fn may_begin(&self, state: &State) -> bool {
        match self.time {
            Time::Free => true,
            Time::Prompt { last_begin, .. } => state.now <= last_begin,
        }
    }

    /// For prompt time: nothing is in flight, and nothing is due.
    fn may_tick(&self, state: &State, steps: &[Step]) -> bool {
        let Time::Prompt { horizon, .. } = self.time else { return true };
        let may_wait = |step: &Step| match step {
            Step::Begin(_)
            | Step::GiveUp(..)
            | Step::Cut(_)
            | Step::HearAgain(_)
            | Step::Crash(_)
            | Step::Drift
            | Step::Lag
            | Step::Jump
            | Step::Force
            | Step::CarryOutLate(_)
            | Step::LoseLine => true,
            Step::Unlock(at) => {
                let client = &state.clients[*at];
                client.believes() && client.held_for < 2
            }
            _ => false,
        };
        state.now < horizon && steps.iter().all(may_wait)
    }

    /// Drops what no later script or property reads.
    fn forget_what_is_past(&self, state: &mut State) {
        if state.faults.forces == 0 && state.forces.is_empty() {
            state.since_force = END;
            state.server.hold.iter_mut().for_each(|hold| hold.after_force = false);
        }
        if self.rules == Rules::Right {
            state.forget_refused(self.discipline);
        }
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => self.tick(state),
            Step::Drift => {
                state.faults.drifts -= 1;
                state.server_tick();
            }
            Step::Lag => {
                state.faults.lags -= 1;
                state.clients.iter_mut().for_each(|client| client.tick(false));
            }
            Step::Jump => {
                state.faults.jumps -= 1;
                state.jump();
            }
            Step::Begin(at) => {
                state.clients[at].begin();
                self.send(state, at, state.clients[at].asking());
            }
            Step::GiveUp(at, wanted) => {
                state.clients[at].give_up(wanted, self.rules);
                self.tell(state, at);
            }
            Step::Unlock(at) => {
                if let Phase::Held { token, .. } = state.clients[at].phase {
                    state.clients[at].unlock(token);
                }
            }
            Step::Ask(at) => self.send(state, at, state.clients[at].asking()),
            Step::Force => {
                state.faults.forces -= 1;
                let end = if self.rules == Rules::EndIsAhead { END + 2 } else { END };
                state.forces.push(end);
                state.since_force = 0;
                state.server.hold.iter_mut().for_each(|hold| hold.after_force = false);
            }
            Step::CarryOutForce(at) => {
                let end = state.forces.remove(at);
                self.run(state, |script| script.force(end));
            }
            Step::LoseLine => {
                state.faults.lost_lines -= 1;
                state.server.line.clear();
            }
            Step::Renew(at) => {
                if let Some(word) = state.clients[at].should_renew() {
                    let word = self.stamped(&state.clients[at], word);
                    state.clients[at].send_renewal(word);
                }
            }
            Step::Tell(at) => self.tell(state, at),
            Step::Tidy(at) => {
                if let Some((request, word)) = state.clients[at].should_tidy() {
                    let word = self.stamped(&state.clients[at], word);
                    state.clients[at].send_tidy(request, word);
                }
            }
            Step::CarryOut(at, caller) => {
                if let Call::Sent { request, word, age } = state.clients[at].call(caller) {
                    let answer = self.carry_out(state, Command { member: member(at, request), word });
                    let word = word.carried_out();
                    *state.clients[at].call_mut(caller) = Call::Answered { request, word, age, answer };
                }
            }
            Step::Hear(at, caller) => self.hear(state, at, caller),
            Step::TimeOut(at, caller) => {
                state.faults.time_outs -= 1;
                self.time_out(state, at, caller);
            }
            Step::Duplicate(at, caller) => {
                state.faults.duplicates -= 1;
                if let Call::Sent { request, word, .. } = state.clients[at].call(caller) {
                    state.late.push(Command { member: member(at, request), word });
                }
            }
            Step::CarryOutLate(at) => {
                let command = state.late.remove(at);
                let client = &state.clients[usize::from(command.member.client)];
                if client.alive && (client.request > command.member.request || client.phase == Phase::Idle) {
                    happened(state, Event::LateCommand);
                }
                self.carry_out(state, command);
            }
            Step::DeliverPush(at) => self.deliver_push(state, at),
            Step::LosePush(at) => {
                state.faults.lost_pushes -= 1;
                state.pushes.remove(at);
                state.push_lost = true;
            }
            Step::Cut(at) => {
                let client = &mut state.clients[at];
                client.subscribed = false;
                if client.alive {
                    client.was_deaf = true;
                    state.faults.cuts -= 1;
                }
                lose_pushes(state, at);
            }
            Step::HearAgain(at) => state.clients[at].hear_again(),
            Step::Crash(at) => {
                state.faults.crashes -= 1;
                for caller in CALLERS {
                    self.time_out(state, at, caller);
                }
                state.clients[at].die();
                lose_pushes(state, at);
            }
        }
    }

    fn tell(&self, state: &mut State, at: usize) {
        if let Some(word) = state.clients[at].should_tell() {
            self.send(state, at, word);
        }
    }

    fn send(&self, state: &mut State, at: usize, word: Word) {
        let word = self.stamped(&state.clients[at], word);
        state.clients[at].send(word);
    }

    fn tick(&self, state: &mut State) {
        let prompt = matches!(self.time, Time::Prompt { .. });
        if prompt {
            let waits = state.clients.iter().any(|client| client.waits_for().is_some());
            let useful = state.clients.iter().any(Client::believes);
            state.idle = if waits && !useful { state.idle + 1 } else { 0 };
            state.now += 1;
        }
        state.server_tick();
        state.clients.iter_mut().for_each(|client| client.tick(prompt));
    }
}
