//! A store in memory as a subject, in virtual time.
//!
//! Intended differences, and how the comparison handles them:
//!
//! - Tokens follow the backend's own clock. They are paired with the model's as they appear, and must grow alike.
//! - A hold ends *with* its last millisecond, while Redis keeps a key through it. So no command comes in such a
//!   millisecond ([`Time::VirtualWithCare`](crate::commands::Time)).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock::ManualClock;
use fairlock_core::backend::{
    Acquire, ForceReleased, Hold, LockId, Place, Renew, RequestId, Subscription, Wait, Wake, WakeSink,
    Withdrawn,
};
use fairlock_core::{ClientId, FencingToken, LockKind, LockName, OwnerId};
use fairlock_tests::reference::{Answer, Ask, ClientNumber, Kind, Member, Patience, Push};
use fairlock_tests::rows::Memory;

use crate::commands::{CLIENTS, Command, LOCKS};
use crate::subject::{Names, Outcome, Seen, Subject, acquired, millis, released, renewed};

const NAMES: [&str; 2] = ["orders", "{orders}"];

pub(crate) struct MemorySubject {
    store: Box<dyn Memory>,
    clock: ManualClock,
    names: Arc<Names>,
    told: Arc<Mutex<Vec<Push>>>,
    subscriptions: [Option<Subscription>; CLIENTS],
    /// For each lock: the model's tokens, and the backend's.
    tokens: [Vec<(u64, u64)>; LOCKS],
    /// The same for tickets.
    tickets: [Vec<(u64, u64)>; LOCKS],
    locks: [LockId; LOCKS],
}

/// The pushes to the clients.
struct Ear {
    names: Arc<Names>,
    told: Arc<Mutex<Vec<Push>>>,
}

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let push = match wake {
            Wake::Granted { owner, request, token, .. } => {
                Push::Granted { to: self.names.member(owner, request), token: token.get() }
            }
            Wake::Taken { owner, token, .. } => {
                let (client, owner) = self.names.of(owner);
                Push::Taken { client, owner, token: token.get() }
            }
            Wake::Recheck { .. } | Wake::Gap => return,
        };
        self.told.lock().unwrap().push(push);
    }
}

