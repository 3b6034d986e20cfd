//! The model is not empty: the events that the properties guard against do happen.
#![allow(missing_docs, reason = "tests")]

mod support;

use fairlock_model::bounds::{Bounds, Faults};
use fairlock_model::properties::WITNESSES;
use support::{possible, prompt, two};

fn names(which: &[usize]) -> Vec<&'static str> {
    which.iter().map(|at| WITNESSES[*at].0).collect()
}

#[test]
fn with_free_time() {
    possible("possible with free time", two(), &names(&[0, 3, 4, 5, 7, 9]));
}

#[test]
fn with_an_unanswered_call() {
    let faults = Faults { time_outs: 1, ..Faults::NONE };
    possible("possible with an unanswered call", Bounds { faults, ..two() }, &names(&[6]));
}

#[test]
fn with_a_cut_subscription() {
    let faults = Faults { cuts: 1, ..Faults::NONE };
    possible("possible with a cut subscription", Bounds { faults, ..two() }, &names(&[1, 8]));
}

#[test]
fn with_a_lost_line() {
    let faults = Faults { lost_lines: 1, ..Faults::NONE };
    possible("possible with a lost line", Bounds { faults, ..two() }, &names(&[10]));
}

#[test]
fn with_prompt_time() {
    let faults = Faults { lost_pushes: 1, crashes: 1, ..Faults::NONE };
    let bounds = Bounds { clients: 3, give_ups: false, faults, time: prompt(24, 9), ..two() };
    possible("possible with prompt time", bounds, &names(&[0, 1, 2, 3]));
}
