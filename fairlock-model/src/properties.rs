//! What must hold in every state and on every path, and what must be possible.

use stateright::Property;

use crate::bounds::{Bounds, Time};
use crate::client::{Call, Phase};
use crate::messages::Member;
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
/// An attempt to take the lock by force takes no hold that was granted after its end, and no renewal outlives one that did.
pub const FORCE: &str = "a force takes what was held in its time";

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
        Property::always(FORCE, |_, state: &State| !state.seized && !state.untold),
    ];
    // A command that is executed twice has been answered, so nothing is known of the second time.
    if bounds.faults.duplicates == 0 {
        properties.push(Property::always(RESIDUE, residue));
    }
    if matches!(bounds.time, Time::Prompt { .. }) {
        properties.push(Property::always(PROGRESS, progress));
        properties.push(Property::eventually(TURN, turn));
    }
    if bounds.witness {
        properties.extend(WITNESSES.map(|(name, happened)| Property::sometimes(name, happened)));
    }
    properties
}

fn exclusion(_: &Bounds, state: &State) -> bool {
    // A holder that has not heard of a force yet goes on to believe.
    state.clients.iter().filter(|client| client.believes() && !client.is_forced()).count() <= 1
}

fn order(_: &Bounds, state: &State) -> bool {
    !state.barged
}

fn validity(bounds: &Bounds, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(at, client)| match client.phase {
        Phase::Held { token, valid } if client.believes() && !client.is_forced() => {
            state.server.hold.is_some_and(|hold| {
                let same = usize::from(hold.member.client) == at && hold.member.request == client.request;
                // The margin is one tick: drifting clocks may use it up, and no more.
                same && hold.token == token && hold.left + bounds.faults.drifts > valid
            })
        }
        _ => true,
    })
}

fn progress(bounds: &Bounds, state: &State) -> bool {
    match bounds.time {
        Time::Free => true,
        Time::Prompt { idle, .. } => state.idle <= idle,
    }
}

/// With free time as well: it counts from when the client knows of no attempt any more that may come.
fn residue(_: &Bounds, state: &State) -> bool {
    let is_over = |member: Member| {
        let client = &state.clients[usize::from(member.client)];
        let is_under_way = |call: &Call| matches!(call, Call::Sent { request, .. } | Call::Answered { request, .. } if *request == member.request);
        client.alive
            && (client.request > member.request || client.phase == Phase::Idle)
            && ![client.ask, client.renew, client.tidy].iter().any(is_under_way)
            && !client.owed.iter().any(|owed| owed.request == member.request)
    };
    let held = state.server.hold.iter().map(|hold| hold.member);
    !held.chain(state.server.line.iter().map(|place| place.member)).any(is_over)
}

/// Once true, it stays true, since no client begins after the last begin. So stateright's limits don't matter: it
/// checks only one path to each state and ignores cycles, but time is in the state, so there are none.
fn turn(bounds: &Bounds, state: &State) -> bool {
    let Time::Prompt { last_begin, .. } = bounds.time else { return true };
    let over = state.now > last_begin || state.clients.iter().all(|client| client.request == bounds.requests);
    over && state.clients.iter().all(|client| !client.alive || client.phase == Phase::Idle)
}
