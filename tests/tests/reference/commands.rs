//! What can happen, as proptest draws it and shrinks it, and the commands that it comes to.

use fairlock_tests::reference::{Answer, Ask, ClientNumber, Member, Millis, Patience, Push};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::Model;
use crate::subject::Outcome;

pub(crate) const CLIENTS: usize = 3;
pub(crate) const LOCKS: usize = 2;
const OWNERS: u64 = 2;
/// What people call the owners; it may have spaces, and may be missing.
pub(crate) const LABELS: [&str; 3] = ["", "night shift", "billing"];

/// One command to a lock, or something that happens to the world.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Acquire {
        lock: usize,
        ask: Ask,
        patience: Patience,
    },
    RenewPlaces {
        lock: usize,
        ttl: Millis,
        places: Vec<(Member, Millis)>,
    },
    RenewHold {
        lock: usize,
        member: Member,
        token: u64,
        count: u32,
        lease: Millis,
    },
    Release {
        lock: usize,
        member: Member,
        token: u64,
    },
    Bump {
        lock: usize,
        member: Member,
        token: u64,
        again: Ask,
    },
    Withdraw {
        lock: usize,
        member: Member,
    },
    ForceRelease {
        lock: usize,
    },
    /// The server loses the hold, and tells nobody.
    LoseHold {
        lock: usize,
    },
    /// The client's subscription is gone.
    GoesDeaf(ClientNumber),
    Hears(ClientNumber),
    Advance(Millis),
}

impl Command {
    /// Which lock it is about.
    pub(crate) fn lock(&self) -> Option<usize> {
        match self {
            Command::Acquire { lock, .. }
            | Command::RenewPlaces { lock, .. }
            | Command::RenewHold { lock, .. }
            | Command::Release { lock, .. }
            | Command::Bump { lock, .. }
            | Command::Withdraw { lock, .. }
            | Command::ForceRelease { lock }
            | Command::LoseHold { lock } => Some(*lock),
            Command::GoesDeaf(_) | Command::Hears(_) | Command::Advance(_) => None,
        }
    }
}

/// What proptest draws. The same step means the same whatever was shrunk away before it, as far as that can be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Asks and waits; again if the owner asks already.
    Ask(Slot),
    /// One attempt; also by an owner who waits.
    Try(Slot),
    /// Gives up the request without a word, and asks under a new number.
    AskAnew(Slot),
    /// Re-entry: the count rides on the renewal.
    ReEnter(Slot),
    Renew(Slot),
    Release(Slot),
    ReleaseFormer(Slot),
    Bump(Slot),
    Withdraw(Slot),
    WithdrawFormer(Slot),
    /// The heartbeat of a client; some of its waiters may be missing in it.
    Heartbeat {
        client: ClientNumber,
        lock: usize,
        missing: u64,
    },
    Force(usize),
    /// The hold of this lock is gone.
    Expire(usize),
    /// The last command arrives twice: its answer was lost.
    Repeat,
    /// The client hears nothing, and nothing more is heard of its requests.
    Crash(ClientNumber),
    GoesDeaf(ClientNumber),
    Hears(ClientNumber),
    Advance(Millis),
    /// Time passes while all who are alive send their heartbeats.
    Live(Millis),
    /// They send them now.
    Heartbeats,
}

impl Step {
    /// The steps that it is made of, each to be looked at when the one before was taken.
    pub(crate) fn parts(self, scale: Scale) -> Vec<Step> {
        let Step::Live(by) = self else { return vec![self] };
        let pause = scale.ttls[0] / 3;
        let times = by / pause;
        let heartbeats = [Step::Advance(pause), Step::Heartbeats].repeat(usize::try_from(times).unwrap());
        heartbeats.into_iter().chain([Step::Advance(by % pause)]).collect()
    }
}

/// An owner and a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    client: ClientNumber,
    owner: u64,
    lock: usize,
    /// Which of the leases and times to live.
    choice: usize,
}

