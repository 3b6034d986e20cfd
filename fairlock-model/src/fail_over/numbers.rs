//! The canonical form of a state: what makes no difference is dropped, and of tickets, tokens and epochs only the order
//! counts.

use super::bounds::Bounds;
use super::data::Data;
use super::rules::Rules;
use super::state::{Naming, OPERATOR, Phase, Role, Server, State, Verb};
use crate::ranks::to_ranks;

impl Bounds {
    /// The canonical form.
    pub fn normal(&self, mut state: State) -> State {
        self.forget(&mut state);
        state.late.sort_unstable();
        self.renumber(&mut state);
        let mut least = state;
        for names in self.other_names() {
            let mut other = renamed(state, *names);
            self.renumber(&mut other);
            least = least.min(other);
        }
        least
    }

    /// Clients that ask for the same are interchangeable: for each client, the other one whose place it takes.
    fn other_names(&self) -> &'static [[u8; 3]] {
        let [first, second, third] = self.takes;
        match self.clients {
            _ if !self.alike || first != second => &[],
            3 if second == third => &[[1, 0, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1]],
            _ => &[[1, 0, 2]],
        }
    }

    fn forget(&self, state: &mut State) {
        // With these rules former namings go on to count.
        let keeps = matches!(self.rules, Rules::RenewalsWithoutProof | Rules::OldEpochIsNamedAgain);
        let fresh = self.times.fresh;
        let mut kept = [Naming::default(); 3];
        let counts = |naming: &&Naming| naming.epoch > 0 && (keeps || naming.age <= fresh);
        for (to, from) in kept.iter_mut().zip(state.namings.iter().filter(counts)) {
            *to = *from;
        }
        if !self.quorum {
            kept = [Naming { epoch: 1, server: 0, age: 0 }, Naming::default(), Naming::default()];
        }
        state.namings = kept;
        if state.faults.old_files == 0 {
            state.file = None;
        }
        for client in &mut state.clients {
            if !matches!(client.phase, Phase::Waiting { .. }) {
                client.pushes = [0; 3];
            }
            if !client.is_forced() && !client.pushes.contains(&client.forced) {
                client.forced = 0;
            }
            if let Phase::Waiting { valid: 0, at, .. } = &mut client.phase {
                *at = 0;
            }
            if let Some(call) = &mut client.call
                && call.verb == Verb::Release
            {
                call.age = 0;
            }
        }
        self.forget_settled(state);
        self.forget_heard(state);
        self.forget_data(state);
    }

    /// Drops late calls that nobody would notice, and executed calls that a client need not remember.
    fn forget_settled(&self, state: &mut State) {
        for late in &mut state.late {
            if self.rules == Rules::Right && late.is_some_and(|late| late.client == OPERATOR && late.end == 0)
            {
                *late = None;
            }
        }
        for (at, client) in state.clients.iter_mut().enumerate() {
            let is_late = |request: u8| {
                let mut late = state.late.iter().flatten();
                late.any(|late| usize::from(late.client) == at && late.call.request == request)
            };
            client.unsure = if is_late(client.request) { client.unsure } else { 0 };
            for request in 1..=2 {
                if !is_late(request) {
                    client.owed[usize::from(request) - 1] = 0;
                    client.settled &= !(1 << request);
                }
            }
        }
    }

    fn renumber(&self, state: &mut State) {
        self.forget_ended(state);
        renumber(state);
    }

    /// Among the ended holds only the reclaimable ones matter; of the last number, only the order.
    fn forget_ended(&self, state: &mut State) {
        let mut reclaimed = 0_u64;
        for call in state.calls().filter(|call| call.verb == Verb::Renew) {
            reclaimed |= 1 << call.number;
        }
        for client in &state.clients {
            if let Phase::Held { token, .. } = client.phase {
                reclaimed |= 1 << token;
            }
        }
        let round = |number: &mut u8| {
            let below = reclaimed & ((2 << *number) - 1);
            *number = 63_u32.checked_sub(below.leading_zeros()).map_or(0, |at| at as u8);
        };
        for data in each_data(state) {
            round(&mut data.ended.last);
            round(&mut data.forced);
            data.ended.tokens &= reclaimed;
            data.released &= reclaimed;
            // These say the same as what the server has noted.
            if self.rules == Rules::Right && self.capacity == 1 {
                (data.released, data.forced) = (0, 0);
            }
        }
    }

    /// Only the reclaims of one grace need to know that a hold was heard.
    fn forget_heard(&self, state: &mut State) {
        for server in &mut state.servers {
            let known = server.data.life.is_some_and(|life| life.left > 0 && life.replid == server.replid);
            let is_read = server.role == Role::Master || self.rules == Rules::LifeIsTheProcess;
            if !known || !is_read {
                server.data.holds.iter_mut().for_each(|hold| hold.heard = false);
            }
        }
        if let Some((_, data)) = &mut state.file {
            data.holds.iter_mut().for_each(|hold| hold.heard = false);
        }
    }

    /// Data that no script and no copy will read.
    fn forget_data(&self, state: &mut State) {
        let faults = state.faults;
        let may_be_copied = faults.promotions > 0 || faults.demotions > 0 || faults.namings > 0;
        for at in 0..self.servers {
            let server = state.servers[at];
            let is_forgotten = match server.role {
                Role::Dead => true,
                Role::Replica => state.faults.promotions == 0,
                Role::Master => {
                    let named = state.namings.into_iter().filter(|naming| naming.epoch > 0);
                    let named = named.map(|naming| naming.server);
                    let mut called = state.calls().map(|call| call.server).chain(named);
                    self.quorum && !may_be_copied && called.all(|server| usize::from(server) != at)
                }
            };
            if is_forgotten {
                let Server { role, follows, .. } = server;
                let follows = if role == Role::Replica { follows } else { 0 };
                state.servers[at] = Server { role, follows, ..Server::default() };
            } else if server.role == Role::Master {
                state.servers[at].follows = 0;
            }
        }
    }
}

