//! The checks of both models, each with its name, its limits, and what it must find.

pub mod fail_over;
pub mod queue;

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Path};

/// The argument for all states.
pub const WHOLE: &str = "--whole";

/// How many states a check of right rules sees, the nearest to the beginning first. With [`WHOLE`], and if the check is called quick: all.
const MOST: usize = 1_000_000;

/// What a check saw: a line, and the counter-example that it was to find; or what is wrong.
pub type Outcome = Result<(String, String), String>;

/// A check that has yet to run.
pub struct Check {
    /// Its name.
    pub name: String,
    /// Runs it.
    pub run: Box<dyn FnOnce() -> Outcome + Send>,
}

/// A model that can be run and printed.
pub trait Checkable:
    Model<State: Display + Debug + Clone + PartialEq + Hash + Send + Sync, Action: Debug + Clone + PartialEq>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl Checkable for crate::queue::bounds::Bounds {}
impl Checkable for crate::fail_over::bounds::Bounds {}

/// Every property holds in every state.
pub fn holds(name: &str, model: impl Checkable) -> Check {
    check(name.into(), move |name| all_hold(name, model.checker()))
}

/// The same, up to `depth` steps.
pub fn holds_to(name: &str, model: impl Checkable, depth: usize) -> Check {
    check(format!("{name}, to {depth} steps"), move |name| all_hold(name, to_depth(model, depth)))
}

/// The property has a counter-example with this number of steps, and none with fewer. (If it is further away than [`MOST`] states, it may
/// be a step longer than the shortest.)
pub fn refuted(name: &str, model: impl Checkable, property: &'static str, steps: usize) -> Check {
    check(format!("refuted: {name}: {property}"), move |name| {
        let within = |steps: usize| {
            let found = HasDiscoveries::AnyOf([property].into_iter().collect());
            search(name, to_depth(model.clone(), steps).finish_when(found))
        };
        let (seen, checker) = within(steps);
        let Some(path) = checker.discovery(property) else {
            return Err(format!("no counter-example\n{seen}"));
        };
        let told = told(&path);
        // The checker may go on for a moment, and replace a counter-example by a longer one.
        let mut fewest = path.into_actions().len();
        while checker.state_count() < MOST
            && let Some(path) = within(fewest - 1).1.discovery(property)
        {
            fewest = path.into_actions().len();
        }
        if fewest == steps {
            Ok((format!("{seen}, {steps} steps"), told))
        } else {
            Err(format!("{fewest} steps\n{told}"))
        }
    })
}

/// There is an example of each of these properties.
pub fn possible(name: &str, model: impl Checkable, wanted: Vec<&'static str>) -> Check {
    check(format!("possible: {name}"), move |name| {
        let all = HasDiscoveries::AllOf(wanted.iter().copied().collect());
        let (seen, checker) = search(name, model.checker().finish_when(all));
        match wanted.into_iter().find(|property| checker.discovery(property).is_none()) {
            Some(missing) => Err(format!("never: {missing}")),
            None => Ok((seen, String::new())),
        }
    })
}

pub fn check(name: String, run: impl FnOnce(&str) -> Outcome + Send + 'static) -> Check {
    let of = name.clone();
    Check { name, run: Box::new(move || run(&of)) }
}

/// The checker skips the states at its target depth.
fn to_depth<M: Checkable>(model: M, depth: usize) -> CheckerBuilder<M> {
    model.checker().target_max_depth(depth + 2)
}

fn all_hold<M: Checkable>(name: &str, builder: CheckerBuilder<M>) -> Outcome {
    let is_whole = name.contains("(quick)") || std::env::args().any(|word| word == WHOLE);
    let (seen, checker) = search(name, if is_whole { builder } else { builder.target_state_count(MOST) });
    match checker.discoveries().into_iter().next() {
        Some((property, path)) => Err(format!("violated: {property}\n{}", told(&path))),
        None if !is_whole && checker.state_count() >= MOST => Ok((format!("{seen}, not all"), String::new())),
        None if !checker.is_done() => Err("the check did not finish".into()),
        None => Ok((seen, String::new())),
    }
}

/// One thread, so that each state is first reached by a shortest path.
fn search<M: Checkable>(name: &str, builder: CheckerBuilder<M>) -> (String, impl Checker<M>) {
    let start = Instant::now();
    let checker = builder.spawn_bfs().join();
    let seen = format!(
        "{name}: {} states, {} of them different, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth() - 1,
        start.elapsed().as_secs_f32(),
    );
    (seen, checker)
}

/// A path: each step and the state after it.
fn told<S, A>(path: &Path<S, A>) -> String
where
    S: Display + Clone + PartialEq,
    A: Debug + Clone + PartialEq,
{
    let (states, steps): (Vec<S>, Vec<Option<A>>) = path.clone().into_vec().into_iter().unzip();
    let lines = steps.into_iter().flatten().zip(states.into_iter().skip(1)).enumerate();
    lines.map(|(at, (step, after))| format!("{:>3} {:<22} {after}\n", at + 1, format!("{step:?}"))).collect()
}
