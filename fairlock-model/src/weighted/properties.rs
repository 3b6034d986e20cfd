//! What must hold in every state and on every path, and what must be possible.

use stateright::Property;

use super::bounds::{Bounds, Time};
use super::client::Phase;
use super::state::{Event, State};

/// The units in which clients believe are never more than there are.
pub const UNITS: &str = "no more units than there are";
/// While a client believes in a hold, the server keeps exactly that hold, and longer.
pub const VALIDITY: &str = "a belief ends before the server's hold";
/// A live, reachable waiter is never passed over, whether it fits or not.
pub const ORDER: &str = "first come, first served by units";
/// The units counted are those of the holds, and those of live holds are no more than there are.
pub const USED: &str = "the units used are those of the holds";
/// Each hold ends a lease after its own last renewal, whatever happens to others.
pub const OWN_END: &str = "each hold has its own end";
/// A hold that is over is not renewed.
pub const ENDED: &str = "what is over stays over";
/// No script ends while a present waiter is next and fits, unless a message tells one to go on.
pub const SETTLED: &str = "a script grants all that fit";
/// Units that suffice for the first live waiter are free for a bounded time only.
pub const PROGRESS: &str = "units are not free beside a waiter";
/// At the end of every path each live client has had its turns.
pub const TURN: &str = "every live client gets its turn";
/// An ended request of a live client has left nothing at the server.
pub const RESIDUE: &str = "nothing stays behind";

/// A condition on a state.
pub type Condition = fn(&Bounds, &State) -> bool;

/// The events that must be possible, and their names.
pub const WITNESSES: [(&str, Condition); 12] = [
    ("two hold units at the same time", |_, state| state.has(Event::HeldTogether)),
    ("a script grants two places", |_, state| state.has(Event::TwoGrants)),
    ("an absent waiter that does not fit is parked", |_, state| state.has(Event::BlockerParked)),
    ("a withdrawal grants two places", |_, state| state.has(Event::WithdrawalGranted)),
    ("units of a hold that is over are granted", |_, state| state.has(Event::EndHandedOn)),
    ("a hold that is over, but not dropped, is not renewed", |_, state| state.has(Event::EndedRefused)),
    ("a release finds nothing to free", |_, state| state.has(Event::NothingToFree)),
    ("a grant whose push was lost is found by asking", |_, state| state.has(Event::FoundByAsking)),
    ("a wait that ends finds its grant", |_, state| state.has(Event::TakenWhileLeaving)),
    ("a parked waiter is back at its ticket", |_, state| state.has(Event::BackAtItsTicket)),
    ("a request that says another capacity is refused", |_, state| state.has(Event::Refused)),
    ("a waiter goes on with a loop that was too long", |_, state| state.has(Event::ToldToLook)),
];

/// All properties of a check.
pub fn of(bounds: &Bounds) -> Vec<Property<Bounds>> {
    let mut properties = vec![
        Property::always(UNITS, units),
        Property::always(VALIDITY, validity),
        Property::always(ORDER, |_, state: &State| !state.barged),
        Property::always(USED, used),
        Property::always(OWN_END, |_, state: &State| {
            state.server.holds.iter().all(|hold| hold.left <= hold.own)
        }),
        Property::always(ENDED, |_, state: &State| !state.revived),
        Property::always(SETTLED, |_, state: &State| !state.left_free),
    ];
    if bounds.is_prompt() {
        properties.push(Property::always(PROGRESS, progress));
        properties.push(Property::always(RESIDUE, residue));
        properties.push(Property::eventually(TURN, turn));
    }
    if bounds.witness {
        properties.extend(WITNESSES.map(|(name, happened)| Property::sometimes(name, happened)));
    }
    properties
}

fn units(bounds: &Bounds, state: &State) -> bool {
    let believers = || (0..).zip(&state.clients).filter(|(_, client)| client.believes().is_some());
    let believed: u8 = believers().map(|(at, _)| bounds.takes(at)).sum();
    believers().all(|(at, _)| believed <= bounds.capacity(at))
}

fn validity(_: &Bounds, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(at, client)| match client.phase {
        Phase::Held { token, valid } => state.server.holds.iter().any(|hold| {
            let same = usize::from(hold.member.client) == at && hold.member.request == client.request;
            same && hold.token == token && hold.left > valid
        }),
        _ => true,
    })
}

fn used(_: &Bounds, state: &State) -> bool {
    let server = &state.server;
    let all: u8 = server.holds.iter().map(|hold| hold.takes).sum();
    all == server.used && server.used <= server.capacity
}

fn progress(bounds: &Bounds, state: &State) -> bool {
    match bounds.time {
        Time::Free => true,
        Time::Prompt { idle, .. } => state.idle <= idle,
    }
}

fn residue(_: &Bounds, state: &State) -> bool {
    let members = state.server.live_holds().map(|hold| hold.member);
    let mut members = members.chain(state.server.line.iter().map(|place| place.member));
    members.all(|member| {
        let client = &state.clients[usize::from(member.client)];
        let is_over = client.request != member.request || client.phase == Phase::Idle;
        !(client.alive && is_over && client.call.is_none())
    })
}

/// Once true, it stays true, since no client begins after the last begin: see the model of the hand-off.
fn turn(bounds: &Bounds, state: &State) -> bool {
    let Time::Prompt { last_begin, .. } = bounds.time else { return true };
    let over = state.now > last_begin || state.clients.iter().all(|client| client.request == bounds.requests);
    over && state.clients.iter().all(|client| client.phase == Phase::Idle)
}
