//! What a client believes: `fairlock-core/src/claim/` in short.

use super::bounds::Bounds;
use super::rules::Rules;
use super::server::Answer;
use super::state::{Call, Event, Phase, State, Verb};

impl Bounds {
    /// What is left of `time` when the request was sent `age` ago.
    fn since_sent(&self, time: u8, age: u8) -> u8 {
        if self.rules == Rules::ValidFromTheAnswer { time } else { time.saturating_sub(age) }
    }

    /// A client hears the answer to its request.
    pub fn hear(&self, state: &mut State, at: usize, call: Call, answer: Answer) {
        let lease = self.times.lease;
        let in_grace = state.servers[usize::from(call.server)].data.is_in_grace();
        let mut event = None;
        let is_named = usize::from(call.server) == state.named();
        let client = &mut state.clients[at];
        let is_live = self.keeps && client.believes() && !client.is_forced();
        match (&mut client.phase, call.verb, answer) {
            (Phase::Waiting { valid, .. }, Verb::Ask, Answer::Granted { token, left }) => {
                let counts = self.since_sent(left, call.age);
                if counts > 0 {
                    if !is_named {
                        event = Some(Event::GrantedByADeposed);
                    }
                    client.phase = Phase::Held { token, valid: counts };
                } else {
                    *valid = 0;
                }
            }
            (Phase::Waiting { asked, ticket: told, .. }, Verb::Ask, Answer::Queued { ticket }) => {
                // A late repeat of the first request may have put it at the tail, which the client is told.
                let keeps = *asked > 0 && (*told == ticket || self.rules == Rules::PutBackAtTheTail);
                let asked = if keeps { *asked } else { ticket };
                let valid = self.since_sent(lease, call.age);
                client.phase = Phase::Waiting { ticket, asked, at: call.server, valid };
                // Older than what the client has been told: it would not be believed.
                client.pushes[usize::from(call.server)] = 0;
            }
            (Phase::Held { token, valid }, Verb::Renew, Answer::Renewed)
                if *token == call.number && (*valid > 0 || self.rules == Rules::BeliefRevives) =>
            {
                if in_grace {
                    event = Some(Event::Reclaimed);
                }
                *valid = (*valid).max(self.since_sent(lease, call.age));
            }
            (Phase::Held { token, valid }, Verb::Renew, Answer::Lost) if *token == call.number => {
                *valid = 0;
                state.robbed |= is_live;
            }
            _ => {}
        }
        event.into_iter().for_each(|event| state.happened(event));
    }

    /// A push of this server reaches the client.
    pub fn hear_push(&self, state: &mut State, at: usize, server: usize) {
        let client = &mut state.clients[at];
        let token = std::mem::take(&mut client.pushes[server]);
        if let Phase::Waiting { ticket, at, valid, .. } = client.phase
            && ticket > 0
            && valid > 0
            && (usize::from(at) == server || self.rules == Rules::PushFromAnyServer)
        {
            client.phase = Phase::Held { token, valid };
            state.happened(Event::BelievedAPush);
        }
    }
}
