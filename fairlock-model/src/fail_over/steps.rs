//! All possible next steps, and their effects.

use stateright::{Model, Property};

use super::bounds::Bounds;
use super::data::{Data, Entry};
use super::properties;
use super::rules::Rules;
use super::state::{Call, Client, Event, Late, MOST, Naming, OPERATOR, Phase, Role, State, Verb};

/// One step. Numbers are those of clients, servers, namings, or positions in the list of late calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes everywhere.
    Tick,
    /// Time passes at one server only.
    Drift(usize),
    /// A client asks for the lock, or for its place, under a proof of this naming. The first time, this begins a request.
    Ask(usize, usize),
    /// The client renews its hold.
    Renew(usize, usize),
    /// The client stops believing, and releases its hold.
    Release(usize, usize),
    /// The client stops believing, and tells no server.
    Drop(usize),
    /// Its request is executed, and it hears the answer.
    Answer(usize),
    /// Its request is lost.
    Lose(usize),
    /// The client no longer waits for the answer, and the request is executed later.
    TimeOut(usize),
    /// A late request is executed.
    Execute(usize),
    /// The client withdraws this ended request once more, under a proof of this naming.
    Withdraw(usize, usize, u8),
    /// An operator takes the lock by force, under a proof of this naming.
    Force(usize),
    /// A push of this server reaches the client.
    Push(usize, usize),
    /// A replica copies the data of its master.
    Copy(usize),
    /// A replica becomes a master, with the data that it has.
    Promote(usize),
    /// The sentinels name this master, under a new epoch.
    Name(usize),
    /// A server becomes a replica of another, and copies its data.
    Demote(usize, usize),
    /// A master restarts without data.
    Restart(usize),
    /// A master writes its data to a file.
    Save(usize),
    /// A master restarts with the data of the file.
    RestartWithFile(usize),
    /// A master loses all data, and goes on.
    Flush(usize),
}

