//! The canonical form of a state: what makes no difference is dropped, and of tickets and tokens only the order counts.

use super::bounds::Bounds;
use super::client::{Call, Client, Phase};
use super::state::{Answer, State, Word};

impl Bounds {
    /// The canonical form.
    pub fn normal(&self, mut state: State) -> State {
        for client in &mut state.clients {
            self.forget(client);
        }
        if self.alike && state.clients[1] < state.clients[0] {
            swap_clients(&mut state);
        }
        state.late.sort_unstable();
        renumber(&mut state);
        state
    }

    fn forget(&self, client: &mut Client) {
        let is_prompt = self.is_prompt();
        if !is_prompt {
            // A call may be early or late, so the time when it is due does not matter.
            (client.look, client.look_in, client.beat_in) = (false, None, None);
        }
        let Client { phase, request, heard, latest, early, call, push, .. } = client;
        // A push that will not be believed is a reason to ask, and nothing else.
        push.take_if(|push| {
            let is_old = heard.is_some() && push.token.is_some_and(|token| token <= *latest);
            push.request != *request
                || *phase != Phase::Waiting
                || !is_prompt && (is_old || push.token.is_none())
        });
        // It is compared with the pushes that have been sent. Later ones have greater tokens anyway.
        let sent = [push.and_then(|push| push.token).unwrap_or(0), *early];
        let round = |latest: u8| sent.into_iter().filter(|token| *token <= latest).max().unwrap_or(0);
        *latest = round(*latest);
        // A belief of a pushed grant has ended by then.
        *heard = heard.map(|age| age.min(self.times.lease.min(self.times.place) - 1));
        let Some(Call { word, age, answer, .. }) = call else { return };
        match (&*word, answer) {
            (Word::Release { .. }, None) => *age = 0,
            (_, Some(Answer::Granted { left, .. })) => (*left, *age) = (left.saturating_sub(*age), 0),
            (_, Some(Answer::Queued { latest, .. })) => *latest = round(*latest),
            (_, Some(Answer::HoldLost | Answer::Done { .. })) => *age = 0,
            _ => {}
        }
        // Too late to matter.
        let is_of = match word {
            Word::Ask => *phase == Phase::Waiting,
            Word::Renew { token } => matches!(phase, Phase::Held { token: held, .. } if held == token),
            Word::Withdraw | Word::Release { .. } => matches!(phase, Phase::Leaving { .. }),
        };
        call.take_if(|call| call.answer.is_some() && !is_of);
    }
}

/// The first two clients are interchangeable.
fn swap_clients(state: &mut State) {
    state.clients.swap(0, 1);
    let swap = |client: &mut u8| *client = if *client < 2 { 1 - *client } else { *client };
    state.server.holds.iter_mut().for_each(|hold| swap(&mut hold.member.client));
    state.server.line.iter_mut().for_each(|place| swap(&mut place.member.client));
    state.late.iter_mut().for_each(|command| swap(&mut command.member.client));
    state
        .clients
        .iter_mut()
        .filter_map(|client| client.push.as_mut())
        .for_each(|push| swap(&mut push.client));
}

fn renumber(state: &mut State) {
    let mut in_use = 0_u64;
    each_number(state, |number| in_use |= 1 << *number);
    in_use &= !1; // 0 stands for none
    state.server.last = in_use.count_ones() as u8;
    each_number(state, |number| {
        if *number > 0 {
            *number = (in_use & ((1 << *number) - 1)).count_ones() as u8 + 1;
        }
    });
    // The line is by ticket.
    state.server.line.sort_unstable();
}

fn each_number(state: &mut State, mut visit: impl FnMut(&mut u8)) {
    fn of_word(word: &mut Word) -> Option<&mut u8> {
        match word {
            Word::Renew { token } | Word::Release { token } => Some(token),
            Word::Ask | Word::Withdraw => None,
        }
    }
    state.server.holds.iter_mut().for_each(|hold| visit(&mut hold.token));
    state.server.line.iter_mut().for_each(|place| visit(&mut place.ticket));
    state.late.iter_mut().filter_map(|command| of_word(&mut command.word)).for_each(&mut visit);
    for client in &mut state.clients {
        visit(&mut client.latest);
        visit(&mut client.early);
        client.push.iter_mut().filter_map(|push| push.token.as_mut()).for_each(&mut visit);
        match &mut client.phase {
            Phase::Held { token, .. } => visit(token),
            Phase::Leaving { word } => of_word(word).into_iter().for_each(&mut visit),
            Phase::Idle | Phase::Waiting => {}
        }
        let Some(call) = &mut client.call else { continue };
        of_word(&mut call.word).into_iter().for_each(&mut visit);
        if let Some(Answer::Granted { token: number, .. } | Answer::Queued { latest: number, .. }) =
            &mut call.answer
        {
            visit(number);
        }
    }
}
