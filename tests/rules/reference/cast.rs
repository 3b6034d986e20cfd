//! The clients: they turn steps into commands, and learn from answers and pushes.

use crate::commands::{CLIENTS, Command, LABELS, LOCKS, OWNERS, Scale, Slot, Step, Time, kind_of};
use crate::rules::Rules;
use crate::words::{Answer, Ask, ClientNumber, Condition, Member, Millis, Outcome, Patience, Push, Renew};

/// One request of an owner, as far as its client knows.
#[derive(Clone, Copy, Debug)]
struct Request {
    member: Member,
    token: Option<u64>,
    /// 0 before it was told one.
    ticket: u64,
    units: u32,
}

/// Ahead of every clock.
const FORGED: u64 = (1 << 52) - 1;

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    current: Option<Request>,
    former: Option<Request>,
}

/// The requests of all owners.
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
        // Some numbers are large: they are written in hexadecimal.
        Cast { scale, requests, last: None, last_request: u64::from(u32::MAX) - 5 }
    }

    /// The commands of a step; none if no request fits.
    pub(crate) fn commands(&mut self, step: Step, rules: &Rules) -> Vec<Command> {
        let commands = match step {
            Step::Ask(slot) => vec![self.acquire(slot, Patience::Wait)],
            Step::Try(slot) => vec![self.acquire(slot, Patience::Once)],
            Step::AskIf(slot, condition) => vec![self.acquire_if(slot, Patience::Wait, condition)],
            Step::TryIf(slot, condition) => vec![self.acquire_if(slot, Patience::Once, condition)],
            Step::AskAnew(slot) => {
                self.give_up(slot);
                vec![self.acquire(slot, Patience::Wait)]
            }
            Step::ReEnter(slot) => self.renew_hold(slot, 1 + slot.choice as u32),
            Step::Renew(slot) => self.renew_hold(slot, 1),
            Step::Release(slot) => self.release(slot, self.of(slot).current),
            Step::ReleaseFormer(slot) => self.release(slot, self.of(slot).former),
            Step::Adopt(slot) => self.adopt(slot, self.of(slot).current),
            Step::AdoptFormer(slot) => self.adopt(slot, self.of(slot).former),
            Step::Withdraw(slot) => self.withdraw(slot, self.of(slot).current),
            Step::WithdrawFormer(slot) => self.withdraw(slot, self.of(slot).former),
            Step::Forge(slot) => {
                let mut command = self.acquire(slot, Patience::Wait);
                if let Command::Acquire { ask, .. } = &mut command {
                    ask.ticket = FORGED;
                }
                vec![command]
            }
            Step::Heartbeat { client, lock, missing } => self.heartbeat(client, lock, missing),
            Step::HeartbeatOfFormer(slot) => {
                let places = self.of(slot).former.map(|request| self.renew_of(request));
                self.renew_places(slot.client, slot.lock, places.into_iter().collect())
            }
            Step::Take(slot) => {
                let command = |request: Request| Command::TakeHold {
                    lock: slot.lock,
                    member: request.member,
                    token: token_of(request),
                };
                self.of(slot).current.map(command).into_iter().collect()
            }
            Step::Force(lock) => vec![Command::ForceRelease { lock }],
            Step::Expire(lock) => vec![Command::LoseHold { lock }],
            Step::LoseQueue(lock) => vec![Command::LoseQueue { lock }],
            Step::Repeat => self.last.clone().into_iter().collect(),
            Step::Crash(client) => {
                for slot in self.slots().filter(|slot| slot.client == client) {
                    self.give_up(slot);
                }
                vec![Command::GoesDeaf(client)]
            }
            Step::GoesDeaf(client) => vec![Command::GoesDeaf(client)],
            Step::Hears(client) => vec![Command::Hears(client)],
            Step::Advance(by) => self.advance(by, rules).into_iter().collect(),
            Step::Heartbeats => self.heartbeats(rules),
            Step::Harm(harm) => vec![Command::Harm(harm)],
            Step::Live(_) => Vec::new(), // executed in parts
        };
        if let Some(command) = commands.last().filter(|command| command.lock().is_some()) {
            self.last = Some(command.clone());
        }
        commands
    }

    /// Learns tokens from answers and pushes, and which requests have ended.
    pub(crate) fn learn(&mut self, command: &Command, outcome: &Outcome) {
        match (command, outcome.answers.first()) {
            // The answer to a forged ask is lost.
            (Command::Acquire { ask, .. }, _) if ask.ticket == FORGED => {}
            (Command::Acquire { ask, .. }, Some(Answer::Granted { token, .. })) => {
                self.got(ask.member, *token)
            }
            (Command::Acquire { ask, .. }, Some(Answer::Queued { ticket, .. })) => {
                self.stands(ask.member, *ticket)
            }
            (
                Command::Acquire { ask, .. },
                Some(Answer::Busy { .. } | Answer::DeclinedSince { .. } | Answer::DeclinedBehind { .. }),
            ) => self.is_over(ask.member),
            (Command::Release { member, .. } | Command::TakeHold { member, .. }, _) => self.is_over(*member),
            (Command::Adopt { lock, member, adopter, .. }, Some(Answer::Renewed)) => {
                self.is_adopted(*lock, *member, *adopter);
            }
            (Command::Withdraw { member, .. }, Some(Answer::Left)) => self.is_over(*member),
            (Command::Withdraw { member, .. }, Some(Answer::WasGranted { token, .. })) => {
                self.got(*member, *token);
            }
            (Command::RenewPlaces { places, .. }, _) => {
                for (place, answer) in places.iter().zip(&outcome.answers) {
                    if let Answer::Granted { token, .. } = answer {
                        self.got(place.member, *token);
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
        let units = slot.units(kind_of(self.scale.kind, self.last_request));
        self.requests[index(slot)].current = Some(Request { member, token: None, ticket: 0, units });
        member
    }

    fn ask_of(&self, slot: Slot, member: Member) -> Ask {
        let lease = self.scale.leases[slot.choice % 3];
        let known = self.of(slot).current.filter(|request| request.member == member);
        Ask {
            member,
            lease,
            ttl: self.ttl_of(slot.client),
            label: LABELS[(slot.choice + slot.client) % 3],
            ticket: known.map_or(0, |request| request.ticket),
            units: known.map_or(1, |request| request.units),
            condition: None,
        }
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

    fn acquire_if(&mut self, slot: Slot, patience: Patience, condition: Condition) -> Command {
        let mut command = self.acquire(slot, patience);
        if let Command::Acquire { ask, .. } = &mut command {
            ask.condition = Some(condition);
        }
        command
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
            units: request.units,
        };
        request.map(command).into_iter().collect()
    }

    fn adopt(&self, slot: Slot, request: Option<Request>) -> Vec<Command> {
        let (client, owner) =
            ((slot.client + 1 + slot.choice / 3 % 2) % CLIENTS, slot.choice as u64 % OWNERS);
        let command = |request: Request| Command::Adopt {
            lock: slot.lock,
            member: request.member,
            token: token_of(request),
            adopter: Member { client, owner, ..request.member },
            lease: self.scale.leases[slot.choice % 3],
        };
        request.map(command).into_iter().collect()
    }

    fn withdraw(&self, slot: Slot, request: Option<Request>) -> Vec<Command> {
        let command = |request: Request| Command::Withdraw { lock: slot.lock, member: request.member };
        request.map(command).into_iter().collect()
    }

    fn heartbeat(&self, client: ClientNumber, lock: usize, missing: u64) -> Vec<Command> {
        let alive =
            |slot: &Slot| slot.client == client && slot.lock == lock && (missing >> slot.owner) & 1 == 0;
        let alive: Vec<Slot> = self.slots().filter(alive).collect();
        let place = |slot: &Slot| Some(self.renew_of(self.of(*slot).current?));
        self.renew_places(client, lock, alive.iter().filter_map(place).collect())
    }

    fn renew_of(&self, Request { member, ticket, units, .. }: Request) -> Renew {
        Renew { member, lease: self.scale.leases[1], ticket, units }
    }

    fn renew_places(&self, client: ClientNumber, lock: usize, places: Vec<Renew>) -> Vec<Command> {
        let is_of_all = |place: &Renew| kind_of(self.scale.kind, place.member.request) == self.scale.kind;
        let (of_all, others): (Vec<_>, _) = places.into_iter().partition(is_of_all);
        let places = [of_all, others].into_iter().filter(|places| !places.is_empty());
        places.map(|places| Command::RenewPlaces { lock, ttl: self.ttl_of(client), places }).collect()
    }

    fn heartbeats(&self, rules: &Rules) -> Vec<Command> {
        let alive = (0..CLIENTS).filter(|client| rules.hearing.contains(client));
        alive.flat_map(|client| (0..LOCKS).flat_map(move |lock| self.heartbeat(client, lock, 0))).collect()
    }

    /// Not into the last millisecond of a hold.
    fn advance(&self, by: Millis, rules: &Rules) -> Option<Command> {
        let mut by = by;
        if self.scale.time == Time::Virtual {
            let holders = || (0..LOCKS).flat_map(|lock| rules.seen(lock).holders);
            let left: Vec<Millis> = holders().map(|holder| holder.left).collect();
            while left.contains(&by) {
                by += 1;
            }
        }
        (by > 0).then_some(Command::Advance(by))
    }

    fn got(&mut self, member: Member, new: u64) {
        self.learns(member, |request| request.token = Some(new));
    }

    fn stands(&mut self, member: Member, ticket: u64) {
        self.learns(member, |request| request.ticket = ticket);
    }

    fn learns(&mut self, member: Member, what: impl Fn(&mut Request)) {
        for requests in &mut self.requests {
            for request in [&mut requests.current, &mut requests.former].into_iter().flatten() {
                if request.member == member {
                    what(request);
                }
            }
        }
    }

    fn is_adopted(&mut self, lock: usize, member: Member, adopter: Member) {
        let mut known =
            self.requests.iter().flat_map(|requests| [requests.current, requests.former]).flatten();
        let Some(request) = known.find(|request| request.member == member) else { return };
        let to = Slot { client: adopter.client, owner: adopter.owner, lock, choice: 0 };
        if self.of(to).current.is_none_or(|current| current.member != adopter) {
            self.is_over(member);
            self.give_up(to);
            self.requests[index(to)].current = Some(Request { member: adopter, ticket: 0, ..request });
        }
    }

    fn is_over(&mut self, member: Member) {
        for requests in &mut self.requests {
            if requests.current.is_some_and(|request| request.member == member) {
                requests.former = requests.current.take();
            }
        }
    }
}

/// A client without word of its grant knows no token; a command with a wrong one must change nothing.
fn token_of(request: Request) -> u64 {
    request.token.unwrap_or(1)
}

fn index(slot: Slot) -> usize {
    (slot.lock * CLIENTS + slot.client) * OWNERS as usize + slot.owner as usize
}
