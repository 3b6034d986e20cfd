//! One state of the whole system: server, clients, and all messages in flight.

use std::fmt;

use crate::bounds::{Discipline, END, Faults};
use crate::client::{Call, Client, Phase};
use crate::messages::{Answer, Command, Member, Push, Word};
use crate::rules::Rules;
use crate::server::{Seen, Server};

/// The events that the properties need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A release pushed the lock to a waiter, which believed it.
    HandedOver,
    /// An absent waiter was passed over, and one behind it was granted the lock.
    AbsentPassedOver,
    /// A push was lost, and a heartbeat found the grant.
    FoundByHeartbeat,
    /// A hold expired, and a heartbeat or a request handed the lock on.
    ExpiredHandedOn,
    /// A place was gone, and was put back.
    PutBack,
    /// A push arrived after its grant had ended, and was not believed.
    StalePushRefused,
    /// A command of an ended request was executed.
    LateCommand,
    /// A timed wait ended, found that it had just been granted the lock, and took it.
    TakenWhileLeaving,
    /// A parked waiter sent a heartbeat, and still had its ticket.
    BackWithItsTicket,
    /// A push overtook the answer to the request.
    PushOvertookAnswer,
    /// The lock stayed free while a lost line came back.
    Rested,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Ticks since the beginning, counted only with prompt time.
    pub now: u8,
    /// The clients.
    pub clients: Vec<Client>,
    /// The server.
    pub server: Server,
    /// Pushes in flight, unordered.
    pub pushes: Vec<Push>,
    /// Commands in flight without a waiting caller, unordered.
    pub late: Vec<Command>,
    /// An operator's attempts to take the lock by force in flight: ticks until the end of each.
    pub forces: Vec<u8>,
    /// Ticks of the server's clock since the last of them was sent, up to their end. (For the properties only, like the next
    /// two fields.)
    pub since_force: u8,
    /// A force took a hold that was granted after the end of every force.
    pub seized: bool,
    /// A hold was renewed although it had been taken by force.
    pub untold: bool,
    /// The faults that may still happen.
    pub faults: Faults,
    /// A live waiter was passed over.
    pub barged: bool,
    /// For how many ticks the lock has been unused while a live client waits.
    pub idle: u8,
    /// A hold has expired, and there was no grant since. (For witnesses only, like the following fields.)
    pub expired: bool,
    /// A push has been lost.
    pub push_lost: bool,
    /// The past events, one bit each.
    pub events: u16,
}

impl State {
    /// The initial state.
    pub fn new(clients: usize, faults: Faults) -> State {
        State {
            now: 0,
            clients: vec![Client::default(); clients],
            server: Server::default(),
            pushes: Vec::new(),
            late: Vec::new(),
            forces: Vec::new(),
            since_force: END,
            seized: false,
            untold: false,
            faults,
            barged: false,
            idle: 0,
            expired: false,
            push_lost: false,
            events: 0,
        }
    }

    /// Whether this event has happened.
    pub fn has(&self, event: Event) -> bool {
        self.events & (1 << event as u16) != 0
    }

