//! The oracle for order and tokens on a real server. Tickets and tokens of a lock are numbers of one sequence, so they tell who asked first
//! and who was granted first, whatever becomes of the answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairlock::FencingToken;
use fairlock::admin::LockKind;
use fairlock::backend::{Acquire, Acquired, RequestId};

use crate::judge;
use crate::life::Life;
use crate::world::{Promise, World};

/// Of each lock, the requests that have stood in its queue or were granted.
#[derive(Default)]
pub struct Order {
    lines: HashMap<String, HashMap<RequestId, Request>>,
    /// Of each lock, the greatest token that a client heard.
    greatest: HashMap<String, u64>,
    /// Of each request, the greatest token that was heard before it asked.
    before: HashMap<RequestId, u64>,
}

struct Request {
    life: Arc<Life>,
    owner: String,
    /// None if it was granted before its place was heard of.
    ticket: Option<u64>,
    /// Of the first grant to this place.
    token: Option<u64>,
    /// Earlier grants have no greater token: what came of them is over, as after a force.
    latest: u64,
    /// It had its turn, by such a grant, and was put back after that: until then others went before it.
    back_since: u64,
    /// When it was asked first, when its place was heard of, and when its grant was.
    began: Duration,
    since: Duration,
    until: Duration,
}

impl Request {
    /// Whether it stood in the queue before the other one, and was granted after it.
    fn is_passed_by(&self, other: &Request) -> bool {
        let is_before = match (self.ticket, other.ticket) {
            (Some(first), Some(second)) => first < second,
            (Some(_), None) => self.since < other.began,
            (None, _) => false,
        };
        is_before && other.token.is_some_and(|token| self.back_since < token) && self.token > other.token
    }
}

impl Order {
    /// A client asks.
    pub fn asks(&mut self, world: &World, life: &Arc<Life>, ask: &Acquire<'_>) {
        let lock = ask.place.lock;
        let greatest = self.greatest.get(lock.name.as_str()).copied().unwrap_or(0);
        self.before.entry(ask.place.request).or_insert(greatest);
        if lock.kind == LockKind::Plain {
            return;
        }
        let queue = self.lines.entry(lock.name.as_str().to_owned()).or_default();
        queue.entry(ask.place.request).or_insert_with(|| Request {
            life: Arc::clone(life),
            owner: ask.place.owner.to_string(),
            ticket: None,
            token: None,
            latest: 0,
            back_since: 0,
            began: world.now(),
            since: Duration::MAX,
            until: Duration::MAX,
        });
    }

    /// This was the answer.
    pub fn answered(&mut self, world: &World, ask: &Acquire<'_>, answer: &Acquired) {
        let (lock, request, now) = (ask.place.lock, ask.place.request, world.now());
        if let Acquired::Granted { token, .. } = *answer {
            return self.granted(world, lock.name.as_str(), request, token);
        }
        let Some(queue) = self.lines.get_mut(lock.name.as_str()) else { return };
        if let Acquired::Declined(_) = answer {
            queue.remove(&request);
        }
        let Some(waiter) = queue.get_mut(&request) else { return };
        match *answer {
            Acquired::Queued { ticket, latest, .. } if ticket > 0 => {
                waiter.since = waiter.since.min(now);
                waiter.latest = waiter.latest.max(latest);
                if waiter.token.take_if(|token| *token <= latest).is_some() {
                    waiter.back_since = latest;
                }
                let before = waiter.ticket.replace(ticket);
                let spoke = || judge::could_be_reached(world, &waiter.life, waiter.since, now);
                if before.is_some_and(|before| before < ticket) && spoke() {
                    let (who, lock) = (world.name_of(&waiter.owner), &lock.name);
                    let what = format!("{lock}: {who} spoke all the time and went to the tail");
                    world.found(Promise::Order, what);
                }
            }
            _ => {}
        }
    }

