//! What scripts did, for the properties about what is possible.

use super::server::Effects;
use super::state::{Command, Event, State, Word};
use super::store::Server;

/// Remembers what a script did. `before`: the server before it.
pub fn notice(state: &mut State, before: &Server, Command { member, word }: Command, effects: &Effects) {
    let place = before.line.iter().find(|place| place.member == member);
    let over: u8 = before.holds.iter().filter(|hold| hold.left == 0).map(|hold| hold.takes).sum();
    let events = [
        (Event::TwoGrants, effects.granted > 1),
        (Event::BlockerParked, effects.parked_blocker && effects.granted > 0),
        (Event::WithdrawalGranted, word == Word::Withdraw && effects.granted > 1),
        (Event::EndHandedOn, effects.granted > 0 && over > 0),
        (Event::NothingToFree, effects.freed_nothing),
        (Event::Refused, effects.refused_capacity),
        (Event::EndedRefused, effects.refused),
        (
            Event::BackAtItsTicket,
            place.is_some_and(|place| {
                place.parked && before.line.iter().any(|other| other.ticket > place.ticket)
            }),
        ),
    ];
    events.into_iter().filter(|(_, has)| *has).for_each(|(event, _)| state.happened(event));
}
