//! One state: servers with their data, clients, calls and pushes in flight.

use std::fmt;

use super::bounds::{Bounds, Faults};
use super::data::{Data, Entry, Life};
use super::rules::Rules;

/// The most servers and clients.
pub const MOST: usize = 3;
/// The most late calls.
pub const LATE: usize = 4;
/// As a client: an operator who takes locks by force.
pub const OPERATOR: u8 = 8;

/// What a server is at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The server executes scripts.
    Master,
    /// The server copies the master's data.
    #[default]
    Replica,
    /// The server is dead.
    Dead,
}

/// One server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server {
    /// Its role.
    pub role: Role,
    /// The server that a replica follows.
    pub follows: u8,
    /// The replication id.
    pub replid: u8,
    /// The data.
    pub data: Data,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// The lock or a place; a repeat is the heartbeat of the place.
    Ask,
    /// More time for the hold, or in a grace the hold itself.
    Renew,
    /// The end of the hold.
    Release,
    /// The end of any hold.
    Force,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// The server.
    pub server: u8,
    /// The epoch of the proof under which it was sent.
    pub epoch: u8,
    /// The client's request to which it belongs.
    pub request: u8,
    /// What it asks for.
    pub verb: Verb,
    /// The ticket that the request was told, or the token; 0 for none.
    pub number: u8,
    /// Ticks since it was sent.
    pub age: u8,
}

/// A request that executes although its client no longer waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Late {
    /// The client.
    pub client: u8,
    /// The request.
    pub call: Call,
    /// Ticks until it begins nothing any more.
    pub end: u8,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The client wants nothing.
    #[default]
    Idle,
    /// The client waits for the lock.
    Waiting {
        /// The ticket that it was told; 0 for none.
        ticket: u8,
        /// The ticket that it was told first: what the order goes by.
        asked: u8,
        /// The server that told it of its place last.
        at: u8,
        /// For how long it would believe a push of that server.
        valid: u8,
    },
    /// The client believes that it holds the lock, as long as something is left of the time.
    Held {
        /// The token.
        token: u8,
        /// How long it believes.
        valid: u8,
    },
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The number of its request, from 1.
    pub request: u8,
    /// What it does.
    pub phase: Phase,
    /// The request under way.
    pub call: Option<Call>,
    /// The newest push of each server in flight; 0 for none.
    pub pushes: [u8; MOST],
    /// An attempt of its request was not answered: ticks until its end, and 1. 0 if there is none.
    pub unsure: u8,
    /// The same for ended requests, which are to be withdrawn once more after that.
    pub owed: [u8; 2],
    /// Ended requests that were, one bit each.
    pub settled: u8,
    /// The token of its hold that was taken by force. (For the properties only.)
    pub forced: u8,
}

impl Client {
    /// Whether the client believes that it holds the lock.
    pub fn believes(&self) -> bool {
        matches!(self.phase, Phase::Held { valid, .. } if valid > 0)
    }

    /// Whether it believes in the hold with this token.
    pub fn believes_in(&self, wanted: u8) -> bool {
        matches!(self.phase, Phase::Held { token, valid } if valid > 0 && token == wanted)
    }

    /// Whether it goes on to believe in a hold that was taken by force, and has heard nothing yet.
    pub fn is_forced(&self) -> bool {
        matches!(self.phase, Phase::Held { token, .. } if token == self.forced)
    }

    /// Its request has ended. If an attempt was not answered, it is withdrawn once more.
    pub fn end(&mut self) {
        self.phase = Phase::Idle;
        if let Some(owed) = self.owed.get_mut(usize::from(self.request) - 1) {
            *owed = self.unsure;
        }
        self.unsure = 0;
    }
}

/// A master that the sentinels name, or have named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Naming {
    /// The epoch; 0 for no naming.
    pub epoch: u8,
    /// The server.
    pub server: u8,
    /// Ticks since it was named last: the age of the newest proof.
    pub age: u8,
}

/// The events that the properties need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client believed a hold that it had reclaimed in a grace.
    Reclaimed,
    /// A server granted the lock after a grace.
    GrantedAfterAGrace,
    /// A client believed a push.
    BelievedAPush,
    /// A place was put back in front of another.
    PutBackInFront,
    /// Such a waiter was granted the lock, and the other was still in the queue.
    PutBackServedFirst,
    /// A deposed master granted the lock, and the client believed it.
    GrantedByADeposed,
    /// A deposed master refused a client of a newer epoch, or the other way round.
    Refused,
    /// A late call was executed.
    LateCall,
    /// Two holds that take a part were heard in one grace.
    ReclaimedTogether,
    /// A hold of an old file, whose holder lives, gave way to a reclaim.
    LiveGaveWay,
    /// The first server began a new life. The next two events are the same for the others.
    Began,
}

