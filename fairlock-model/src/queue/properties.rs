//! What must hold in every state and on every path, and what must be possible.

use stateright::Property;

use super::bounds::{Bounds, Time};
use super::client::Phase;
use super::messages::Member;
use super::state::{Event, State};

/// Clients never believe in more units than there are. For a lock with one unit: two clients never believe at the same time that
/// they hold it.
pub const EXCLUSION: &str = "exclusion";
/// While a client believes in a hold, the server keeps exactly that hold, and longer.
pub const VALIDITY: &str = "a belief ends before the server's lease";
/// A live, reachable waiter is never passed over, whether it fits or not.
pub const ORDER: &str = "first asked, first served";
/// Each hold takes the units of its request, and all together no more than there are.
pub const USED: &str = "the units used are those of the requests";
/// Each hold ends a lease after its own last renewal, whatever happens to others.
pub const OWN_END: &str = "each hold has its own end";
/// A hold that is over is not renewed.
pub const ENDED: &str = "what is over stays over";
/// No operation ends while a present waiter is next and fits, unless the queue rests. (The renewal of a hold does not look at it.)
pub const SETTLED: &str = "an operation grants all that fit";
/// A heartbeat puts no place back: it may be later than its request's end.
pub const HEARTBEAT: &str = "a heartbeat begins nothing";
/// A waiter that knows its ticket comes back there by asking. A waiter that does not know its ticket keeps its place.
pub const PLACE: &str = "a live waiter that does not know its ticket keeps its place";
/// A queue rests only after it was lost.
pub const REST: &str = "only a lost queue rests";
/// While a live client waits, the lock, or units that suffice, stay unused for a bounded time only.
pub const PROGRESS: &str = "the lock does not lie idle while a client waits";
/// At the end of every path each live client has had its turns.
pub const TURN: &str = "every live client gets its turn";
/// An ended request of a live client has left nothing at the server.
pub const RESIDUE: &str = "nothing stays behind";
/// A force takes no hold that was granted after the end of its attempt, and no renewal outlives a force.
pub const FORCE: &str = "a force takes what was held in its time";

/// A condition on a state.
pub type Condition = fn(&Bounds, &State) -> bool;

/// The events that must be possible, and their names.
pub const WITNESSES: [(&str, Condition); 19] = [
    ("a lock is handed over by a push", |_, state| state.has(Event::HandedOver)),
    ("an absent head of the queue is passed over", |_, state| state.has(Event::AbsentPassedOver)),
    ("a grant whose push was lost is found by asking", |_, state| state.has(Event::FoundByAsking)),
    ("units of a hold that is over are granted", |_, state| state.has(Event::EndHandedOn)),
    ("a place that is gone is put back", |_, state| state.has(Event::PutBack)),
    ("a late push is not believed", |_, state| state.has(Event::StalePushRefused)),
    ("a command of an ended request is executed", |_, state| state.has(Event::LateCommand)),
    ("a wait that ends finds its grant", |_, state| state.has(Event::TakenWhileLeaving)),
    ("an absent waiter is back at its ticket", |_, state| state.has(Event::BackAtItsTicket)),
    ("a push overtakes the answer", |_, state| state.has(Event::PushOvertookAnswer)),
    ("a lost queue rests when it comes back", |_, state| state.has(Event::Rested)),
    ("two hold units at the same time", |_, state| state.has(Event::HeldTogether)),
    ("an operation grants two places", |_, state| state.has(Event::TwoGrants)),
    ("an absent waiter that does not fit leaves", |_, state| state.has(Event::BlockerLeft)),
    ("a withdrawal grants two places", |_, state| state.has(Event::WithdrawalGranted)),
    ("a hold that is over is not renewed", |_, state| state.has(Event::EndedRefused)),
    ("a release finds nothing to free", |_, state| state.has(Event::NothingToFree)),
    ("a request for another kind of lock is refused", |_, state| state.has(Event::Refused)),
    ("an absent waiter is back before a later one", |_, state| state.has(Event::BackBeforeLater)),
];

