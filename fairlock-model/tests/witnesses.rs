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
    possible("what is possible, time free", two(), &names(&[0, 3, 4, 5, 7, 9]));
}

#[test]
fn with_a_call_that_is_not_answered() {
    let evils = Evils { time_outs: 1, ..Evils::NONE };
    possible("what is possible, a call not answered", Bounds { evils, ..two() }, &names(&[6]));
}

#[test]
fn with_a_subscription_that_is_cut() {
    let evils = Evils { cuts: 1, ..Evils::NONE };
    possible("what is possible, a subscription cut", Bounds { evils, ..two() }, &names(&[1, 8]));
}

#[test]
fn with_nobody_late() {
    let evils = Evils { lost_pushes: 1, crashes: 1, ..Evils::NONE };
    let bounds = Bounds { clients: 3, give_ups: false, evils, time: prompt(24, 9), ..two() };
    possible("what is possible, nobody late", bounds, &names(&[0, 1, 2, 3]));
}