/// What the values in commands may be; see the subjects for why they differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) leases: [Millis; 3],
    pub(crate) ttls: [Millis; 2],
    pub(crate) time: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    Virtual,
    /// Not in the last millisecond of a hold, and not until a line is forgotten as a whole.
    VirtualWithCare,
    /// It can't be moved.
    Real,
}

pub(crate) fn steps(scale: Scale, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let client = || 0..CLIENTS;
    // Most is about one lock.
    let lock = || prop_oneof![5 => Just(0), 1 => 1..LOCKS];
    let slot = || {
        (client(), 0..OWNERS, lock(), 0..6_usize).prop_map(|(client, owner, lock, choice)| Slot {
            client,
            owner,
            lock,
            choice,
        })
    };
    let happens = prop_oneof![
        14 => slot().prop_map(Step::Ask),
        3 => slot().prop_map(Step::Try),
        2 => slot().prop_map(Step::AskAnew),
        2 => slot().prop_map(Step::ReEnter),
        2 => slot().prop_map(Step::Renew),
        9 => slot().prop_map(Step::Release),
        1 => slot().prop_map(Step::ReleaseFormer),
        4 => slot().prop_map(Step::Bump),
        2 => slot().prop_map(Step::Withdraw),
        1 => slot().prop_map(Step::WithdrawFormer),
        5 => (client(), lock(), 0..16_u64)
            .prop_map(|(client, lock, missing)| Step::Heartbeat { client, lock, missing }),
        1 => lock().prop_map(Step::Force),
        1 => lock().prop_map(Step::Expire),
        3 => Just(Step::Repeat),
        1 => client().prop_map(Step::Crash),
        1 => client().prop_map(Step::GoesDeaf),
        2 => client().prop_map(Step::Hears),
    ];
    let [short, .., long] = scale.leases;
    let [ttl, _] = scale.ttls;
    let passes = prop_oneof![
        3 => (0..ttl).prop_map(Step::Advance),
        // Just at, before and after the moments that decide.
        2 => (prop::sample::select(vec![ttl / 2, ttl, short, long, 60_000, 120_000]), 0..3_u64)
            .prop_map(|(about, more)| Step::Advance(about + more - 1)),
        2 => (0..long).prop_map(Step::Live),
    ];
    let step = if scale.time == Time::Real {
        happens.boxed()
    } else {
        prop_oneof![4 => happens, 1 => passes].boxed()
    };
    vec(step, 1..=most)
}

/// One request of an owner, as far as its client knows.
#[derive(Clone, Copy, Debug)]
struct Request {
    member: Member,
    token: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    current: Option<Request>,
    former: Option<Request>,
}

/// Those who ask: turns steps into commands, and learns from what is answered and told.
#[derive(Debug)]
pub(crate) struct Cast {
    scale: Scale,
    requests: Vec<Requests>,
    last: Option<Command>,
    last_request: u64,
}

impl Cast {
    pub(crate) fn new(scale: Scale) -> Cast {
        let requests = vec![Requests::default(); LOCKS * CLIENTS * OWNERS as usize];
        // Some are large: they are written in hexadecimal.
        Cast { scale, requests, last: None, last_request: u64::from(u32::MAX) - 5 }
    }

