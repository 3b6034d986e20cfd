//! All possible next steps, and their effects.

use stateright::{Model, Property};

use super::bounds::{Bounds, Calls, Discipline, END, Faults, Time};
use super::client::{Client, Phase};
use super::messages::{Call, Command, Member, THREADS, Thread, Verb, Word};
use super::properties;
use super::rules::Rules;
use super::server::Script;
use super::state::{Event, State};

/// One step. Numbers are those of clients, or positions in a list of late commands.
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
    /// The client's wait times out. `true`: the client takes the lock if it was granted at this moment.
    GiveUp(usize, bool),
    /// The client releases its hold.
    Unlock(usize),
    /// The client asks again.
    Ask(usize),
    /// The client's watchdog renews a place or a hold.
    Renew(usize),
    /// The client tells the server again that the request has ended.
    Tell(usize),
    /// The client withdraws an ended request once more.
    Tidy(usize),
    /// The command of a client's thread reaches the server.
    CarryOut(usize, Thread),
    /// The answer reaches the client.
    Hear(usize, Thread),
    /// No answer comes: the client stops waiting for it.
    TimeOut(usize, Thread),
    /// The command of a client's thread is in flight twice.
    Duplicate(usize, Thread),
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
    /// An operator takes the lock by force.
    Force,
    /// This attempt reaches the server.
    CarryOutForce(usize),
    /// A client dies.
    Crash(usize),
    /// The server forgets all places.
    LoseQueue,
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
        let (faults, is_held) = (state.faults, !state.server.holds.is_empty());
        let faults = [
            (Step::LoseQueue, faults.lost_queues > 0 && !state.server.queue.is_empty()),
            (Step::Drift, faults.drifts > 0 && is_held),
            (Step::Lag, faults.lags > 0),
            (Step::Jump, faults.jumps > 0),
            (Step::Force, faults.forces > 0 && is_held),
        ];
        steps.extend(faults.into_iter().filter(|(_, may_happen)| *may_happen).map(|(step, _)| step));
        steps.extend((0..state.forces.len()).map(Step::CarryOutForce));
        if self.may_tick(state, steps) {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step);
        if state.clients.iter().filter(|client| client.believes().is_some()).count() > 1 {
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
        if client.dead {
            if !client.deaf {
                steps.push(Step::Cut(at)); // at some time the server sees that the connection is gone
            }
            return;
        }
        let (is_idle, believes) = (client.phase == Phase::Idle, client.believes().is_some());
        let may_ask = client.is_free(Thread::Caller);
        let is_turn = |other: Thread| self.calls == Calls::Both || client.is_free(other);
        let may_begin = is_idle
            && client.request < self.requests
            && self.may_begin(state)
            && self.is_tidy(client)
            && may_ask;
        let may_give_up = client.phase == Phase::Waiting && self.give_ups && may_ask;
        let possible = [
            (Step::Begin(at), may_begin),
            (Step::GiveUp(at, false), may_give_up && self.is_whole()),
            (Step::GiveUp(at, true), may_give_up),
            (Step::Unlock(at), believes && may_ask),
            (Step::Ask(at), client.should_ask(self) && is_turn(Thread::Watchdog)),
            (Step::Renew(at), client.should_renew(self).is_some() && is_turn(Thread::Caller)),
            (Step::Tell(at), client.should_tell().is_some()),
            (Step::Tidy(at), client.should_tidy().is_some()),
            (Step::DeliverPush(at), client.push.is_some()),
            (Step::LosePush(at), client.push.is_some() && faults.lost_pushes > 0),
            (Step::Cut(at), !client.deaf && faults.cuts > 0 && !is_idle),
            (Step::HearAgain(at), client.deaf),
            (Step::Crash(at), faults.crashes > 0 && !is_idle || faults.dead_holders > 0 && believes),
        ];
        steps.extend(possible.into_iter().filter(|(_, is_possible)| *is_possible).map(|(step, _)| step));
        for (thread, call) in THREADS.into_iter().zip(client.calls) {
            let Some(call) = call else { continue };
            let is_sent = call.answer.is_none();
            steps.push(if is_sent { Step::CarryOut(at, thread) } else { Step::Hear(at, thread) });
            if is_sent && faults.duplicates > 0 {
                steps.push(Step::Duplicate(at, thread));
            }
            if faults.time_outs > 0 {
                steps.push(Step::TimeOut(at, thread));
            }
        }
    }

    /// Where places are named by owners, an owner withdraws its ended requests first.
    fn is_tidy(&self, client: &Client) -> bool {
        client.owed.is_empty()
            || self.discipline != Discipline::ByOwner
            || self.is(Rules::NextRequestBeforeTheWithdrawal)
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
        let must_come_first = |step: &Step| match step {
            Step::Ask(_) | Step::Renew(_) | Step::Tell(_) | Step::Tidy(_) => true,
            Step::CarryOut(..) | Step::Hear(..) | Step::TimeOut(..) | Step::Duplicate(..) => true,
            Step::DeliverPush(_) | Step::LosePush(_) | Step::CarryOutForce(_) => true,
            Step::Unlock(at) => state.clients[*at].held_for >= longest_hold,
            _ => false,
        };
        state.now < horizon && !steps.iter().any(must_come_first)
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => self.tick(state),
            Step::Drift => {
                state.faults.drifts -= 1;
                state.server_tick(self);
            }
            Step::Lag => {
                state.faults.lags -= 1;
                state.clients.iter_mut().for_each(|client| client.tick(self, false));
            }
            Step::Jump => {
                state.faults.jumps -= 1;
                state.jump();
            }
            Step::Force => {
                state.faults.forces -= 1;
                let end = if self.is(Rules::EndIsAhead) { END + 2 } else { END };
                state.forces.push(end);
                state.since_force = 0;
                state.server.holds.iter_mut().for_each(|hold| hold.after_force = false);
            }
            Step::CarryOutForce(at) => {
                let end = state.forces.remove(at);
                Script { bounds: self, state }.force(end);
            }
            Step::LoseQueue => {
                state.faults.lost_queues -= 1;
                if self.is_prompt() {
                    state.lost = state.server.queue.iter().map(|place| place.member).collect();
                }
                self.on_entry(state, |entry, _| entry.lose_queue());
                state.server.tidy(self);
            }
            Step::CarryOutLate(at) => {
                let command = state.late.remove(at);
                let client = &state.clients[usize::from(command.member.client)];
                if !client.dead && (client.request > command.member.request || client.phase == Phase::Idle) {
                    state.happened(Event::LateCommand);
                }
                self.carry_out(state, command);
            }
            _ => self.take_of_client(state, step),
        }
    }

    fn take_of_client(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin(at) => {
                state.clients[at].begin();
                self.send(state, at, Thread::Caller, state.clients[at].asking());
            }
            Step::Ask(at) => self.send(state, at, Thread::Caller, state.clients[at].asking()),
            Step::GiveUp(at, wanted) => {
                state.clients[at].give_up(wanted, self.rules);
                self.tell(state, at);
            }
            Step::Unlock(at) => {
                if let Some(token) = state.clients[at].believes() {
                    state.clients[at].lose(token);
                    self.tell(state, at);
                }
            }
            Step::Renew(at) => {
                if let Some(word) = state.clients[at].should_renew(self) {
                    self.send(state, at, self.watchdog(), word);
                }
            }
            Step::Tell(at) => self.tell(state, at),
            Step::Tidy(at) => {
                if let Some((request, word)) = state.clients[at].should_tidy() {
                    let word = self.stamped(&state.clients[at], word);
                    state.clients[at].send(Thread::Background, request, word);
                }
            }
            Step::CarryOut(at, thread) => {
                if let Some(Call { request, word, age, .. }) = state.clients[at].calls[thread as usize] {
                    let answer = Some(self.carry_out(state, Command { member: member(at, request), word }));
                    let word = word.carried_out();
                    state.clients[at].calls[thread as usize] = Some(Call { request, word, age, answer });
                }
            }
            Step::Hear(at, thread) => self.hear(state, at, thread),
            Step::TimeOut(at, thread) => {
                state.faults.time_outs -= 1;
                self.time_out(state, at, thread);
            }
            Step::Duplicate(at, thread) => {
                state.faults.duplicates -= 1;
                if let Some(Call { request, word, .. }) = state.clients[at].calls[thread as usize] {
                    state.late.push(Command { member: member(at, request), word });
                }
            }
            Step::DeliverPush(at) => self.deliver_push(state, at),
            Step::LosePush(at) => {
                state.faults.lost_pushes -= 1;
                state.clients[at].push = None;
                state.push_lost = true;
            }
            Step::Cut(at) => {
                let client = &mut state.clients[at];
                (client.deaf, client.push) = (true, None);
                if !client.dead {
                    client.was_deaf = true;
                    state.faults.cuts -= 1;
                }
            }
            Step::HearAgain(at) => state.clients[at].hear_again(),
            Step::Crash(at) => {
                let Faults { crashes, dead_holders, .. } = &mut state.faults;
                *(if *dead_holders > 0 { dead_holders } else { crashes }) -= 1;
                THREADS.into_iter().for_each(|thread| self.time_out(state, at, thread));
                state.clients[at].die();
            }
            _ => {}
        }
    }

    fn tell(&self, state: &mut State, at: usize) {
        if let Some(word) = state.clients[at].should_tell() {
            self.send(state, at, Thread::Caller, word);
        }
    }

    fn send(&self, state: &mut State, at: usize, thread: Thread, word: Word) {
        let client = &mut state.clients[at];
        let word = self.stamped(client, word);
        client.send(thread, client.request, word);
        if !self.is_whole() && word.verb == Verb::Ask {
            client.beat_in = None;
        }
    }

    /// With the end of an attempt that this client sends now.
    fn stamped(&self, client: &Client, word: Word) -> Word {
        let end = match self.rules {
            _ if !self.has_end(word.verb) => 0,
            Rules::EndIsAhead => END + 2,
            _ if client.behind => 0,
            _ => END,
        };
        // Where places are not put back, a ticket says nothing.
        let word = if self.puts_back() { word } else { word.carried_out() };
        Word { end, ..word }
    }

    fn tick(&self, state: &mut State) {
        if self.is_prompt() {
            state.now += 1;
            state.idle = if self.is_unused(state) { state.idle + 1 } else { 0 };
        }
        state.server_tick(self);
        state.clients.iter_mut().for_each(|client| client.tick(self, self.is_prompt()));
    }

    /// Whether a live client waits, and nobody believes in a hold. Where a client does little: whether units that suffice for
    /// the first live waiter are free, by the ends that each hold should have.
    fn is_unused(&self, state: &State) -> bool {
        let waits = |at: usize| state.clients[at].waits_for();
        if self.is_whole() {
            return state.clients.iter().all(|client| client.believes().is_none())
                && (0..state.clients.len()).any(|at| waits(at).is_some());
        }
        let holds = state.server.holds.iter().filter(|hold| hold.own > 0);
        let taken: u8 = holds.map(|hold| hold.takes).sum();
        let mut members = state.server.queue.iter().map(|place| place.member);
        let first = members.find(|member| waits(usize::from(member.client)) == Some(member.request));
        first.is_some_and(|first| taken + self.takes(first.client) <= self.capacity(first.client))
    }
}

/// A request of the client at this position.
pub fn member(at: usize, request: u8) -> Member {
    Member { client: at as u8, request }
}
