//! The canonical form of a state: what makes no difference is dropped, and of tickets and tokens only the order counts.

use super::bounds::{Bounds, Discipline, END, MARGIN};
use super::client::{Client, Phase};
use super::messages::{Answer, Call, Command, Member, Thread, Verb, Word};
use super::rules::Rules;
use super::state::State;
use crate::ranks::to_ranks;

impl Bounds {
    /// The canonical form.
    pub fn normal(&self, mut state: State) -> State {
        for client in &mut state.clients {
            if !self.is_prompt() {
                // A call may be early or late, so the time when it is due does not matter.
                let waits = client.waits_for().is_some();
                (client.look, client.look_in, client.held_for) = (waits, None, 0);
                client.beat_in = (waits || client.believes().is_some()).then_some(0);
            }
            self.forget_push(client);
            self.forget_what_is_old(client);
        }
        if !self.witness {
            (state.events, state.expired, state.push_lost) = (0, false, false);
            if state.faults.forces == 0 && state.forces.is_empty() {
                state.since_force = END;
                state.server.holds.iter_mut().for_each(|hold| hold.after_force = false);
            }
            if self.is(Rules::Right) && self.is_whole() {
                self.forget_refused(&mut state);
            }
        }
        if self.alike {
            self.sort_clients(&mut state);
        }
        state.server.holds.sort_unstable_by_key(|hold| hold.token);
        state.late.sort_unstable();
        state.forces.sort_unstable();
        renumber_the_order(&mut state);
        forget_lost(&mut state);
        round_served(&mut state);
        // Tickets are not compared with tokens.
        let last_ticket = to_ranks(&mut state, each_ticket);
        state.server.last = to_ranks(&mut state, each_token).max(last_ticket);
        state
    }

    fn forget_push(&self, client: &mut Client) {
        let Client { phase, request, heard, latest, push, .. } = client;
        // A push that will not be believed is a reason to ask, and nothing else.
        let counts_old = self.is_prompt() || self.is_whole() && (self.witness || !self.is(Rules::Right));
        push.take_if(|push| {
            let is_old = push.token == 0 || heard.is_some() && push.token <= *latest;
            let is_its = push.request == *request && (*phase == Phase::Waiting || push.taken);
            !is_its || !counts_old && is_old
        });
    }

    /// Drops what no longer makes a difference, to reduce the states.
    fn forget_what_is_old(&self, client: &mut Client) {
        if client.phase == Phase::Idle {
            client.forced = 0;
        }
        let oldest = self.times.old().min(self.times.place - MARGIN);
        let Client { phase, request, heard, latest, early, calls, push, .. } = client;
        let phase = *phase;
        // A belief of a pushed grant has ended by then.
        *heard = heard.map(|age| age.min(oldest));
        // It is compared with the pushes that have been sent. Later ones have greater tokens anyway.
        let held = match phase {
            Phase::Held { token, .. } => token,
            Phase::Leaving { word, .. } => word.number,
            _ => 0,
        };
        let sent = [push.map_or(0, |push| push.token), *early, held];
        let round = |latest: u8| sent.into_iter().filter(|token| *token <= latest).max().unwrap_or(0);
        *latest = round(*latest);
        let is_news = |call: &Call| {
            call.word.is_of_place()
                && self.is_whole()
                && phase != Phase::Idle
                && matches!(call.answer, Some(Answer::Granted { .. } | Answer::Queued { .. }))
        };
        for thread in [Thread::Caller, Thread::Watchdog] {
            let call = &mut calls[thread as usize];
            call.take_if(|call| call.answer.is_some() && call.request != *request);
            // An answer about what is over does not matter. (One thread's calls are enough for that.)
            call.take_if(|call| {
                let is_over = match call.word.verb {
                    Verb::Ask | Verb::Heartbeat => phase != Phase::Waiting,
                    Verb::Renew => !matches!(phase, Phase::Held { token, .. } if token == call.word.number),
                    Verb::Withdraw | Verb::Release => !matches!(phase, Phase::Leaving { .. }),
                };
                thread == self.watchdog() && call.answer.is_some() && is_over && !is_news(call)
            });
            let Some(Call { word, age, answer, .. }) = call else { continue };
            let ages_of_grants_matter =
                matches!(self.rules, Rules::ValidFromTheAnswer | Rules::PushCountsFromAnyAnswer);
            match answer {
                None if word.verb == Verb::Release => *age = 0,
                Some(Answer::Granted { left, .. }) if !ages_of_grants_matter => {
                    (*left, *age) = (left.saturating_sub(*age), 0);
                }
                Some(Answer::Queued { latest, .. }) => (*latest, *age) = (round(*latest), (*age).min(oldest)),
                None | Some(Answer::Granted { .. } | Answer::Renewed | Answer::TooLate | Answer::Busy) => {}
                Some(_) => *age = 0,
            }
        }
    }

