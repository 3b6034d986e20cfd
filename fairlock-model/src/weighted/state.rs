//! One state of the whole system: server, clients, and all messages in flight.

use std::fmt;

use super::bounds::Faults;
use super::client::{Client, Phase};
use super::server::Seen;
use super::store::Server;

/// A request, by its client and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// The client.
    pub client: u8,
    /// The number of the request, from 1.
    pub request: u8,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// Acquire, its repeat, and the heartbeat of a place.
    Ask,
    /// The renewal of a hold.
    Renew {
        /// The token of the hold.
        token: u8,
    },
    /// The end of a wait.
    Withdraw,
    /// The end of a hold.
    Release {
        /// The token of the hold.
        token: u8,
    },
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// The sender and its request.
    pub member: Member,
    /// The command.
    pub word: Word,
}

/// The answer of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// The request holds its units, for this long from now on.
    Granted {
        /// The token of the hold.
        token: u8,
        /// What is left of the lease.
        left: u8,
    },
    /// It is in line.
    Queued {
        /// The last number of the sequence. Any grant of this request with a token that is not greater has ended.
        latest: u8,
        /// When it should ask again.
        look: Option<u8>,
    },
    /// The lock has another capacity than the request says.
    Mismatch,
    /// The hold was renewed.
    Renewed,
    /// It is not this hold, or it is over.
    HoldLost,
    /// The place or the hold is gone.
    Done {
        /// There is more to drop: the script should run again.
        more: bool,
    },
}

/// A message to a client that did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// The client.
    pub client: u8,
    /// The number of its request.
    pub request: u8,
    /// The token of its grant; `None` if it should look, since a script could not grant all that fit.
    pub token: Option<u8>,
}

/// The events that the properties need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Two clients believed in their holds at the same time.
    HeldTogether,
    /// One script granted two places.
    TwoGrants,
    /// A first in line that was absent and did not fit was parked, and one behind it granted.
    BlockerParked,
    /// A withdrawal granted two places.
    WithdrawalGranted,
    /// A hold that was over was dropped, and its units were granted.
    EndHandedOn,
    /// A renewal found its hold over, but not dropped.
    EndedRefused,
    /// A release found nothing to free.
    NothingToFree,
    /// A push was lost, and the request learned of its grant by asking.
    FoundByAsking,
    /// A request learned of its grant while it left.
    TakenWhileLeaving,
    /// A parked waiter was back at its ticket, before one that asked later.
    BackAtItsTicket,
    /// A request was refused, since it said another capacity than that of the lock.
    Refused,
    /// A waiter was told to look, since a script could not grant all that fit.
    ToldToLook,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// Ticks since the beginning, counted only with prompt time.
    pub now: u8,
    /// The clients.
    pub clients: Vec<Client>,
    /// The server.
    pub server: Server,
    /// Commands in flight without a waiting caller, unordered.
    pub late: Vec<Command>,
    /// The faults that may still happen.
    pub faults: Faults,
    /// A live waiter was passed over.
    pub barged: bool,
    /// A hold that was over lives again.
    pub revived: bool,
    /// A script left a waiter that is next, present and fits.
    pub left_free: bool,
    /// For how many ticks units that suffice have been free while a live client was the first to wait for them.
    pub idle: u8,
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
            late: Vec::new(),
            faults,
            barged: false,
            revived: false,
            left_free: false,
            idle: 0,
            events: 0,
        }
    }

    /// Whether this event has happened.
    pub fn has(&self, event: Event) -> bool {
        self.events & (1 << event as u16) != 0
    }

    /// Remembers an event.
    pub fn happened(&mut self, event: Event) {
        self.events |= 1 << event as u16;
    }

    /// What the server sees of each client.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = |client: &Client| Seen {
            heard: client.subscribed,
            waits: client.waits(),
            was_deaf: client.was_deaf || !client.subscribed,
        };
        self.clients.iter().map(seen).collect()
    }
}

/// In one line, for counter-examples.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "used {}:", self.server.used)?;
        for hold in &self.server.holds {
            let (member, token, takes, left) = (hold.member, hold.token, hold.takes, hold.left);
            write!(f, " {takes} by {}.{} #{token} for {left},", member.client, member.request)?;
        }
        write!(f, " line:")?;
        for place in &self.server.line {
            let absent = if place.parked { " absent" } else { "" };
            let (member, ticket, takes, left) = (place.member, place.ticket, place.takes, place.left);
            write!(f, " [{takes} for {}.{} #{ticket} for {left}{absent}]", member.client, member.request)?;
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
            match client.push.map(|push| push.token) {
                Some(Some(token)) => write!(f, ", pushed #{token}")?,
                Some(None) => write!(f, ", told to look")?,
                None => {}
            }
        }
        for Command { member, word } in &self.late {
            write!(f, "; late: {}.{} {word:?}", member.client, member.request)?;
        }
        Ok(())
    }
}
