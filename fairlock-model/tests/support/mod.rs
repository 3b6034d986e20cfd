//! Runs a check, and prints what it saw.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::Instant;

use fairlock_model::bounds::{Bounds, Faults, Time};
use fairlock_model::rules::Rules;
use stateright::{Checker, HasDiscoveries, Model, Path};

/// Two clients that ask once each, with free time and without faults.
pub fn two() -> Bounds {
    Bounds {
        rules: Rules::Right,
        clients: 2,
        requests: 1,
        both_calls: false,
        give_ups: true,
        faults: Faults::NONE,
        time: Time::Free,
        alike: false,
        witness: false,
    }
}

/// Prompt time, with the lock idle for at most `idle` ticks.
pub fn prompt(horizon: u8, idle: u8) -> Time {
    Time::Prompt { horizon, last_begin: 2, idle }
}

/// Checks every state within the limits. Clients are interchangeable.
pub fn holds(name: &str, mut bounds: Bounds) {
    bounds.alike = bounds.time == Time::Free;
    let checker = bounds.checker();
    let start = Instant::now();
    let checker = checker.spawn_bfs().join();
    report(name, &checker, start);
    complain(&checker);
}

/// The same, up to `depth` steps. One thread, so that each state is first reached by a shortest path.
pub fn holds_to_depth(name: &str, bounds: Bounds, depth: usize) {
    let start = Instant::now();
    // The checker skips the states at its target depth.
    let checker = bounds.checker().target_max_depth(depth + 2).spawn_bfs().join();
    report(&format!("{name}, to {depth} steps"), &checker, start);
    complain(&checker);
}

/// Finds a counter-example of the named property, and returns its number of steps.
pub fn refuted(bounds: Bounds, property: &'static str) -> usize {
    let (rules, start) = (bounds.rules, Instant::now());
    let checker = bounds
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into_iter().collect()))
        .spawn_bfs()
        .join();
    let what = if rules == Rules::Right { "a limit that is too small".into() } else { format!("{rules:?}") };
    report(&format!("{what} is refuted"), &checker, start);
    let path = checker.assert_any_discovery(property);
    println!("{property}:\n{}", told(&path));
    path.into_actions().len()
}

/// Finds an example of every `sometimes` property, and names the missing ones.
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
        panic!("violated: {property}\n{}", told(&path));
    }
    assert!(checker.is_done(), "the check did not finish");
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

/// Prints a path: each step and the state after it.
fn told(path: &Path<<Bounds as Model>::State, <Bounds as Model>::Action>) -> String {
    let steps = path.clone().into_vec();
    let after = steps.iter().skip(1).map(|(state, _)| state.to_string());
    let lines = steps.iter().zip(after).enumerate().filter_map(|(at, ((_, step), after))| {
        step.as_ref().map(|step| format!("{:>3} {:<28} {after}\n", at + 1, format!("{step:?}")))
    });
    lines.collect()
}
