//! What arrives late, and what an operator takes by force. `.ci/run` checks those whose names end in `a_fail_over`.

use fairlock_model::fail_over::bounds::{Bounds, Faults};
use fairlock_model::fail_over::properties::{FORCE, RESIDUE};
use fairlock_model::fail_over::rules::Rules;

use super::{FAIL_OVER, NONE, holds, holds_to_depth, life, no_line, quorum, refuted};

const RESTART: Faults = Faults { restarts: 1, time_outs: 1, ..NONE };
const FORCED: Faults = Faults { restarts: 1, forces: 1, ..NONE };

fn wrong(rules: Rules, bounds: Bounds) -> Bounds {
    Bounds { rules, ..no_line(bounds) }
}

#[test]
fn a_force_through_a_fail_over() {
    let faults = Faults { promotions: 1, ..FORCED };
    holds("life: a force, promotion, empty restart", no_line(life(faults)));
}

#[test]
fn a_force_with_a_line() {
    holds("life: a line, a force, promotion", life(Faults { promotions: 1, forces: 1, ..NONE }));
}

#[test]
fn a_force_with_a_quorum() {
    holds("quorum: a force, fail-over", no_line(quorum(Faults { forces: 1, ..FAIL_OVER })));
}

#[test]
fn a_force_and_a_late_call() {
    let faults = Faults { forces: 1, ..RESTART };
    holds("life: a force, a late call, empty restart", no_line(life(faults)));
}

#[test]
fn a_force_with_a_quorum_and_a_line_to_a_depth() {
    holds_to_depth("quorum: a line, a force, fail-over", quorum(Faults { forces: 1, ..FAIL_OVER }), 16);
}

#[test]
fn an_ask_without_an_end() {
    refuted("an ask without an end", wrong(Rules::NoEndOfAnAsk, life(RESTART)), RESIDUE, 10);
}

#[test]
fn a_claim_without_an_end() {
    refuted("a claim without an end", wrong(Rules::NoEndOfAClaim, life(RESTART)), RESIDUE, 11);
}

#[test]
fn a_force_without_an_end() {
    refuted("a force without an end", wrong(Rules::NoEndOfAForce, life(FORCED)), FORCE, 7);
}

#[test]
fn a_force_in_the_grace_that_ends_what_it_finds() {
    let bounds = wrong(Rules::ForceEndsWhatItFinds, life(FORCED));
    refuted("a force in the grace that ends what it finds", bounds, FORCE, 7);
}
