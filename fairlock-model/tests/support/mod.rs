//! Runs a check, and prints what it saw.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Instant;

use fairlock_model::bounds::{Bounds, Discipline, Faults, Time};
use fairlock_model::rules::Rules;
use stateright::{Checker, HasDiscoveries, Model, Path};

/// Two clients that ask once each, with free time and without faults.
pub fn two() -> Bounds {
    Bounds {
        rules: Rules::Right,
        discipline: Discipline::HandOff,
        clients: 2,
        requests: 1,
        both_calls: false,
        give_ups: true,
        late: false,
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
    holds_in_every_state(name, bounds);
}

/// A model that the checks of this file can run and print.
pub trait Checkable:
    Model<State: Display + Debug + Clone + PartialEq + Hash + Send + Sync, Action: Debug + Clone + PartialEq>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<M> Checkable for M where
    M: Model<
            State: Display + Debug + Clone + PartialEq + Hash + Send + Sync,
            Action: Debug + Clone + PartialEq,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// Checks every state of a model.
pub fn holds_in_every_state(name: &str, model: impl Checkable) {
    let start = Instant::now();
    let checker = model.checker().spawn_bfs().join();
    report(name, &checker, start);
    complain(&checker);
}

/// The same, up to `depth` steps. One thread, so that each state is first reached by a shortest path.
pub fn holds_to_depth(name: &str, model: impl Checkable, depth: usize) {
    let start = Instant::now();
    // The checker skips the states at its target depth.
    let checker = model.checker().target_max_depth(depth + 2).spawn_bfs().join();
    report(&format!("{name}, to {depth} steps"), &checker, start);
    complain(&checker);
}

/// Finds a counter-example of the property with this number of steps, and none with fewer.
pub fn refuted_in(name: &str, model: impl Checkable, property: &'static str, steps: usize) {
    let start = Instant::now();
    // The checker skips the states at its target depth.
    let within = |steps: usize| model.clone().checker().target_max_depth(steps + 2).spawn_bfs().join();
    let checker = within(steps);
    report(&format!("{name} is refuted"), &checker, start);
    let path = checker.assert_any_discovery(property);
    println!("{property}:\n{}", told(&path));
    assert_eq!(path.into_actions().len(), steps);
    assert!(within(steps - 1).discovery(property).is_none(), "it is refuted in fewer steps");
}

/// Finds an example of each of these properties, and names the missing ones.
pub fn examples(name: &str, model: impl Checkable, wanted: &[&'static str]) {
    let start = Instant::now();
    let found = HasDiscoveries::AllOf(wanted.iter().copied().collect());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    report(name, &checker, start);
    for property in wanted {
        checker.assert_any_discovery(property);
    }
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
    examples(name, bounds, wanted);
}

/// Fails if a property is violated.
fn complain<M: Checkable>(checker: &impl Checker<M>) {
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("violated: {property}\n{}", told(&path));
    }
    assert!(checker.is_done(), "the check did not finish");
}

/// Prints what a check saw.
fn report<M: Checkable>(name: &str, checker: &impl Checker<M>, start: Instant) {
    println!(
        "model: {name}: {} states, {} of them different, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth() - 1,
        start.elapsed().as_secs_f32(),
    );
}

/// Prints a path: each step and the state after it.
fn told<S, A>(path: &Path<S, A>) -> String
where
    S: Display + Clone + PartialEq,
    A: Debug + Clone + PartialEq,
{
    let steps = path.clone().into_vec();
    let after = steps.iter().skip(1).map(|(state, _)| state.to_string());
    let lines = steps.iter().zip(after).enumerate().filter_map(|(at, ((_, step), after))| {
        step.as_ref().map(|step| format!("{:>3} {:<28} {after}\n", at + 1, format!("{step:?}")))
    });
    lines.collect()
}
