//! The model is not empty: what the properties guard against does happen in it.
#![allow(missing_docs, reason = "tests")]

mod support;

use fairlock_model::bounds::{Bounds, Evils};
use fairlock_model::properties::WITNESSES;
use support::{possible, prompt, two};

fn names(which: &[usize]) -> Vec<&'static str> {
    which.iter().map(|at| WITNESSES[*at].0).collect()
}

#[test]
fn with_time_free() {
    let evils = Evils { time_outs: 1, crashes: 1, cuts: 1, ..Evils::NONE };
    possible("what is possible, time free", Bounds { evils, ..two() }, &names(&[0, 1, 3, 4, 5, 6, 7, 8, 9]));
}

#[test]
fn with_nobody_late() {
    let evils = Evils { lost_pushes: 1, crashes: 1, ..Evils::NONE };
    let bounds = Bounds { clients: 3, give_ups: false, evils, time: prompt(24, 9), ..two() };
    possible("what is possible, nobody late", bounds, &names(&[0, 1, 2, 3]));
}