    /// Drops late attempts that the server will certainly refuse: past their end, for a request of which the server has
    /// nothing, and can't get anything.
    fn forget_refused(&self, state: &mut State) {
        let State { clients, server, late, .. } = state;
        let begins = |verb: Verb| !matches!(verb, Verb::Renew | Verb::Release);
        let may_matter = |Command { member, word }: &Command| {
            let client = &clients[usize::from(member.client)];
            let is_sent = |thread: Thread| {
                let call = client.calls[thread as usize];
                call.is_some_and(|call| call.answer.is_none() && call.request == member.request)
            };
            let is_at_server = server.holds.iter().any(|hold| hold.member == *member)
                || server.queue.iter().any(|place| place.member == *member);
            let may_ask = client.waits_for() == Some(member.request)
                || is_sent(Thread::Caller)
                || is_sent(Thread::Watchdog);
            !begins(word.verb) || word.end > 0 || is_at_server || may_ask
        };
        if self.discipline != Discipline::HandOff {
            late.retain(|command| command.word.verb != Verb::Withdraw || command.word.end > 0);
        }
        let alive: Vec<Member> =
            late.iter().filter(|command| may_matter(command)).map(|command| command.member).collect();
        late.retain(|command| alive.contains(&command.member));
        for Command { word, .. } in late.iter_mut().filter(|command| command.word.end == 0) {
            *word = word.carried_out();
        }
    }

    /// Clients that ask for the same are interchangeable, so their order makes no difference.
    fn sort_clients(&self, state: &mut State) {
        let clients = state.clients.len();
        for (one, other) in (0..clients).flat_map(|one| (one + 1..clients).map(move |other| (one, other))) {
            let is_same =
                self.takes[one] == self.takes[other] && self.capacities[one] == self.capacities[other];
            if is_same && state.clients[other] < state.clients[one] {
                swap_clients(state, one, other);
            }
        }
    }
}

fn swap_clients(state: &mut State, one: usize, other: usize) {
    state.clients.swap(one, other);
    let (one, other) = (one as u8, other as u8);
    let swap = |member: &mut Member| match member.client {
        client if client == one => member.client = other,
        client if client == other => member.client = one,
        _ => {}
    };
    state.server.holds.iter_mut().for_each(|hold| swap(&mut hold.member));
    state.server.queue.iter_mut().for_each(|place| swap(&mut place.member));
    state.lost.iter_mut().for_each(swap);
    state.late.iter_mut().for_each(|command| swap(&mut command.member));
}

/// A place that was lost matters until it is back, or its request does not wait any more.
fn forget_lost(state: &mut State) {
    let State { clients, server, lost, .. } = state;
    lost.retain(|member| {
        let waits = clients[usize::from(member.client)].waits_for() == Some(member.request);
        waits && server.place_of(*member).is_none()
    });
}

/// Which tickets in use have had their turn is all that matters.
fn round_served(state: &mut State) {
    let served = std::mem::take(&mut state.server.served);
    let (mut any, mut last) = (false, 0);
    each_ticket(state, &mut |ticket| {
        any |= *ticket > 0;
        last = if *ticket <= served { last.max(*ticket) } else { last };
    });
    state.server.served = match last {
        _ if !any => 0,
        0 => served,
        last => last,
    };
}

fn renumber_the_order(state: &mut State) {
    let mut stood: Vec<u8> = state.clients.iter().map(|client| client.stood).filter(|at| *at > 0).collect();
    stood.sort_unstable();
    for client in state.clients.iter_mut().filter(|client| client.stood > 0) {
        client.stood = stood.iter().filter(|at| **at <= client.stood).count() as u8;
    }
}

fn each_ticket(state: &mut State, visit: &mut dyn FnMut(&mut u8)) {
    let State { server, clients, late, .. } = state;
    server.queue.iter_mut().for_each(|place| visit(&mut place.ticket));
    visit(&mut server.served);
    let mut visit_word = |word: &mut Word| {
        if word.is_of_place() {
            visit(&mut word.number);
        }
    };
    late.iter_mut().for_each(|command| visit_word(&mut command.word));
    clients
        .iter_mut()
        .flat_map(|client| &mut client.calls)
        .flatten()
        .for_each(|call| visit_word(&mut call.word));
    for client in clients {
        visit(&mut client.ticket);
        for call in client.calls.iter_mut().flatten() {
            if let Some(Answer::Queued { ticket, .. }) = &mut call.answer {
                visit(ticket);
            }
        }
    }
}

fn each_token(state: &mut State, visit: &mut dyn FnMut(&mut u8)) {
    let State { server, clients, late, .. } = state;
    server.holds.iter_mut().for_each(|hold| visit(&mut hold.token));
    let visit_word = |word: &mut Word, visit: &mut dyn FnMut(&mut u8)| {
        if !word.is_of_place() {
            visit(&mut word.number);
        }
    };
    late.iter_mut().for_each(|command| visit_word(&mut command.word, visit));
    for client in clients {
        let Client { latest, forced, early, .. } = client;
        [latest, forced, early].into_iter().for_each(&mut *visit);
        client.owed.iter_mut().for_each(|owed| visit(&mut owed.token));
        client.push.iter_mut().for_each(|push| visit(&mut push.token));
        match &mut client.phase {
            Phase::Held { token, .. } => visit(token),
            Phase::Leaving { word, .. } => visit_word(word, visit),
            Phase::Idle | Phase::Waiting => {}
        }
        for Call { word, answer, .. } in client.calls.iter_mut().flatten() {
            visit_word(word, visit);
            match answer {
                Some(Answer::Granted { token, .. }) => visit(token),
                Some(Answer::Queued { latest, .. }) => visit(latest),
                _ => {}
            }
        }
    }
}