/// One state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The servers.
    pub servers: [Server; MOST],
    /// The clients.
    pub clients: [Client; MOST],
    /// The present naming, and former ones of which a proof may still be fresh.
    pub namings: [Naming; MOST],
    /// Calls without a waiting client.
    pub late: [Option<Late>; LATE],
    /// A former state of some server's data, in a file.
    pub file: Option<(u8, Data)>,
    /// The last ticket or token that was drawn. They are drawn from the clock, which is the same for all servers.
    pub last: u8,
    /// The last replication id.
    pub last_replid: u8,
    /// The faults that may still happen.
    pub faults: Faults,
    /// A living waiter was passed over.
    pub barged: bool,
    /// A hold that was released came back.
    pub came_back: bool,
    /// A request that was withdrawn after the end of its attempts got a place or a hold.
    pub left_behind: bool,
    /// A force took a hold after its end, or a hold that it ended was reclaimed.
    pub undone: bool,
    /// The hold of a live client was lost.
    pub robbed: bool,
    /// The past events, one bit each.
    pub events: u16,
}

impl State {
    /// The first server is the master, named under the first epoch, and its past is known.
    pub fn new(bounds: &Bounds) -> State {
        let data = Data { life: Some(Life { replid: 1, epoch: 1, left: 0 }), ..Data::default() };
        let mut servers = [Server::default(); MOST];
        for (at, server) in servers.iter_mut().take(bounds.servers).enumerate() {
            let replid = if bounds.rules == Rules::LifeIsTheProcess { at as u8 + 1 } else { 1 };
            *server = Server { replid, data, ..Server::default() };
        }
        servers[0].role = Role::Master;
        let mut namings = [Naming::default(); MOST];
        namings[0] = Naming { epoch: 1, server: 0, age: 0 };
        let last_replid = MOST as u8;
        State { servers, namings, last_replid, faults: bounds.faults, ..State::default() }
    }

    /// Whether this event has happened.
    pub fn has(&self, event: Event) -> bool {
        self.events & (1 << event as u16) != 0
    }

    /// Whether this server has begun a new life.
    pub fn has_begun(&self, server: usize) -> bool {
        self.events & (1 << (Event::Began as usize + server)) != 0
    }

    /// Notes that this server begins a new life.
    pub fn begins(&mut self, server: usize) {
        self.events |= 1 << (Event::Began as usize + server);
    }

    /// Notes an event.
    pub fn happened(&mut self, event: Event) {
        self.events |= 1 << event as u16;
    }

    /// The server that the sentinels name.
    pub fn named(&self) -> usize {
        usize::from(self.namings[0].server)
    }

    /// A call is under way without a waiting client.
    pub fn be_late(&mut self, late: Late) {
        if let Some(free) = self.late.iter_mut().find(|late| late.is_none()) {
            *free = Some(late);
        }
    }

    /// All requests under way.
    pub fn calls(&mut self) -> impl Iterator<Item = &mut Call> {
        let late = self.late.iter_mut().flatten().map(|late| &mut late.call);
        self.clients.iter_mut().filter_map(|client| client.call.as_mut()).chain(late)
    }

    /// Whether the request has the lock or a place at this server.
    pub fn has_any(&self, server: usize, member: Entry) -> bool {
        let data = &self.servers[server].data;
        data.places.iter().chain(&data.holds).any(|entry| entry.number > 0 && entry.is_of(member))
    }

    /// A new ticket or token.
    pub fn draw(&mut self) -> u8 {
        self.last += 1;
        self.last
    }

    /// A new replication id.
    pub fn draw_replid(&mut self) -> u8 {
        self.last_replid += 1;
        self.last_replid
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} #{} to {} in {}", self.verb, self.number, self.server, self.epoch)
    }
}

/// In one line, for counter-examples.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, server) in
            self.servers.iter().enumerate().filter(|(_, server)| **server != Server::default())
        {
            let mark = if at == self.named() { "*" } else { "" };
            write!(f, "{}{mark}{:?} {}: {}; ", ["Y", "X", "Z"][at], server.role, server.replid, server.data)?;
        }
        write!(f, "epoch {}", self.namings[0].epoch)?;
        for (at, client) in self.clients.iter().enumerate() {
            write!(f, "; {at}.{}: ", client.request)?;
            match client.phase {
                Phase::Idle => write!(f, "idle")?,
                Phase::Waiting { ticket, at, valid, .. } => write!(f, "waits #{ticket} at {at} for {valid}")?,
                Phase::Held { token, valid: 0 } => write!(f, "lost #{token}")?,
                Phase::Held { token, valid } => write!(f, "believes #{token} for {valid}")?,
            }
            if client.is_forced() {
                write!(f, " (taken by force)")?;
            }
            if let Some(call) = client.call {
                write!(f, " ({call}, {} ago)", call.age)?;
            }
            for (server, token) in client.pushes.iter().enumerate().filter(|(_, token)| **token > 0) {
                write!(f, " push #{token} of {server}")?;
            }
        }
        for Late { client, call, end } in self.late.iter().flatten() {
            write!(f, "; late {client}.{}: {call} until {end}", call.request)?;
        }
        Ok(())
    }
}
