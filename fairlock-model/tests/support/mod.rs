//! Runs a check, and says what it saw.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::Instant;

use fairlock_model::bounds::{Bounds, Evils, Time};
use fairlock_model::rules::Rules;
use stateright::{Checker, HasDiscoveries, Model, Path};

/// Two clients that ask once each, with no limit to what may be late, in a kind world.
pub fn two() -> Bounds {
    Bounds {
        rules: Rules::Right,
        clients: 2,
        requests: 1,
        both_calls: false,
        give_ups: true,
        evils: Evils::NONE,
        time: Time::Free,
        alike: false,
        witness: false,
    }
}

/// Nobody is late, and the lock lies idle for so many ticks at the most.
pub fn prompt(horizon: u8, idle: u8) -> Time {
    Time::Prompt { horizon, last_begin: 2, idle }
}

/// Sees every state within the bounds, and finds nothing wrong. Clients may be taken for one another.
pub fn holds(name: &str, mut bounds: Bounds) {
    bounds.alike = bounds.time == Time::Free;
    let checker = bounds.checker();
    let start = Instant::now();
    let checker = checker.spawn_bfs().join();
    report(name, &checker, start);
    complain(&checker);
}

/// The same as far as so many steps from the beginning. One thread, so that each state is first met by a shortest path.
pub fn holds_to_depth(name: &str, bounds: Bounds, depth: usize) {
    let start = Instant::now();
    // The checker does not look at the states of the depth that is its target.
    let checker = bounds.checker().target_max_depth(depth + 2).spawn_bfs().join();
    report(&format!("{name}, the last of {depth} steps looked at"), &checker, start);
    complain(&checker);
}

/// Finds a counter-example of the named property, and returns its steps.
pub fn refuted(bounds: Bounds, property: &'static str) -> usize {
    let (rules, start) = (bounds.rules, Instant::now());
    let checker = bounds
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into_iter().collect()))
        .spawn_bfs()
        .join();
    let what = if rules == Rules::Right { "a bound that is too small".into() } else { format!("{rules:?}") };
    report(&format!("{what} is refuted"), &checker, start);
    let path = checker.assert_any_discovery(property);
    println!("{property}:\n{}", told(&path));
    path.into_actions().len()
}

/// Finds an example of every `sometimes`, or ends with those that are missing.
pub fn possible(name: &str, mut bounds: Bounds, wanted: &[&'static str]) {
    bounds.witness = true;
    let start = Instant::now();
    let found = HasDiscoveries::AllOf(wanted.iter().copied().collect());
    let checker = bounds.checker().finish_when(found).spawn_bfs().join();
    report(name, &checker, start);
    for property in wanted {
        checker.assert_any_discovery(property);
    }
}

fn complain(checker: &impl Checker<Bounds>) {
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("it does not hold: {property}\n{}", told(&path));
    }
    assert!(checker.is_done(), "it was not looked at to the end");
}

fn report(name: &str, checker: &impl Checker<Bounds>, start: Instant) {
    println!(
        "model: {name}: {} states, {} of them different, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth() - 1,
        start.elapsed().as_secs_f32(),
    );
}

/// A path as a story: a step, and the moment after it.
fn told(path: &Path<<Bounds as Model>::State, <Bounds as Model>::Action>) -> String {
    let steps = path.clone().into_vec();
    let after = steps.iter().skip(1).map(|(state, _)| state.to_string());
    let lines = steps.iter().zip(after).enumerate().filter_map(|(at, ((_, step), after))| {
        step.as_ref().map(|step| format!("{:>3} {:<28} {after}\n", at + 1, format!("{step:?}")))
    });
    lines.collect()
}