impl Model for Bounds {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.normal(State::new(self))]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if properties::is_broken(self, state) {
            return; // so that the counter-example ends here
        }
        for at in 0..self.clients {
            self.steps_of_client(state, at, steps);
        }
        if state.faults.forces > 0 {
            steps.extend(self.targets(state, false).map(Step::Force));
        }
        steps.extend((0..state.late.len()).filter(|at| state.late[*at].is_some()).map(Step::Execute));
        for at in 0..self.servers {
            self.steps_of_server(state, at, steps);
        }
        steps.push(Step::Tick);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = *last;
        self.take(&mut state, step);
        if !self.witness {
            state.events = 0;
        }
        Some(self.normal(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl Bounds {
    fn steps_of_client(&self, state: &State, at: usize, steps: &mut Vec<Step>) {
        let client = &state.clients[at];
        for server in (0..self.servers).filter(|server| client.pushes[*server] > 0) {
            steps.push(Step::Push(at, server));
        }
        for request in (1..).zip(client.owed).filter(|(_, owed)| *owed == 1).map(|(request, _)| request) {
            steps.extend(self.targets(state, false).map(|naming| Step::Withdraw(at, naming, request)));
        }
        if client.call.is_some() {
            steps.extend([Step::Answer(at), Step::Lose(at)]);
            if state.faults.time_outs > 0 {
                steps.push(Step::TimeOut(at));
            }
            return;
        }
        match client.phase {
            Phase::Idle if client.request == self.requests => {}
            Phase::Idle | Phase::Waiting { .. } => {
                steps.extend(self.targets(state, false).map(|naming| Step::Ask(at, naming)));
            }
            Phase::Held { valid, .. } => {
                if valid > 0 {
                    let any_age = self.rules == Rules::RenewalsWithoutProof;
                    steps.extend(self.targets(state, any_age).map(|naming| Step::Renew(at, naming)));
                }
                steps.extend(self.targets(state, false).map(|naming| Step::Release(at, naming)));
                steps.push(Step::Drop(at));
            }
        }
    }

    /// The namings under which a request may be sent. Without a quorum: the masters.
    fn targets(&self, state: &State, any_age: bool) -> impl Iterator<Item = usize> {
        let state = *state;
        let (quorum, servers, fresh) = (self.quorum, self.servers, self.times.fresh);
        (0..MOST).filter(move |at| {
            if !quorum {
                return *at < servers && state.servers[*at].role == Role::Master;
            }
            let naming = state.namings[*at];
            naming.epoch > 0 && (any_age || naming.age <= fresh)
        })
    }

    fn steps_of_server(&self, state: &State, at: usize, steps: &mut Vec<Step>) {
        let (server, faults) = (&state.servers[at], &state.faults);
        let is_master = server.role == Role::Master;
        if server.role == Role::Replica && faults.promotions > 0 {
            steps.push(Step::Promote(at));
            let master = &state.servers[usize::from(server.follows)];
            if master.role == Role::Master && (master.data, master.replid) != (server.data, server.replid) {
                steps.push(Step::Copy(at));
            }
        }
        if self.quorum && is_master && faults.namings > 0 && state.named() != at {
            steps.push(Step::Name(at));
        }
        if faults.demotions > 0 {
            let masters =
                (0..self.servers).filter(|other| *other != at && state.servers[*other].role == Role::Master);
            steps.extend(masters.map(|master| Step::Demote(at, master)));
        }
        if !is_master {
            return;
        }
        let is_its = |(of, _)| usize::from(of) == at;
        let possible = [
            (Step::Restart(at), faults.restarts > 0),
            (Step::Flush(at), faults.flushes > 0),
            (Step::Save(at), faults.old_files > 0 && state.file.is_none()),
            (Step::RestartWithFile(at), faults.old_files > 0 && state.file.is_some_and(is_its)),
            (Step::Drift(at), faults.drifts > 0),
        ];
        steps.extend(possible.into_iter().filter(|(_, is_possible)| *is_possible).map(|(step, _)| step));
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => self.tick(state),
            Step::Drift(at) => {
                state.faults.drifts -= 1;
                state.servers[at].data.tick();
            }
            Step::Drop(at) => (state.clients[at].phase, state.clients[at].unsure) = (Phase::Idle, 0),
            Step::Withdraw(at, naming, request) => {
                let Call { server, epoch, .. } = self.call(state, at, naming, Verb::Force);
                let member = Entry { client: at as u8, request, ..Entry::default() };
                if self.withdraw(state, usize::from(server), epoch, member) {
                    state.clients[at].owed[usize::from(request) - 1] = 0;
                    state.clients[at].settled |= 1 << request;
                }
            }
            Step::Force(naming) => {
                state.faults.forces -= 1;
                let call = Call { request: 0, ..self.call(state, 0, naming, Verb::Force) };
                state.be_late(Late { client: OPERATOR, call, end: self.times.end });
            }
            Step::Ask(at, naming) => {
                let client = &mut state.clients[at];
                if client.phase == Phase::Idle {
                    client.request += 1;
                    client.phase = Phase::Waiting { ticket: 0, asked: 0, at: 0, valid: 0 };
                }
                state.clients[at].call = Some(self.call(state, at, naming, Verb::Ask));
            }
            Step::Renew(at, naming) => {
                state.clients[at].call = Some(self.call(state, at, naming, Verb::Renew));
            }
            Step::Release(at, naming) => {
                let call = self.call(state, at, naming, Verb::Release);
                state.clients[at].end();
                state.clients[at].call = Some(call);
            }
            Step::Answer(at) => {
                if let Some(call) = state.clients[at].call.take() {
                    let answer = self.execute(state, at as u8, call, self.times.end.saturating_sub(call.age));
                    self.hear(state, at, call, answer);
                }
            }
            Step::Lose(at) => state.clients[at].call = None,
            Step::TimeOut(at) => {
                state.faults.time_outs -= 1;
                if let Some(call) = state.clients[at].call.take() {
                    let begins = call.verb != Verb::Release;
                    let end = if begins { self.times.end.saturating_sub(call.age) } else { 0 };
                    let client = &mut state.clients[at];
                    if begins && call.request == client.request {
                        client.unsure = client.unsure.max(end + 1);
                    }
                    state.be_late(Late { client: at as u8, call: Call { age: 0, ..call }, end });
                }
            }
            Step::Execute(at) => {
                if let Some(Late { client, call, end }) = state.late[at].take() {
                    state.happened(Event::LateCall);
                    let member = Entry { client, request: call.request, ..Entry::default() };
                    let had = state.has_any(usize::from(call.server), member);
                    self.execute(state, client, call, end);
                    let is_settled = client != OPERATOR
                        && state.clients[usize::from(client)].settled & (1 << call.request) != 0;
                    state.left_behind |=
                        is_settled && !had && state.has_any(usize::from(call.server), member);
                }
            }
            Step::Push(at, server) => self.hear_push(state, at, server),
            _ => self.fail(state, step),
        }
    }

    fn fail(&self, state: &mut State, step: Step) {
        let servers = &mut state.servers;
        match step {
            Step::Copy(at) => {
                let master = servers[usize::from(servers[at].follows)];
                servers[at].data = master.data;
                self.follow(state, at, master.replid);
            }
            Step::Promote(at) => {
                state.faults.promotions -= 1;
                if !self.quorum && self.rules != Rules::NoQuorum {
                    let masters = servers.iter_mut().filter(|server| server.role == Role::Master);
                    masters.for_each(|server| server.role = Role::Dead);
                }
                servers[at].role = Role::Master;
                let replid = state.draw_replid();
                self.follow(state, at, replid);
            }
            Step::Name(at) => {
                state.faults.namings -= 1;
                let mut naming = Naming { epoch: state.namings[0].epoch + 1, server: at as u8, age: 0 };
                let former = state
                    .namings
                    .iter()
                    .position(|naming| naming.epoch > 0 && usize::from(naming.server) == at);
                match former {
                    Some(former) if self.rules == Rules::OldEpochIsNamedAgain => {
                        naming.epoch = state.namings[former].epoch;
                        state.namings[..=former].rotate_right(1);
                    }
                    _ => state.namings.rotate_right(1),
                }
                state.namings[0] = naming;
            }
            Step::Demote(at, master) => {
                state.faults.demotions -= 1;
                servers[at].role = Role::Replica;
                servers[at].follows = master as u8;
                servers[at].data = servers[master].data;
                let replid = servers[master].replid;
                self.follow(state, at, replid);
            }
            Step::Restart(at) => {
                state.faults.restarts -= 1;
                servers[at].data = Data::default();
                state.servers[at].replid = state.draw_replid();
            }
            Step::Save(at) => state.file = Some((at as u8, servers[at].data)),
            Step::RestartWithFile(at) => {
                state.faults.old_files -= 1;
                if let Some((_, data)) = state.file.take() {
                    state.servers[at].data = data;
                    state.servers[at].replid = state.draw_replid();
                }
            }
            Step::Flush(at) => {
                state.faults.flushes -= 1;
                let life = servers[at].data.life.filter(|_| self.rules == Rules::LifeNotInTheData);
                servers[at].data = Data { life, ..Data::default() };
            }
            _ => {}
        }
    }

    /// A server's replication id changes. Its process stays the same.
    fn follow(&self, state: &mut State, at: usize, replid: u8) {
        if self.rules != Rules::LifeIsTheProcess {
            state.servers[at].replid = replid;
        }
    }

    /// A request that the client sends now, under a proof of this naming.
    fn call(&self, state: &State, at: usize, naming: usize, verb: Verb) -> Call {
        let (server, epoch) = if self.quorum {
            (state.namings[naming].server, state.namings[naming].epoch)
        } else {
            (naming as u8, 1)
        };
        let Client { phase, request, .. } = state.clients[at];
        let number = match phase {
            Phase::Waiting { ticket: number, .. } | Phase::Held { token: number, .. }
                if verb != Verb::Force =>
            {
                number
            }
            _ => 0,
        };
        Call { server, epoch, request, verb, number, age: 0 }
    }

    fn tick(&self, state: &mut State) {
        // Among parts it counts whether a reclaim has ended, which may be after its lease.
        let longest = if self.capacity > 1 { self.times.end.max(self.times.lease) } else { self.times.lease };
        state.servers.iter_mut().for_each(|server| server.data.tick());
        state.file.iter_mut().for_each(|(_, data)| data.tick());
        for naming in state.namings.iter_mut().skip(1).filter(|naming| naming.epoch > 0) {
            naming.age = (naming.age + 1).min(self.times.fresh + 1);
        }
        for late in state.late.iter_mut().flatten() {
            late.end = late.end.saturating_sub(1);
        }
        for client in &mut state.clients {
            for left in client.owed.iter_mut().chain([&mut client.unsure]).filter(|left| **left > 1) {
                *left -= 1;
            }
            if let Some(call) = &mut client.call {
                call.age = (call.age + 1).min(longest);
            }
            if let Phase::Waiting { valid, .. } | Phase::Held { valid, .. } = &mut client.phase {
                *valid = valid.saturating_sub(1);
            }
        }
    }
}