/// All properties of a check.
pub fn of(bounds: &Bounds) -> Vec<Property<Bounds>> {
    let mut properties = vec![
        Property::always(EXCLUSION, exclusion),
        Property::always(VALIDITY, validity),
        Property::always(ORDER, |_, state: &State| !state.barged),
        Property::always(USED, used),
        Property::always(OWN_END, |_, state: &State| {
            state.server.holds.iter().all(|hold| hold.left <= hold.own)
        }),
        Property::always(ENDED, |_, state: &State| !state.revived),
        Property::always(SETTLED, |_, state: &State| !state.left_free),
        Property::always(HEARTBEAT, |_, state: &State| !state.begun),
        Property::always(PLACE, |_, state: &State| !state.forgotten),
        Property::always(FORCE, |_, state: &State| !state.seized && !state.untold),
    ];
    // A command that is executed twice has been answered, so nothing is known of the second time. Nor of late ones without an end.
    if bounds.faults.duplicates == 0 && (bounds.is_whole() || bounds.is_prompt()) {
        properties.push(Property::always(RESIDUE, residue));
    }
    // An ask that comes after its request was withdrawn is not told from one whose place was lost.
    if bounds.faults.time_outs == 0 && bounds.faults.crashes == 0 && bounds.faults.duplicates == 0 {
        properties.push(Property::always(REST, |bounds: &Bounds, state: &State| {
            state.server.rests == 0 || state.faults.lost_queues < bounds.faults.lost_queues
        }));
    }
    if bounds.is_prompt() {
        properties.push(Property::always(PROGRESS, progress));
        properties.push(Property::eventually(TURN, turn));
    }
    if bounds.witness {
        properties.extend(WITNESSES.map(|(name, happened)| Property::sometimes(name, happened)));
    }
    properties
}

fn exclusion(bounds: &Bounds, state: &State) -> bool {
    let believers = || (0..).zip(&state.clients).filter(|(_, client)| client.rightly_believes().is_some());
    let believed: u8 = believers().map(|(at, _)| bounds.takes(at)).sum();
    // The last grant fitted by the capacity that it named.
    let last = believers().max_by_key(|(_, client)| client.rightly_believes());
    last.is_none_or(|(at, _)| believed <= bounds.capacity(at))
}

fn validity(bounds: &Bounds, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(at, client)| match client.phase {
        Phase::Held { token, valid } if client.rightly_believes().is_some() => {
            state.server.holds.iter().any(|hold| {
                let same = usize::from(hold.member.client) == at && hold.member.request == client.request;
                // The margin is one tick: drifting clocks may use it up, and no more.
                same && hold.token == token && hold.left + bounds.faults.drifts > valid
            })
        }
        _ => true,
    })
}

fn used(bounds: &Bounds, state: &State) -> bool {
    let all: u8 = state.server.holds.iter().map(|hold| hold.takes).sum();
    all <= state.server.capacity
        && state.server.holds.iter().all(|hold| hold.takes == bounds.takes(hold.member.client))
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
        !client.dead
            && (client.request > member.request || client.phase == Phase::Idle)
            && !client.calls.iter().flatten().any(|call| call.request == member.request)
            && !client.owed.iter().any(|owed| owed.request == member.request)
    };
    let held = state.server.live_holds().map(|hold| hold.member);
    !held.chain(state.server.queue.iter().map(|place| place.member)).any(is_over)
}

/// Once true, it stays true, since no client begins after the last begin. Stateright checks only one path to each state and
/// ignores cycles. Both limits do no harm: time is in the state, so there are no cycles.
fn turn(bounds: &Bounds, state: &State) -> bool {
    let Time::Prompt { last_begin, .. } = bounds.time else { return true };
    let over = state.now > last_begin || state.clients.iter().all(|client| client.request == bounds.requests);
    over && state.clients.iter().all(|client| client.phase == Phase::Idle)
}
