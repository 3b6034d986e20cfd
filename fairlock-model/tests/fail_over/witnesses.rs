//! The model is not empty: the events that the properties guard against do happen.

use fairlock_model::fail_over::bounds::Faults;
use fairlock_model::fail_over::properties::WITNESSES;

use super::parts::of_two;
use super::{FAIL_OVER, NONE, life, possible, quorum};

fn names(which: &[usize]) -> Vec<&'static str> {
    which.iter().map(|at| WITNESSES[*at].0).collect()
}

#[test]
fn with_the_life_rule() {
    let faults = Faults { promotions: 1, time_outs: 1, ..NONE };
    possible("possible with the life rule", life(faults), &names(&[0, 1, 2, 3, 6]));
}

#[test]
fn with_the_quorum_rule() {
    possible("possible with the quorum rule", quorum(FAIL_OVER), &names(&[0, 1, 2, 3, 4]));
}

#[test]
fn with_a_master_that_is_named_again() {
    let faults = Faults { namings: 2, ..FAIL_OVER };
    possible("possible with a master that is named again", quorum(faults), &names(&[5]));
}

#[test]
fn with_holds_that_take_a_part() {
    let faults = Faults { old_files: 1, ..NONE };
    possible("possible with holds that take a part", of_two([1; 3], life(faults)), &names(&[7, 8]));
}