    /// What the step comes to; nothing if there is nobody to take it.
    pub(crate) fn commands(&mut self, step: Step, model: &Model) -> Vec<Command> {
        let commands = match step {
            Step::Ask(slot) => vec![self.acquire(slot, Patience::Wait)],
            Step::Try(slot) => vec![self.acquire(slot, Patience::Once)],
            Step::AskAnew(slot) => {
                self.give_up(slot);
                vec![self.acquire(slot, Patience::Wait)]
            }
            Step::ReEnter(slot) => self.renew_hold(slot, 1 + slot.choice as u32),
            Step::Renew(slot) => self.renew_hold(slot, 1),
            Step::Release(slot) => self.release(slot, self.of(slot).current),
            Step::ReleaseFormer(slot) => self.release(slot, self.of(slot).former),
            Step::Bump(slot) => self.bump(slot),
            Step::Withdraw(slot) => self.withdraw(slot, self.of(slot).current),
            Step::WithdrawFormer(slot) => self.withdraw(slot, self.of(slot).former),
            Step::Heartbeat { client, lock, missing } => self.heartbeat(client, lock, missing),
            Step::Force(lock) => vec![Command::ForceRelease { lock }],
            Step::Expire(lock) => vec![Command::LoseHold { lock }],
            Step::Repeat => self.last.clone().into_iter().collect(),
            Step::Crash(client) => {
                for slot in self.slots().filter(|slot| slot.client == client) {
                    self.give_up(slot);
                }
                vec![Command::GoesDeaf(client)]
            }
            Step::GoesDeaf(client) => vec![Command::GoesDeaf(client)],
            Step::Hears(client) => vec![Command::Hears(client)],
            Step::Advance(by) => self.advance(by, model).into_iter().collect(),
            Step::Heartbeats => self.heartbeats(model),
            Step::Live(_) => Vec::new(), // taken in parts
        };
        if let Some(command) = commands.last().filter(|command| command.lock().is_some()) {
            self.last = Some(command.clone());
        }
        commands
    }

