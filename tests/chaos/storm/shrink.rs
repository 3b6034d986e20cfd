//! Makes a failing program smaller, as long as it still breaks the same promise.

use std::time::{Duration, Instant};

use crate::Kind;
use crate::program::Program;
use crate::run::Outcome;
use crate::world::Promise;

/// How often a smaller program may pass before it counts as one that passes: threads race.
const TRIES: usize = 2;

/// The smallest program that was found in this time, and its outcome.
pub fn shrink(kind: &Kind<'_>, program: &Program, outcome: Outcome, budget: Duration) -> (Program, Outcome) {
    let Some(promise) = outcome.findings.first().map(|finding| finding.promise) else {
        return (program.clone(), outcome);
    };
    let until = Instant::now() + budget;
    let (mut best, mut best_outcome) = (program.clone(), outcome);
    loop {
        let before = best.size();
        let mut chunk = best.size().div_ceil(2);
        while chunk > 0 {
            let mut from = 0;
            while from < best.size() {
                if Instant::now() >= until {
                    return (best, best_outcome);
                }
                let smaller = without(&best, from, from + chunk);
                match breaks(kind, &smaller, promise) {
                    Some(outcome) => (best, best_outcome) = (smaller, outcome),
                    None => from += chunk,
                }
            }
            chunk /= 2;
        }
        if best.size() == before {
            return (best, best_outcome);
        }
    }
}

fn breaks(kind: &Kind<'_>, program: &Program, promise: Promise) -> Option<Outcome> {
    let is_same = |outcome: &Outcome| outcome.findings.iter().any(|finding| finding.promise == promise);
    (0..TRIES).map(|_| (kind.run)(program)).find(is_same)
}

/// Without the faults and calls of these numbers: faults come first, then the crowd, then the actors' calls.
fn without(program: &Program, from: usize, to: usize) -> Program {
    let mut smaller = program.clone();
    let mut number = 0;
    let mut keeps = || {
        number += 1;
        !(from..to).contains(&(number - 1))
    };
    smaller.faults.retain(|_| keeps());
    smaller.crowd = smaller.crowd.filter(|_| keeps());
    for actor in &mut smaller.actors {
        actor.ops.retain(|_| keeps());
    }
    smaller
}
