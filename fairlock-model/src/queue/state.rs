//! One state of the whole system: server, clients, and all messages in flight.

use std::fmt;

use super::bounds::{Bounds, END, Faults};
use super::client::{Client, Phase};
use super::messages::{Command, Member};
use super::store::{Place, Server};

/// The events that the properties need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A release pushed the lock to a waiter, which believed it.
    HandedOver,
    /// An absent waiter was passed over, and a waiter behind it was granted the lock.
    AbsentPassedOver,
    /// A push was lost, and the request learned of its grant by asking.
    FoundByAsking,
    /// A hold ended, and a later operation granted its units to a waiter.
    EndHandedOn,
    /// A place was gone, and was put back.
    PutBack,
    /// A push arrived after its grant had ended, and was not believed.
    StalePushRefused,
    /// A command of an ended request was executed.
    LateCommand,
    /// A timed wait ended, found that it had just been granted the lock, and took it.
    TakenWhileLeaving,
    /// An absent waiter had left, and came back at its ticket.
    BackAtItsTicket,
    /// A push overtook the answer to the request.
    PushOvertookAnswer,
    /// The lock stayed free while a lost queue came back.
    Rested,
    /// Two clients believed in their holds at the same time.
    HeldTogether,
    /// One operation granted two places.
    TwoGrants,
    /// An absent first waiter that did not fit left, and a waiter behind it was granted.
    BlockerLeft,
    /// A withdrawal granted two places.
    WithdrawalGranted,
    /// A renewal found its hold over.
    EndedRefused,
    /// A release found nothing to free.
    NothingToFree,
    /// A request was refused, since it named another capacity than the lock's.
    Refused,
    /// An absent waiter had left, and came back before one that asked later.
    BackBeforeLater,
}

/// One state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// Ticks since the beginning, counted only with prompt time.
    pub now: u8,
    /// The clients.
    pub clients: Vec<Client>,
    /// The server.
    pub server: Server,
    /// Commands in flight without a waiting caller, unordered.
    pub late: Vec<Command>,
    /// An operator's attempts to take the lock by force in flight: ticks until the end of each.
    pub forces: Vec<u8>,
    /// Ticks of the server's clock since the last force was sent, up to its end. (For the properties only, like the
    /// following fields.)
    pub since_force: u8,
    /// A force took a hold that was granted after the end of every force.
    pub seized: bool,
    /// A hold was renewed although it had been taken by force.
    pub untold: bool,
    /// The faults that may still happen.
    pub faults: Faults,
    /// A live waiter was passed over.
    pub barged: bool,
    /// A hold that was over lives again.
    pub revived: bool,
    /// The places that were lost, and are not back. (With prompt time only.)
    pub lost: Vec<Member>,
    /// A heartbeat has begun a place or a hold.
    pub begun: bool,
    /// A live waiter that has not heard its ticket has lost its place.
    pub forgotten: bool,
    /// An operation left a waiter that is next, present and fits.
    pub left_free: bool,
    /// For how many ticks the lock, or units that suffice, have been unused beside a live waiter.
    pub idle: u8,
    /// A hold has ended, and there was no grant since. (For witnesses only, like the following fields.)
    pub expired: bool,
    /// A push has been lost.
    pub push_lost: bool,
    /// The past events, one bit each.
    pub events: u32,
}

impl State {
    /// The initial state.
    pub fn new(clients: usize, faults: Faults) -> State {
        State { clients: vec![Client::default(); clients], since_force: END, faults, ..State::default() }
    }

    /// Whether every force that was sent is past its end.
    pub fn is_after_force(&self) -> bool {
        self.since_force == END
    }

    /// Whether this event has happened.
    pub fn has(&self, event: Event) -> bool {
        self.events & (1 << event as u32) != 0
    }

    /// Remembers an event.
    pub fn happened(&mut self, event: Event) {
        self.events |= 1 << event as u32;
    }

    /// The server's clock advances by a tick.
    pub fn server_tick(&mut self, bounds: &Bounds) {
        self.expired |= self.server.tick(bounds);
        self.since_force = (self.since_force + 1).min(END);
        self.each_end(|end| *end = end.saturating_sub(1));
    }

    /// The server's clock is set forward, past the ends of all attempts that are sent before a client hears of it.
    pub fn jump(&mut self) {
        self.since_force = END;
        self.each_end(|end| *end = 0);
        self.clients.iter_mut().for_each(|client| client.behind = true);
    }

    fn each_end(&mut self, visit: impl FnMut(&mut u8)) {
        let calls = self.clients.iter_mut().flat_map(|client| &mut client.calls).flatten();
        let late = self.late.iter_mut().map(|command| &mut command.word.end);
        calls.map(|call| &mut call.word.end).chain(late).chain(&mut self.forces).for_each(visit);
    }
}

/// In one line, for counter-examples.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "used {}", self.server.taken())?;
        for hold in &self.server.holds {
            write!(f, ", {} by {} #{} for {}", hold.takes, hold.member, hold.token, hold.left)?;
        }
        write!(f, "; queue:")?;
        for place in &self.server.queue {
            let absent = if place.heard { "" } else { ", unheard" };
            let (Place { ticket, member, takes, .. }, left) = (place, self.server.left_of(place));
            write!(f, " [{takes} for {member} #{ticket} for {left}{absent}]")?;
        }
        if self.server.rests > 0 {
            write!(f, " rests for {}", self.server.rests.saturating_sub(self.server.silent))?;
        }
        for (at, client) in self.clients.iter().enumerate() {
            write!(f, "; {at}.{}: ", client.request)?;
            match client.phase {
                _ if client.dead => write!(f, "dead")?,
                Phase::Idle => write!(f, "idle")?,
                Phase::Waiting => write!(f, "waits")?,
                Phase::Held { token, valid } => write!(f, "believes #{token} for {valid}")?,
                Phase::Leaving { .. } => write!(f, "leaves")?,
            }
            if client.believes() != client.rightly_believes() {
                write!(f, " (taken by force)")?;
            }
            for owed in &client.owed {
                write!(f, ", owes {at}.{} in {}", owed.request, owed.left)?;
            }
            if let Some(push) = client.push {
                let taken = if push.taken { " taken" } else { "" };
                write!(f, ", pushed {at}.{} #{}{taken}", push.request, push.token)?;
            }
        }
        for Command { member, word } in &self.late {
            write!(f, "; late: {member} {:?} #{} until {}", word.verb, word.number, word.end)?;
        }
        for end in &self.forces {
            write!(f, "; force until {end}")?;
        }
        Ok(())
    }
}