impl MemorySubject {
    pub(crate) fn new<S: Memory + 'static>(kind: Kind) -> MemorySubject {
        let clock = ManualClock::new();
        let kind = match kind {
            Kind::Exclusive => LockKind::Fair,
            Kind::Shared { capacity: u32::MAX } => LockKind::ReadWrite,
            Kind::Shared { capacity } => LockKind::Semaphore { permits: capacity },
        };
        let lock = |name| LockId::new(LockName::new(name).unwrap(), kind);
        let mut subject = MemorySubject {
            store: Box::new(S::on(&clock)),
            clock,
            names: Arc::new(Names((0..CLIENTS).map(|_| ClientId::random()).collect())),
            told: Arc::default(),
            subscriptions: [const { None }; CLIENTS],
            tokens: Default::default(),
            tickets: Default::default(),
            locks: NAMES.map(lock),
        };
        (0..CLIENTS).for_each(|client| subject.hears(client));
        subject
    }

    fn hears(&mut self, client: ClientNumber) {
        if self.subscriptions[client].is_none() {
            let ear = Ear { names: Arc::clone(&self.names), told: Arc::clone(&self.told) };
            self.subscriptions[client] =
                Some(self.store.subscribe(self.names.0[client], Arc::new(ear)).unwrap());
        }
    }

    fn own(&self, lock: usize, token: u64) -> FencingToken {
        let own =
            self.tokens[lock].iter().find(|(models, _)| *models == token).map_or(token, |(_, own)| *own);
        FencingToken::new(own)
    }

    fn own_ticket(&self, lock: usize, ticket: u64) -> u64 {
        let mut of_lock = self.tickets[lock].iter();
        of_lock.find(|(models, _)| *models == ticket).map_or(ticket, |(_, own)| *own)
    }

    /// Pairs the backend's tokens with the model's, and replaces them by the model's. An unmatched one stays, and
    /// shows as a difference.
    fn pair(&mut self, lock: usize, models: Vec<&mut u64>, own: Vec<&mut u64>) {
        let mut pairs: Vec<_> = models.into_iter().zip(own).collect();
        pairs.sort_by_key(|(models, _)| **models); // one command may grant several
        for (models, own) in pairs {
            let is_new = self.tokens[lock].last().is_none_or(|last| last.0 < *models && last.1 < *own);
            if is_new {
                self.tokens[lock].push((*models, *own));
            }
            self.rename(lock, own);
        }
    }

    fn rename(&self, lock: usize, token: &mut u64) {
        *token = self.tokens[lock].iter().find(|(_, own)| own == token).map_or(0, |(models, _)| *models);
    }

    fn answers(&self, command: &Command) -> Vec<Answer> {
        let store = &self.store;
        let answer = match command {
            Command::Acquire { lock, ask, patience } => {
                let owner = self.names.owner(ask.member);
                acquired(store.acquire(&self.ask(*lock, &owner, ask, *patience)).unwrap())
            }
            Command::RenewPlaces { lock, ttl, places } => {
                let owners: Vec<OwnerId> =
                    places.iter().map(|place| self.names.owner(place.member)).collect();
                let mut items = Vec::new();
                for (owner, renew) in owners.iter().zip(places) {
                    let request = RequestId::new(renew.member.request);
                    let mut place = Place::new(&self.locks[*lock], owner, request);
                    place.ttl = Duration::from_millis(*ttl);
                    place.ticket = self.own_ticket(*lock, renew.ticket);
                    place.takes = renew.takes;
                    items.push(Renew::Place { place, lease: Duration::from_millis(renew.lease) });
                }
                let client = self.names.0[places[0].member.client];
                return store.renew(client, &items).into_iter().map(|row| renewed(row.unwrap())).collect();
            }
            Command::RenewHold { lock, member, token, count, lease } => {
                let owner = self.names.owner(*member);
                let hold = self.hold(*lock, &owner, *member, *token);
                let item = Renew::Hold { hold, holds: *count, lease: Duration::from_millis(*lease) };
                renewed(store.renew(self.names.0[member.client], &[item]).remove(0).unwrap())
            }
            Command::Release { lock, member, token } => {
                let owner = self.names.owner(*member);
                released(store.release(&self.hold(*lock, &owner, *member, *token)).unwrap())
            }
            Command::Withdraw { lock, member } | Command::Kick { lock, member } => {
                let owner = self.names.owner(*member);
                let place = Place::new(&self.locks[*lock], &owner, RequestId::new(member.request));
                let withdrawn = match command {
                    Command::Kick { .. } => store.kick(&place),
                    _ => store.withdraw(&place),
                };
                match withdrawn.unwrap() {
                    Withdrawn::Left => Answer::Left,
                    Withdrawn::WasGranted { token, lease } => {
                        Answer::WasGranted { token: token.get(), left: millis(lease) }
                    }
                }
            }
            Command::ForceRelease { lock } => taken(store.force_release(&self.locks[*lock]).unwrap()),
            Command::TakeHold { lock, member, token } => {
                let owner = self.names.owner(*member);
                taken(store.take_hold(&self.hold(*lock, &owner, *member, *token)).unwrap())
            }
            _ => return Vec::new(),
        };
        vec![answer]
    }

    fn ask<'b>(&'b self, lock: usize, owner: &'b OwnerId, ask: &'b Ask, patience: Patience) -> Acquire<'b> {
        let mut place = Place::new(&self.locks[lock], owner, RequestId::new(ask.member.request));
        place.ttl = Duration::from_millis(ask.ttl);
        place.ticket = self.own_ticket(lock, ask.ticket);
        place.takes = ask.takes;
        place.wait = if patience == Patience::Once { Wait::No } else { Wait::Forever };
        let mut acquire = Acquire::new(place, Duration::from_millis(ask.lease));
        acquire.label = ask.label;
        acquire
    }

    fn hold<'b>(&'b self, lock: usize, owner: &'b OwnerId, member: Member, token: u64) -> Hold<'b> {
        Hold::new(&self.locks[lock], owner, RequestId::new(member.request), self.own(lock, token))
    }

    fn happens(&mut self, command: &Command) {
        match command {
            Command::GoesDeaf(client) => self.subscriptions[*client] = None,
            Command::Hears(client) => self.hears(*client),
            Command::LoseHold { lock } => self.store.lose_hold(NAMES[*lock]),
            Command::LoseLine { lock } => self.store.lose_line(NAMES[*lock]),
            Command::Advance(by) => self.clock.jump(Duration::from_millis(*by)),
            _ => {}
        }
    }
}

impl Subject for MemorySubject {
    fn run(&mut self, command: &Command, expected: &Outcome) -> Result<Outcome, String> {
        self.happens(command);
        let answers = self.answers(command);
        let pushes = std::mem::take(&mut *self.told.lock().unwrap());
        let mut outcome = Outcome { answers, pushes };
        if let Some(lock) = command.lock() {
            self.pair(lock, expected.clone().tokens(), outcome.tokens());
            let tickets = outcome.take_tickets_of(expected); // the Lua's are compared directly
            self.tickets[lock].extend(tickets);
        }
        Ok(outcome)
    }

    fn seen(&mut self, lock: usize, expected: &Seen) -> Seen {
        let mut seen = self.names.seen(self.store.inspect(&self.locks[lock], 0..u64::MAX).unwrap());
        self.pair(lock, expected.clone().tokens(), seen.tokens());
        seen
    }
}

fn taken(answer: ForceReleased) -> Answer {
    match answer {
        ForceReleased::Taken => Answer::Taken,
        ForceReleased::NotHeld => Answer::NotHeld,
    }
}
