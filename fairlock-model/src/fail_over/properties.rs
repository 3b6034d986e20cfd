//! What must hold in every state, and what must be possible.

use stateright::Property;

use super::bounds::Bounds;
use super::state::{Event, State};

/// The units in which clients believe are never more than there are. Of a lock with one unit: two clients never believe at the
/// same time that they hold it.
pub const EXCLUSION: &str = "exclusion";
/// Waiters that a server knows are granted the lock in the order in which they asked, before or after a fail-over.
pub const ORDER: &str = "first asked, first served";
/// A late reclaim does not bring back a hold that was released in this life.
pub const RELEASED: &str = "what was released stays released";

/// Nothing of a request begins after it was withdrawn at the end of its attempts.
pub const RESIDUE: &str = "nothing stays behind";
/// A force takes nothing after its end, and in a grace what it ended is not reclaimed.
pub const FORCE: &str = "a force takes what was held in its time";

/// A client that believes in its hold and renews it is never told of a loss.
pub const KEPT: &str = "a live holder keeps its hold";

/// A condition on a state.
pub type Condition = fn(&Bounds, &State) -> bool;

/// The events that must be possible, and their names.
pub const WITNESSES: [(&str, Condition); 9] = [
    ("a hold is reclaimed in a grace", |_, state| state.has(Event::Reclaimed)),
    ("the lock is granted after a grace", |_, state| state.has(Event::GrantedAfterAGrace)),
    ("a push is believed", |_, state| state.has(Event::BelievedAPush)),
    ("a place that is put back later is served first", |_, state| state.has(Event::PutBackServedFirst)),
    ("a deposed master grants the lock", |_, state| state.has(Event::GrantedByADeposed)),
    ("an old epoch is refused", |_, state| state.has(Event::Refused)),
    ("a late request is executed", |_, state| state.has(Event::LateCall)),
    ("two holds are reclaimed in one grace", |_, state| state.has(Event::ReclaimedTogether)),
    ("a live hold of an old file gives way", |_, state| state.has(Event::LiveGaveWay)),
];

/// All properties of a check.
pub fn of(bounds: &Bounds) -> Vec<Property<Bounds>> {
    let mut properties = vec![
        Property::always(EXCLUSION, excludes),
        Property::always(ORDER, |_, state: &State| !state.barged),
        Property::always(RELEASED, |_, state: &State| !state.came_back),
        Property::always(RESIDUE, |_, state: &State| !state.left_behind),
        Property::always(FORCE, |_, state: &State| !state.undone),
        Property::always(KEPT, |_, state: &State| !state.robbed),
    ];
    if bounds.witness {
        properties.extend(WITNESSES.map(|(name, happened)| Property::sometimes(name, happened)));
    }
    properties
}

/// Whether a property is broken.
pub fn is_broken(bounds: &Bounds, state: &State) -> bool {
    let marks = [state.barged, state.came_back, state.left_behind, state.undone, state.robbed];
    !excludes(bounds, state) || marks.contains(&true)
}

fn excludes(bounds: &Bounds, state: &State) -> bool {
    // A holder that has not heard of a force yet goes on to believe. So it does if a fail-over undoes the force.
    let believers = state.clients.iter().zip(bounds.takes);
    let believed: u8 = believers
        .filter(|(client, _)| client.believes() && !client.is_forced())
        .map(|(_, takes)| takes)
        .sum();
    believed <= bounds.capacity
}
