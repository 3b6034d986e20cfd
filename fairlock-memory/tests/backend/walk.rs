//! Random walks, step by step against a model that a reader can check at a glance: a holder and a list.

use std::collections::VecDeque;

use fairlock_core::backend::{
    Acquired, Backend, BackendError, ForceReleased, Released, Renewal, Wait, Withdrawn,
};
use fairlock_core::{FencingToken, OwnerId};
use fairlock_memory::Operation;

use crate::support::{Asker, Fixture, TestClient};

const WALKERS: usize = 6;
const STEPS: usize = 5_000;

/// No waiter is absent in these walks, so the order is that of the requests.
#[derive(Default)]
struct Model {
    holder: Option<(usize, FencingToken)>,
    line: VecDeque<usize>,
    last_token: Option<FencingToken>,
}

struct Walk<'a> {
    fixture: &'a Fixture,
    client: &'a TestClient,
    model: Model,
    /// The current request of each owner; a new one is made when the last has ended.
    askers: Vec<Asker<'a>>,
    next_request: u64,
    random: u64,
}

impl<'a> Walk<'a> {
    fn new(fixture: &'a Fixture, client: &'a TestClient, seed: u64) -> Walk<'a> {
        let askers = (0..WALKERS).map(|number| fixture.request(client, number as u64)).collect();
        Walk { fixture, client, model: Model::default(), askers, next_request: 100, random: seed }
    }

    /// Xorshift: the same walk for the same seed.
    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    /// Makes a call. Sometimes the reply is lost, and the call repeated.
    fn call<T>(&mut self, operation: Operation, call: impl Fn() -> Result<T, BackendError>) -> (T, bool) {
        let lost = self.draw(4) == 0;
        if lost {
            self.fixture.faults().lose_reply(operation, 1);
            assert!(call().is_err());
        }
        (call().unwrap(), lost)
    }

    fn renew_request(&mut self, who: usize) {
        self.next_request += 1;
        let owner = self.askers[who].owner.clone();
        self.askers[who] = self.fixture.request_of(self.client, owner, self.next_request);
    }

    fn holds(&self, who: usize) -> Option<FencingToken> {
        self.model.holder.filter(|(holder, _)| *holder == who).map(|(_, token)| token)
    }

    /// The model's hand-off: the first in line becomes the holder, with the token that the store tells.
    fn hand_on(&mut self) {
        if self.model.holder.is_some() {
            return;
        }
        if let Some(next) = self.model.line.pop_front() {
            let token = self.fixture.inspect().holder().unwrap().token.unwrap();
            self.granted(next, token);
        }
    }

    fn granted(&mut self, who: usize, token: FencingToken) {
        assert!(self.model.last_token < Some(token), "tokens grow");
        self.model.last_token = Some(token);
        self.model.holder = Some((who, token));
    }

    fn acquire(&mut self, who: usize, wait: Wait) {
        let asker = self.askers[who].clone();
        let (answer, _) = self.call(Operation::Acquire, || asker.acquire(wait));
        if let Some(token) = self.holds(who) {
            assert!(matches!(answer, Acquired::Granted { token: same, .. } if same == token));
            return;
        }
        let waited = self.model.line.contains(&who);
        self.hand_on();
        match (answer, self.model.holder) {
            (Acquired::Granted { token, .. }, None) => self.granted(who, token),
            (Acquired::Granted { token, .. }, Some(holder)) => assert_eq!((who, token), holder),
            (Acquired::Queued { rank, .. }, Some(_)) => {
                assert_ne!(wait, Wait::No);
                if !waited {
                    self.model.line.push_back(who);
                }
                assert_eq!(self.model.line.get(rank as usize), Some(&who));
            }
            (Acquired::Busy { .. }, Some(_)) => {
                assert_eq!(wait, Wait::No);
                self.model.line.retain(|waiter| *waiter != who);
            }
            (answer, None) => panic!("{answer:?} though the lock is free"),
        }
    }

    fn release(&mut self, who: usize) {
        let Some(token) = self.holds(who) else { return };
        let asker = self.askers[who].clone();
        let (answer, lost) = self.call(Operation::Release, || asker.release(token));
        assert_eq!(answer, if lost { Released::NotHeld } else { Released::Released });
        self.model.holder = None;
        self.hand_on();
        self.renew_request(who);
    }

    fn withdraw(&mut self, who: usize) {
        let asker = self.askers[who].clone();
        let (answer, _) = self.call(Operation::Withdraw, || asker.try_withdraw());
        match (answer, self.holds(who)) {
            (Withdrawn::WasGranted { token, .. }, Some(held)) => assert_eq!(token, held),
            (Withdrawn::Left, None) => {
                self.model.line.retain(|waiter| *waiter != who);
                self.hand_on();
                self.renew_request(who);
            }
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, who: usize) {
        let asker = self.askers[who].clone();
        let (answer, _) = self.call(Operation::Renew, || asker.renew_place());
        self.hand_on();
        match (answer, self.holds(who)) {
            (Renewal::Granted { token, .. }, Some(held)) => assert_eq!(token, held),
            (Renewal::Waiting { rank, .. }, None) => {
                assert_eq!(self.model.line.get(rank as usize), Some(&who));
            }
            (Renewal::Lost, None) => assert!(!self.model.line.contains(&who)),
            other => panic!("{other:?}"),
        }
    }

    fn force(&mut self) {
        let answer = self.fixture.backend.force_release(&self.fixture.lock).unwrap();
        let expected =
            if self.model.holder.is_some() { ForceReleased::Taken } else { ForceReleased::NotHeld };
        assert_eq!(answer, expected);
        self.model.holder = None;
        self.hand_on();
    }

    fn step(&mut self) {
        let who = self.draw(WALKERS);
        match self.draw(16) {
            0..=4 => self.acquire(who, Wait::Forever),
            5 => self.acquire(who, Wait::No),
            6..=9 => self.release(who),
            10..=11 => self.withdraw(who),
            12..=13 => self.renew(who),
            14 => self.force(),
            _ => {
                self.fixture.faults().lose_hold("orders");
                self.model.holder = None;
            }
        }
        let name = |who: usize| self.askers[who].owner.clone();
        let state = self.fixture.inspect();
        let holder = state.holder().cloned().map(|holder| (holder.owner, holder.token));
        assert_eq!(holder, self.model.holder.map(|(who, token)| (name(who), Some(token))));
        let line: Vec<OwnerId> = self.model.line.iter().map(|&who| name(who)).collect();
        assert_eq!(self.fixture.line(), line);
    }
}

#[test]
fn every_walk_agrees_with_the_model() {
    for seed in 1..=20 {
        let fixture = Fixture::fair();
        let client = fixture.client();
        let mut walk = Walk::new(&fixture, &client, seed);
        (0..STEPS).for_each(|_| walk.step());
    }
}
