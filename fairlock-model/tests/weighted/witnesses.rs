//! The model is not empty: the events that the properties guard against do happen.

use fairlock_model::weighted::bounds::{Bounds, Faults};
use fairlock_model::weighted::properties::WITNESSES;

use super::{NONE, free, in_parts, possible, prompt};

fn names(which: &[usize]) -> Vec<&'static str> {
    which.iter().map(|at| WITNESSES[*at].0).collect()
}

#[test]
fn with_free_time() {
    possible("weighted: possible with free time", free(NONE), &names(&[0, 1, 2, 3, 4, 5, 6, 8, 9]));
}

#[test]
fn with_another_capacity() {
    let bounds = Bounds { capacities: &[2, 2, 3], ..free(NONE) };
    possible("weighted: possible with another capacity", bounds, &names(&[10]));
}

#[test]
fn with_prompt_time() {
    let faults = Faults { lost_pushes: 1, ..NONE };
    possible("weighted: possible with prompt time", in_parts(prompt(2, faults)), &names(&[7, 11]));
}