    /// Tokens that came with an answer or were pushed, and requests that are over.
    pub(crate) fn learn(&mut self, command: &Command, outcome: &Outcome) {
        match (command, outcome.answers.first()) {
            (Command::Acquire { ask, .. }, Some(Answer::Granted { token, .. })) => {
                self.got(ask.member, *token)
            }
            (Command::Acquire { ask, .. }, Some(Answer::Busy { .. })) => self.is_over(ask.member),
            (Command::Release { member, .. }, _) => self.is_over(*member),
            (Command::Withdraw { member, .. }, Some(Answer::Left)) => self.is_over(*member),
            (Command::Withdraw { member, .. }, Some(Answer::WasGranted { token, .. })) => {
                self.got(*member, *token);
            }
            // A bump that was not carried out has made no new request.
            (Command::Bump { again, .. }, Some(Answer::Kept | Answer::NotHeld)) => {
                self.never_was(again.member)
            }
            (Command::RenewPlaces { places, .. }, _) => {
                for ((member, _), answer) in places.iter().zip(&outcome.answers) {
                    if let Answer::Granted { token, .. } = answer {
                        self.got(*member, *token);
                    }
                }
            }
            _ => {}
        }
        for push in &outcome.pushes {
            if let Push::Granted { to, token } = push {
                self.got(*to, *token);
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..LOCKS).flat_map(|lock| {
            (0..CLIENTS)
                .flat_map(move |client| (0..OWNERS).map(move |owner| Slot { client, owner, lock, choice: 0 }))
        })
    }

    fn of(&self, slot: Slot) -> Requests {
        self.requests[index(slot)]
    }

    fn give_up(&mut self, slot: Slot) {
        let requests = &mut self.requests[index(slot)];
        requests.former = requests.current.take().or(requests.former);
    }

    fn new_request(&mut self, slot: Slot) -> Member {
        self.last_request += 1;
        let member = Member { client: slot.client, owner: slot.owner, request: self.last_request };
        self.give_up(slot);
        self.requests[index(slot)].current = Some(Request { member, token: None });
        member
    }

    fn ask_of(&self, slot: Slot, member: Member) -> Ask {
        let lease = self.scale.leases[slot.choice % 3];
        Ask { member, lease, ttl: self.ttl_of(slot.client), label: LABELS[(slot.choice + slot.client) % 3] }
    }

    fn ttl_of(&self, client: ClientNumber) -> Millis {
        self.scale.ttls[client % 2]
    }

    fn acquire(&mut self, slot: Slot, patience: Patience) -> Command {
        let member = match self.of(slot).current {
            Some(request) => request.member,
            None => self.new_request(slot),
        };
        Command::Acquire { lock: slot.lock, ask: self.ask_of(slot, member), patience }
    }

    fn renew_hold(&self, slot: Slot, count: u32) -> Vec<Command> {
        let command = |request: Request| Command::RenewHold {
            lock: slot.lock,
            member: request.member,
            token: token_of(request),
            count,
            lease: self.scale.leases[slot.choice % 3],
        };
        self.of(slot).current.map(command).into_iter().collect()
    }

    fn release(&self, slot: Slot, request: Option<Request>) -> Vec<Command> {
        let command = |request: Request| Command::Release {
            lock: slot.lock,
            member: request.member,
            token: token_of(request),
        };
        request.map(command).into_iter().collect()
    }

    fn bump(&mut self, slot: Slot) -> Vec<Command> {
        let Some(request) = self.of(slot).current else { return Vec::new() };
        let again = self.new_request(slot);
        let again = self.ask_of(slot, again);
        let (member, token) = (request.member, token_of(request));
        vec![Command::Bump { lock: slot.lock, member, token, again }]
    }

    fn withdraw(&self, slot: Slot, request: Option<Request>) -> Vec<Command> {
        let command = |request: Request| Command::Withdraw { lock: slot.lock, member: request.member };
        request.map(command).into_iter().collect()
    }

    fn heartbeat(&self, client: ClientNumber, lock: usize, missing: u64) -> Vec<Command> {
        let alive =
            |slot: &Slot| slot.client == client && slot.lock == lock && (missing >> slot.owner) & 1 == 0;
        let alive: Vec<Slot> = self.slots().filter(alive).collect();
        let place = |slot: &Slot| Some((self.of(*slot).current?.member, self.scale.leases[1]));
        let places: Vec<(Member, Millis)> = alive.iter().filter_map(place).collect();
        if places.is_empty() {
            return Vec::new();
        }
        vec![Command::RenewPlaces { lock, ttl: self.ttl_of(client), places }]
    }

    fn heartbeats(&self, model: &Model) -> Vec<Command> {
        let alive = (0..CLIENTS).filter(|client| model.hearing.contains(client));
        alive.flat_map(|client| (0..LOCKS).flat_map(move |lock| self.heartbeat(client, lock, 0))).collect()
    }

    /// With care, it stops short of what is different on purpose.
    fn advance(&self, by: Millis, model: &Model) -> Option<Command> {
        let now = model.now;
        let mut until = now + by;
        if self.scale.time == Time::VirtualWithCare {
            for lock in model.locks.iter().filter(|lock| !lock.line.is_empty()) {
                until = until.min(lock.line.kept_until.saturating_sub(LOCKS as u64 + 1)).max(now);
            }
            while model.locks.iter().any(|lock| lock.hold.is_some_and(|hold| hold.ends == until)) {
                until += 1;
            }
        }
        (until > now).then(|| Command::Advance(until - now))
    }

    fn got(&mut self, member: Member, new: u64) {
        for requests in &mut self.requests {
            for request in [&mut requests.current, &mut requests.former].into_iter().flatten() {
                if request.member == member {
                    request.token = Some(new);
                }
            }
        }
    }

    fn is_over(&mut self, member: Member) {
        for requests in &mut self.requests {
            if requests.current.is_some_and(|request| request.member == member) {
                requests.former = requests.current.take();
            }
        }
    }

    fn never_was(&mut self, member: Member) {
        for requests in &mut self.requests {
            if requests.current.is_some_and(|request| request.member == member) {
                requests.current = requests.former.take();
            }
        }
    }
}

/// A client that has not heard of its grant knows no token; a command with a wrong one must change nothing.
fn token_of(request: Request) -> u64 {
    request.token.unwrap_or(1)
}

fn index(slot: Slot) -> usize {
    (slot.lock * CLIENTS + slot.client) * OWNERS as usize + slot.owner as usize
}
