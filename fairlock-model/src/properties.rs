//! What must hold in every state and on every path, and what must be possible.

use stateright::Property;

use crate::bounds::{Bounds, Time};
use crate::client::{Call, Phase};
use crate::state::{Event, State};

/// Two clients never believe at the same time that they hold the lock.
pub const EXCLUSION: &str = "exclusion";
/// While a client believes in a hold, the server keeps exactly that hold, and longer.
pub const VALIDITY: &str = "a belief ends before the server's lease";
/// A live, reachable waiter is never passed over.
pub const ORDER: &str = "first asked, first served";
/// While a live client waits, the lock stays unused for a bounded time only.
pub const PROGRESS: &str = "the lock does not lie idle while a client waits";
/// At the end of every path each live client has had its turns.
pub const TURN: &str = "every live client gets its turn";
/// An ended request of a live client has left nothing at the server.
pub const RESIDUE: &str = "nothing stays behind";

/// A condition on a state.
pub type Condition = fn(&Bounds, &State) -> bool;

/// The events that must be possible, and their names.
pub const WITNESSES: [(&str, Condition); 11] = [
    ("a lock is handed over by a push", |_, state| state.has(Event::HandedOver)),
    ("an absent head of the line is passed over", |_, state| state.has(Event::AbsentPassedOver)),
    ("a grant whose push was lost is found by a heartbeat", |_, state| state.has(Event::FoundByHeartbeat)),
    ("a hold that expired is handed on", |_, state| state.has(Event::ExpiredHandedOn)),
    ("a place that is gone is put back", |_, state| state.has(Event::PutBack)),
    ("a late push is not believed", |_, state| state.has(Event::StalePushRefused)),
    ("a command of an ended request is executed", |_, state| state.has(Event::LateCommand)),
    ("a wait that ends finds its grant", |_, state| state.has(Event::TakenWhileLeaving)),
    ("a parked waiter is back with its ticket", |_, state| state.has(Event::BackWithItsTicket)),
    ("a push overtakes the answer", |_, state| state.has(Event::PushOvertookAnswer)),
    ("a lost line rests when it comes back", |_, state| state.has(Event::Rested)),
];

/// All properties of a check.
pub fn of(bounds: &Bounds) -> Vec<Property<Bounds>> {
    let mut properties = vec![
        Property::always(EXCLUSION, exclusion),
        Property::always(VALIDITY, validity),
        Property::always(ORDER, order),
    ];
    if matches!(bounds.time, Time::Prompt { .. }) {
        properties.push(Property::always(PROGRESS, progress));
        properties.push(Property::always(RESIDUE, residue));
        properties.push(Property::eventually(TURN, turn));
    }
    if bounds.witness {
        properties.extend(WITNESSES.map(|(name, happened)| Property::sometimes(name, happened)));
    }
    properties
}

fn exclusion(_: &Bounds, state: &State) -> bool {
    state.clients.iter().filter(|client| client.believes()).count() <= 1
}

fn order(_: &Bounds, state: &State) -> bool {
    !state.barged
}

fn validity(bounds: &Bounds, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(at, client)| match client.phase {
        Phase::Held { token, valid } if client.believes() => state.server.hold.is_some_and(|hold| {
            let same = usize::from(hold.member.client) == at && hold.member.request == client.request;
            // The margin is one tick: drifting clocks may use it up, and no more.
            same && hold.token == token && hold.left + bounds.faults.drifts > valid
        }),
        _ => true,
    })
}

fn progress(bounds: &Bounds, state: &State) -> bool {
    match bounds.time {
        Time::Free => true,
        Time::Prompt { idle, .. } => state.idle <= idle,
    }
}

fn residue(_: &Bounds, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(at, client)| {
        let is_over = client.alive && client.phase == Phase::Idle && client.ask == Call::None;
        let holds = state.server.hold.is_some_and(|hold| usize::from(hold.member.client) == at);
        let stands = state.server.line.iter().any(|place| usize::from(place.member.client) == at);
        !is_over || (!holds && !stands)
    })
}

/// Once true, it stays true, since no client begins after the last begin. So stateright's limits don't matter: it
/// checks only one path to each state and ignores cycles, but time is in the state, so there are none.
fn turn(bounds: &Bounds, state: &State) -> bool {
    let Time::Prompt { last_begin, .. } = bounds.time else { return true };
    let over = state.now > last_begin || state.clients.iter().all(|client| client.request == bounds.requests);
    over && state.clients.iter().all(|client| !client.alive || client.phase == Phase::Idle)
}
