//! The model of fail-overs: the right rules hold, each wrong rule is refuted, and the model is not empty.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod late;
mod parts;
mod right;
#[path = "../support/mod.rs"]
mod support;
mod witnesses;
mod wrong;

use fairlock_model::fail_over::bounds::{Bounds, Faults, Times};
use fairlock_model::fail_over::rules::Rules;

const NONE: Faults = Faults::NONE;

/// Two clients that ask once each, of a server that is dead when it is replaced.
fn life(faults: Faults) -> Bounds {
    Bounds {
        rules: Rules::Right,
        quorum: false,
        times: Times::life(2),
        capacity: 1,
        takes: [1; 3],
        servers: 2,
        clients: 2,
        requests: 1,
        give_ups: false,
        waits: true,
        keeps: true,
        faults,
        alike: false,
        witness: false,
    }
}

/// The same with the quorum rule. With a trust of 2 a lease would be one tick: too coarse to refute a short lease at the server.
fn quorum(faults: Faults) -> Bounds {
    Bounds { quorum: true, times: Times::quorum(3), keeps: faults.namings < 2, ..life(faults) }
}

/// Without a line: a request takes a free lock, or gets nothing.
fn no_line(bounds: Bounds) -> Bounds {
    Bounds { waits: false, ..bounds }
}

/// One fail-over: a promotion, and the sentinels name the new master. It may be a copy of any age, or by hand.
const FAIL_OVER: Faults = Faults { promotions: 1, namings: 1, ..NONE };

/// Checks every state within the limits.
fn holds(name: &str, bounds: Bounds) {
    support::holds_in_every_state(name, Bounds { alike: true, ..bounds });
}

/// The same, up to `depth` steps.
fn holds_to_depth(name: &str, bounds: Bounds, depth: usize) {
    support::holds_to_depth(name, Bounds { alike: true, ..bounds }, depth);
}

/// Finds a counter-example of the property with this number of steps, and none with fewer.
fn refuted(name: &str, bounds: Bounds, property: &'static str, steps: usize) {
    support::refuted_in(name, bounds, property, steps);
}

/// Finds an example of each of these properties.
fn possible(name: &str, bounds: Bounds, wanted: &[&'static str]) {
    support::examples(name, Bounds { witness: true, ..bounds }, wanted);
}