    /// It was granted.
    pub fn granted(&mut self, world: &World, lock: &str, request: RequestId, token: FencingToken) {
        let before = self.before.get(&request).copied().unwrap_or(0);
        if token.get() <= before {
            world.found(Promise::Token, format!("{lock}: {token} was granted after {before}"));
        }
        let greatest = self.greatest.entry(lock.to_owned()).or_default();
        *greatest = token.get().max(*greatest);
        let Some(queue) = self.lines.get_mut(lock) else { return };
        let Some(granted) = queue.get_mut(&request) else { return };
        if token.get() <= granted.latest || granted.token.is_some_and(|first| first <= token.get()) {
            return;
        }
        (granted.token, granted.until) = (Some(token.get()), world.now());
        let granted = &queue[&request];
        for other in queue.values().filter(|other| other.token.is_some()) {
            let pair = [(granted, other), (other, granted)].into_iter();
            for (first, second) in pair.filter(|(first, second)| first.is_passed_by(second)) {
                if judge::could_be_reached(world, &first.life, first.since, first.until) {
                    let [first_is, second_is] = [first, second].map(|one| world.name_of(&one.owner));
                    let what = format!(
                        "{lock}: {second_is}, {:?} granted as {:?}, goes before {first_is}, {:?} granted as {:?}, which waits since {:?} \
                         and was there all the time",
                        second.ticket, second.token, first.ticket, first.token, first.since
                    );
                    world.found(Promise::Order, what);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fairlock::admin::LockName;
    use fairlock::backend::{LockId, Place};
    use fairlock::owner::OwnerId;

    use super::*;
    use crate::generate::generate;
    use crate::program::Program;
    use crate::weather::{Fault, Harm};
    use crate::world::Place as At;

    /// What the oracle finds if the second one is granted first, and these tokens are given to the second and the first.
    fn found(faults: Vec<Fault>, tokens: [u64; 2]) -> Vec<Promise> {
        let program = Program { faults, ..generate(1) };
        let world = World::new(&program, At::Server { ways: Vec::new() });
        let life = Arc::new(Life::new(0, 0, program.clients[0]));
        let lock = LockId::new(LockName::new("L0").unwrap(), LockKind::Fair);
        let owners = ["a:1", "a:2"].map(OwnerId::new);
        let mut order = Order::default();
        let ask = |number: u64| {
            let owner = &owners[usize::from(number == 2)];
            Acquire::new(Place::new(&lock, owner, RequestId::new(number)), Duration::from_secs(1))
        };
        let asks = |order: &mut Order, number| {
            let queued =
                Acquired::Queued { rank: 0, recheck_in: Duration::MAX, ticket: 10 + number, latest: 0 };
            order.asks(&world, &life, &ask(number));
            order.answered(&world, &ask(number), &queued);
        };
        [1, 2].into_iter().for_each(|number| asks(&mut order, number));
        for (number, token) in [2, 1].into_iter().zip(tokens) {
            order.granted(&world, "L0", RequestId::new(number), FencingToken::new(token));
        }
        asks(&mut order, 3);
        order.granted(&world, "L0", RequestId::new(3), FencingToken::new(22));
        world.findings().iter().map(|finding| finding.promise).collect()
    }

    /// Live: it could be reached all the time.
    #[test]
    fn a_grant_before_an_earlier_live_waiter_is_found() {
        let fault =
            |harm| vec![Fault { at: Duration::ZERO, lasts: Duration::from_secs(1), client: Some(0), harm }];
        assert_eq!(found(Vec::new(), [20, 21]), [Promise::Order]);
        assert_eq!(found(fault(Harm::Stop), [20, 21]), []);
        let row = fault(Harm::Block { lock: 0 });
        assert_eq!(found(row, [20, 21]), [Promise::Order], "P4: also while the row is locked");
    }

    /// Of two that asked before either was granted, answers may come in any order.
    #[test]
    fn a_token_that_is_not_greater_than_one_heard_before_is_found() {
        assert_eq!(found(Vec::new(), [21, 20]), []);
        assert_eq!(found(Vec::new(), [22, 20]), [Promise::Token]);
    }
}
