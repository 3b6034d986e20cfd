//! The model of the weighted line: the right rules hold, each wrong rule is refuted, and the model is not empty.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod right;
#[path = "../support/mod.rs"]
mod support;
mod witnesses;
mod wrong;

use fairlock_model::weighted::bounds::{Bounds, Faults, Time, Times};
use fairlock_model::weighted::rules::Rules;

const NONE: Faults = Faults::NONE;
const CRASH: Faults = Faults { crashes: 1, ..NONE };
const DEAD_HOLDER: Faults = Faults { dead_holders: 1, ..NONE };
const TIME_OUT: Faults = Faults { time_outs: 1, ..NONE };
const CUT: Faults = Faults { cuts: 1, ..NONE };

/// Capacity 2, and three clients that ask once each, for 1, 1 and 2 units, with free time.
fn free(faults: Faults) -> Bounds {
    Bounds {
        rules: Rules::Right,
        takes: &[1, 1, 2],
        capacities: &[2; 4],
        requests: 1,
        times: Times::SHORT,
        at_once: usize::MAX,
        give_ups: true,
        faults,
        time: Time::Free,
        alike: false,
        witness: false,
    }
}

/// The same with prompt time: units are free beside a waiter for at most `idle` ticks.
fn prompt(idle: u8, faults: Faults) -> Bounds {
    let time = Time::Prompt { horizon: 30, last_begin: 2, longest_hold: 10, idle };
    Bounds { times: Times::FINE, give_ups: false, time, ..free(faults) }
}

/// Without time-outs of waits.
fn stay(bounds: Bounds) -> Bounds {
    Bounds { give_ups: false, ..bounds }
}

/// One script drops one hold, and grants one place.
fn in_parts(bounds: Bounds) -> Bounds {
    Bounds { at_once: 1, ..bounds }
}

/// The first two clients are interchangeable, if they ask for the same. With prompt time that does not pay.
fn reduced(bounds: Bounds) -> Bounds {
    let same = bounds.takes(0) == bounds.takes(1) && bounds.capacity(0) == bounds.capacity(1);
    Bounds { alike: same && !bounds.is_prompt(), ..bounds }
}

/// Checks every state within the limits.
fn holds(name: &str, bounds: Bounds) {
    support::holds_in_every_state(name, reduced(bounds));
}

/// The same, up to `depth` steps.
fn holds_to_depth(name: &str, bounds: Bounds, depth: usize) {
    support::holds_to_depth(name, reduced(bounds), depth);
}

/// Finds a counter-example of the property with this number of steps, and none with fewer.
fn refuted(name: &str, bounds: Bounds, property: &'static str, steps: usize) {
    support::refuted_in(&format!("weighted: {name}"), bounds, property, steps);
}

/// Finds an example of each of these properties.
fn possible(name: &str, bounds: Bounds, wanted: &[&'static str]) {
    support::examples(name, Bounds { witness: true, ..bounds }, wanted);
}