/// The state with other names for the clients.
fn renamed(mut state: State, names: [u8; 3]) -> State {
    let clients = state.clients;
    for (client, name) in clients.into_iter().zip(names) {
        state.clients[usize::from(name)] = client;
    }
    let rename = |client: &mut u8| *client = names.get(usize::from(*client)).copied().unwrap_or(OPERATOR);
    for data in each_data(&mut state) {
        let entries = data.places.iter_mut().chain(&mut data.holds);
        entries.filter(|entry| entry.number > 0).for_each(|entry| rename(&mut entry.client));
    }
    state.late.iter_mut().flatten().for_each(|late| rename(&mut late.client));
    state.late.sort_unstable();
    state
}

/// Tickets and tokens, then epochs, then replication ids.
fn renumber(state: &mut State) {
    state.last = to_ranks(state, each_number);
    to_ranks(state, each_epoch);
    let mut names = [0_u8; 32];
    let mut last = 0;
    each_replid(state, |replid| {
        let name = &mut names[usize::from(*replid)];
        if *name == 0 {
            last += 1;
            *name = last;
        }
        *replid = *name;
    });
    state.last_replid = last;
}

fn each_data(state: &mut State) -> impl Iterator<Item = &mut Data> {
    let file = state.file.iter_mut().map(|(_, data)| data);
    state.servers.iter_mut().map(|server| &mut server.data).chain(file)
}

fn each_number(state: &mut State, visit: &mut dyn FnMut(&mut u8)) {
    for data in each_data(state) {
        visit(&mut data.ended.last);
        visit(&mut data.forced);
        for tokens in [&mut data.ended.tokens, &mut data.released] {
            let mut left = std::mem::take(tokens);
            while left > 0 {
                let mut token = left.trailing_zeros() as u8;
                left &= left - 1;
                visit(&mut token);
                *tokens |= 1 << token;
            }
        }
        data.holds.iter_mut().chain(&mut data.places).for_each(|entry| visit(&mut entry.number));
    }
    state.calls().for_each(|call| visit(&mut call.number));
    for client in &mut state.clients {
        client.pushes.iter_mut().for_each(&mut *visit);
        visit(&mut client.forced);
        match &mut client.phase {
            Phase::Idle => {}
            Phase::Waiting { ticket, asked, .. } => {
                visit(ticket);
                visit(asked);
            }
            Phase::Held { token, .. } => visit(token),
        }
    }
}

fn each_epoch(state: &mut State, visit: &mut dyn FnMut(&mut u8)) {
    each_data(state).filter_map(|data| data.life.as_mut()).for_each(|life| visit(&mut life.epoch));
    state.namings.iter_mut().for_each(|naming| visit(&mut naming.epoch));
    state.calls().for_each(|call| visit(&mut call.epoch));
}

fn each_replid(state: &mut State, mut visit: impl FnMut(&mut u8)) {
    for server in &mut state.servers {
        visit(&mut server.replid);
        server.data.life.iter_mut().for_each(|life| visit(&mut life.replid));
    }
    state.file.iter_mut().filter_map(|(_, data)| data.life.as_mut()).for_each(|life| visit(&mut life.replid));
}