    /// What the server sees of each client.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = |client: &Client| Seen {
            heard: client.subscribed,
            living: client.waits_for().filter(|_| client.subscribed && !client.was_deaf),
            stood: client.stood,
            request: client.request,
            robbed: client.robbed,
        };
        self.clients.iter().map(seen).collect()
    }

    /// The server's clock advances by a tick.
    pub fn server_tick(&mut self) {
        self.expired |= self.server.tick();
        self.since_force = (self.since_force + 1).min(END);
        self.each_end(|end| *end = end.saturating_sub(1));
    }

    /// The server's clock is set forward, past the ends of all attempts that are sent before a client hears of it.
    pub fn jump(&mut self) {
        self.since_force = END;
        self.each_end(|end| *end = 0);
        self.clients.iter_mut().for_each(|client| client.behind = true);
    }

    /// Drops late attempts that will be refused whenever they come: past their end, for a request of which the server has
    /// nothing, and can't get anything.
    pub fn forget_refused(&mut self, discipline: Discipline) {
        if discipline != Discipline::HandOff {
            self.late.retain(|command| command.word != Word::Withdraw { end: 0 });
        }
        let is_alive = |member: Member, end: u8| {
            let client = &self.clients[usize::from(member.client)];
            let of_call =
                |call: &Call| matches!(call, Call::Sent { request, .. } if *request == member.request);
            let is_at_server = self.server.hold.is_some_and(|hold| hold.member == member)
                || self.server.line.iter().any(|place| place.member == member);
            let may_ask =
                client.waits_for() == Some(member.request) || of_call(&client.ask) || of_call(&client.renew);
            end > 0 || is_at_server || may_ask
        };
        let ends = self.late.iter().map(|command| (command.member, command.word.end().unwrap_or(1)));
        let alive: Vec<Member> =
            ends.filter(|(member, end)| is_alive(*member, *end)).map(|(member, _)| member).collect();
        self.late.retain(|command| alive.contains(&command.member));
        for command in &mut self.late {
            if command.word.end() == Some(0) {
                command.word = command.word.carried_out();
            }
        }
    }

    fn each_end(&mut self, mut visit: impl FnMut(&mut u8)) {
        self.forces.iter_mut().for_each(&mut visit);
        self.late.iter_mut().filter_map(|command| command.word.end_mut()).for_each(&mut visit);
        for client in &mut self.clients {
            for call in [&mut client.ask, &mut client.renew, &mut client.tidy] {
                if let Call::Sent { word, .. } = call {
                    word.end_mut().into_iter().for_each(&mut visit);
                }
            }
        }
    }

    /// Drops what no longer makes a difference. `free`: clients may ask at any time.
    pub fn forget_what_is_old(&mut self, rules: Rules, free: bool) {
        let State { clients, pushes, .. } = self;
        // A push that will not be believed is a reason to ask, and nothing else.
        let is_void = |push: &Push| {
            let client = &clients[usize::from(push.member.client)];
            free && rules == Rules::Right && client.heard.is_some() && push.token <= client.latest
        };
        pushes.retain(|push| !is_void(push));
        let waits =
            |push: &Push| clients[usize::from(push.member.client)].waits_for() == Some(push.member.request);
        pushes.retain(waits);
        for (at, client) in clients.iter_mut().enumerate() {
            let push = pushes.iter().find(|push| usize::from(push.member.client) == at);
            client.forget_what_is_old(rules, push.map(|push| push.token));
        }
    }

    /// The canonical form of this state: only the order of tickets and tokens matters, and messages are unordered.
    pub fn normal(mut self) -> State {
        self.pushes.sort_unstable();
        self.late.sort_unstable();
        self.forces.sort_unstable();
        self.round_served();
        self.renumber_the_order();
        let mut in_use = 0_u64;
        self.each_number(|number| in_use |= 1 << *number);
        in_use &= !1; // 0 stands for none
        self.server.seq = in_use.count_ones() as u8;
        self.each_number(|number| {
            if *number > 0 {
                *number = (in_use & ((1 << *number) - 1)).count_ones() as u8 + 1;
            }
        });
        self
    }

    /// Only its order among the tickets that a command may name matters.
    fn round_served(&mut self) {
        let served = self.server.served;
        let of_call = |call: &Call| match call {
            Call::Sent { word: Word::Acquire { told, .. } | Word::RenewPlace { told, .. }, .. } => *told,
            Call::Answered { answer: Answer::Queued { ticket, .. }, .. } => *ticket,
            _ => 0,
        };
        let of_late = |command: &Command| match command.word {
            Word::Acquire { told, .. } | Word::RenewPlace { told, .. } => told,
            _ => 0,
        };
        let of_clients = self
            .clients
            .iter()
            .flat_map(|client| [client.ticket, of_call(&client.ask), of_call(&client.renew)]);
        let tickets = self.server.line.iter().map(|place| place.ticket);
        let tickets = tickets.chain(of_clients).chain(self.late.iter().map(of_late));
        self.server.served = tickets.filter(|ticket| *ticket <= served).max().unwrap_or(0);
    }

    fn renumber_the_order(&mut self) {
        let mut stood: Vec<u8> =
            self.clients.iter().map(|client| client.stood).filter(|at| *at > 0).collect();
        stood.sort_unstable();
        for client in self.clients.iter_mut().filter(|client| client.stood > 0) {
            client.stood = stood.iter().filter(|at| **at <= client.stood).count() as u8;
        }
    }

    /// Clients are interchangeable, so their order makes no difference.
    pub fn sort_clients(&mut self) {
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        order.sort_by(|one, other| self.clients[*one].cmp(&self.clients[*other]));
        if order.is_sorted() {
            return;
        }
        self.clients = order.iter().map(|at| self.clients[*at].clone()).collect();
        let rename = |member: &mut Member| {
            if let Some(at) = order.iter().position(|at| *at == usize::from(member.client)) {
                member.client = at as u8;
            }
        };
        self.server.hold.iter_mut().for_each(|hold| rename(&mut hold.member));
        self.server.line.iter_mut().for_each(|place| rename(&mut place.member));
        self.pushes.iter_mut().for_each(|push| rename(&mut push.member));
        self.late.iter_mut().for_each(|command| rename(&mut command.member));
    }

    fn each_number(&mut self, mut visit: impl FnMut(&mut u8)) {
        fn of_word(word: &mut Word) -> Option<&mut u8> {
            match word {
                Word::RenewHold { token } | Word::Release { token } => Some(token),
                Word::Acquire { told, .. } | Word::RenewPlace { told, .. } => Some(told),
                Word::Withdraw { .. } => None,
            }
        }
        if let Some(hold) = &mut self.server.hold {
            visit(&mut hold.token);
        }
        self.server.line.iter_mut().for_each(|place| visit(&mut place.ticket));
        visit(&mut self.server.served);
        self.pushes.iter_mut().for_each(|push| visit(&mut push.token));
        self.late.iter_mut().filter_map(|command| of_word(&mut command.word)).for_each(&mut visit);
        for client in &mut self.clients {
            visit(&mut client.ticket);
            visit(&mut client.latest);
            visit(&mut client.forced);
            client.owed.iter_mut().for_each(|owed| visit(&mut owed.token));
            client.pushed.iter_mut().for_each(&mut visit);
            match &mut client.phase {
                Phase::Held { token, .. } => visit(token),
                Phase::Leaving { word, .. } => {
                    of_word(word).into_iter().for_each(&mut visit);
                }
                Phase::Idle | Phase::Waiting => {}
            }
            for call in [&mut client.ask, &mut client.renew, &mut client.tidy] {
                match call {
                    Call::None => {}
                    Call::Sent { word, .. } => of_word(word).into_iter().for_each(&mut visit),
                    Call::Answered { word, answer, .. } => {
                        of_word(word).into_iter().for_each(&mut visit);
                        match answer {
                            Answer::Granted { token, .. } => visit(token),
                            Answer::Queued { ticket, latest, .. } => {
                                visit(ticket);
                                visit(latest);
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
    }
}

/// In one line, for counter-examples.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server.hold {
            Some(hold) => {
                let (member, token, left) = (hold.member, hold.token, hold.left);
                write!(f, "lock: {}.{} #{token} for {left}", member.client, member.request)?;
            }
            None => write!(f, "lock: free")?,
        }
        write!(f, "; line:")?;
        for place in &self.server.line {
            let absent = if place.parked { " absent" } else { "" };
            let (member, ticket, left) = (place.member, place.ticket, place.left);
            write!(f, " [{}.{} #{ticket} for {left}{absent}]", member.client, member.request)?;
        }
        if self.server.rests > 0 {
            write!(f, " rests for {}", self.server.rests)?;
        }
        for (at, client) in self.clients.iter().enumerate() {
            write!(f, "; {at}.{}: ", client.request)?;
            match client.phase {
                _ if !client.alive => write!(f, "dead")?,
                Phase::Idle => write!(f, "idle")?,
                Phase::Waiting => write!(f, "waits")?,
                Phase::Held { token, valid } => write!(f, "believes #{token} for {valid}")?,
                Phase::Leaving { .. } => write!(f, "leaves")?,
            }
            if client.is_forced() {
                write!(f, " (taken by force)")?;
            }
            for owed in &client.owed {
                write!(f, ", owes {at}.{} in {}", owed.request, owed.left)?;
            }
        }
        if !self.pushes.is_empty() {
            write!(f, "; pushes:")?;
            for Push { member, token, taken } in &self.pushes {
                let taken = if *taken { " taken" } else { "" };
                write!(f, " {}.{} #{token}{taken}", member.client, member.request)?;
            }
        }
        for Command { member, word } in &self.late {
            write!(f, "; late: {}.{} {word:?}", member.client, member.request)?;
        }
        for end in &self.forces {
            write!(f, "; force until {end}")?;
        }
        Ok(())
    }
}
