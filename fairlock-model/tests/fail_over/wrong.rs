//! The wrong rules and times that were tried: the model refutes each, by the property that it breaks.

use fairlock_model::fail_over::bounds::{Bounds, Faults, Times};
use fairlock_model::fail_over::properties::{EXCLUSION, ORDER, RELEASED};
use fairlock_model::fail_over::rules::Rules;

use super::{FAIL_OVER, NONE, holds, life, no_line, quorum, refuted};

const RESTART: Faults = Faults { restarts: 1, ..NONE };
const FLUSH: Faults = Faults { flushes: 1, ..NONE };
const PROMOTION: Faults = Faults { promotions: 1, ..NONE };
const NAMED_AGAIN: Faults = Faults { namings: 2, ..FAIL_OVER };
const FAIL_OVER_AND_FLUSH: Faults = Faults { flushes: 1, ..FAIL_OVER };

fn late(calls: u8, faults: Faults) -> Faults {
    Faults { time_outs: calls, ..faults }
}

fn drifting(faults: Faults) -> Faults {
    Faults { drifts: 1, ..faults }
}

fn wrong(rules: Rules, bounds: Bounds) -> Bounds {
    Bounds { rules, ..no_line(bounds) }
}

fn wrong_with_a_line(rules: Rules, bounds: Bounds) -> Bounds {
    Bounds { rules, ..bounds }
}

fn extra(extra: u8, bounds: Bounds) -> Bounds {
    Bounds { times: Times { extra, ..bounds.times }, ..no_line(bounds) }
}

fn grace(grace: u8, bounds: Bounds) -> Bounds {
    Bounds { times: Times { grace, ..bounds.times }, ..no_line(bounds) }
}

#[test]
fn no_life() {
    refuted("no life, empty restart", wrong(Rules::NoLife, life(RESTART)), EXCLUSION, 5);
    refuted("no life, FLUSHALL", wrong(Rules::NoLife, life(FLUSH)), EXCLUSION, 5);
    refuted("no life, promotion", wrong(Rules::NoLife, life(PROMOTION)), EXCLUSION, 5);
    refuted("a quorum without life", wrong(Rules::NoLife, quorum(FAIL_OVER)), EXCLUSION, 6);
}

#[test]
fn a_life_that_is_not_in_the_data() {
    refuted("a life beside the data", wrong(Rules::LifeNotInTheData, life(FLUSH)), EXCLUSION, 5);
}

#[test]
fn a_life_that_is_a_process() {
    let faults = Faults { promotions: 2, demotions: 1, ..NONE };
    refuted("a life that is a process", wrong(Rules::LifeIsTheProcess, quorum(faults)), EXCLUSION, 7);
}

#[test]
fn a_life_without_an_epoch() {
    refuted("a key without an epoch", wrong(Rules::NoEpochInTheKey, quorum(NAMED_AGAIN)), EXCLUSION, 14);
}

#[test]
fn an_old_epoch_that_is_named_again() {
    let bounds = wrong(Rules::OldEpochIsNamedAgain, quorum(NAMED_AGAIN));
    refuted("an old epoch that is named again", bounds, EXCLUSION, 14);
}

/// Not refuted: what a client learns under an old epoch ends before the grace of the new one. It is refused all the same.
#[test]
fn an_old_epoch_that_is_served() {
    holds("an old epoch that is served", wrong(Rules::OldEpochIsServed, quorum(NAMED_AGAIN)));
}

#[test]
fn a_grace_that_is_too_short() {
    refuted("life: a grace below the trust", grace(1, life(RESTART)), EXCLUSION, 8);
    refuted("quorum: a grace of a lease", grace(2, quorum(FAIL_OVER_AND_FLUSH)), EXCLUSION, 10);
    refuted("quorum: a grace of the trust", grace(3, quorum(FAIL_OVER_AND_FLUSH)), EXCLUSION, 16);
}

#[test]
fn a_server_that_keeps_a_hold_too_short() {
    refuted("a server's lease of a lease", extra(0, quorum(FAIL_OVER)), EXCLUSION, 10);
    refuted("a server's lease of a lease and a tick", extra(1, quorum(FAIL_OVER)), EXCLUSION, 13);
}

/// Steps come between ticks, so that one tick less than the rule says is enough. A clock that gains a tick takes it.
#[test]
fn times_without_a_margin_for_the_clocks() {
    holds("the least lease of the server", extra(2, quorum(FAIL_OVER)));
    refuted("the least lease, a clock that gains", extra(2, quorum(drifting(FAIL_OVER))), EXCLUSION, 14);
    holds("a server's lease with a margin, a clock that gains", extra(3, quorum(drifting(FAIL_OVER))));
    holds("the least grace", grace(4, quorum(FAIL_OVER_AND_FLUSH)));
    let faults = drifting(FAIL_OVER_AND_FLUSH);
    refuted("the least grace, a clock that gains", grace(4, quorum(faults)), EXCLUSION, 17);
    holds("a grace with a margin, a clock that gains", grace(5, quorum(faults)));
    let bounds = extra(1, life(drifting(RESTART)));
    refuted("life: a grace without a margin", bounds.clone(), EXCLUSION, 9);
    holds("life: a grace with a margin", grace(3, bounds));
}

#[test]
fn grants_in_the_grace() {
    let bounds = wrong(Rules::FreeIsGrantedInTheGrace, life(RESTART));
    refuted("a free lock that is granted in the grace", bounds, EXCLUSION, 5);
    let bounds = Bounds { requests: 2, ..life(late(1, PROMOTION)) };
    let bounds = wrong_with_a_line(Rules::HandedOnInTheGrace, bounds);
    refuted("a lock that is handed on in the grace", bounds, EXCLUSION, 13);
    let bounds = wrong(Rules::FoundInTheGrace, quorum(NAMED_AGAIN));
    refuted("a repeat that finds its grant in the grace", bounds, EXCLUSION, 16);
}

#[test]
fn a_belief_that_counts_from_the_answer() {
    let bounds = wrong(Rules::ValidFromTheAnswer, quorum(FAIL_OVER));
    refuted("a belief that counts from the answer", bounds, EXCLUSION, 13);
}

#[test]
fn a_belief_that_revives() {
    refuted("a belief that revives", wrong(Rules::BeliefRevives, life(RESTART)), EXCLUSION, 9);
}

#[test]
fn a_repeat_that_counts_as_a_new_grant() {
    let bounds = wrong(Rules::RepeatProlongs, quorum(late(1, FAIL_OVER)));
    refuted("a repeat that counts as a new grant", bounds, EXCLUSION, 12);
}

#[test]
fn requests_without_a_proof() {
    let bounds = wrong(Rules::RenewalsWithoutProof, quorum(FAIL_OVER));
    refuted("renewals without a proof", bounds, EXCLUSION, 19);
    refuted("life alone, with a deposed master", wrong(Rules::NoQuorum, life(PROMOTION)), EXCLUSION, 9);
}

#[test]
fn a_push_of_another_server() {
    let bounds = wrong_with_a_line(Rules::PushFromAnyServer, quorum(FAIL_OVER));
    refuted("a push of another server than the place's", bounds, EXCLUSION, 22);
}

#[test]
fn a_hold_that_is_handed_on_for_the_place_alone() {
    let bounds = wrong_with_a_line(Rules::HandedOnForThePlace, quorum(FAIL_OVER));
    refuted("a handed-on hold that ends with its place", bounds, EXCLUSION, 12);
}

#[test]
fn claims_in_any_order() {
    let bounds = Bounds { requests: 2, ..life(late(2, RESTART)) };
    refuted("claims in any order", wrong(Rules::ClaimsInAnyOrder, bounds), EXCLUSION, 19);
}

#[test]
fn claims_of_what_was_released() {
    let bounds = wrong(Rules::EndedIsForgotten, life(late(1, RESTART)));
    refuted("a release in the grace that is forgotten", bounds, RELEASED, 8);
    let bounds = wrong(Rules::EndedBesideAnotherHold, life(late(1, PROMOTION)));
    refuted("a release in the grace that is forgotten beside another hold", bounds, RELEASED, 13);
    refuted("claims after the grace", wrong(Rules::ClaimsAfterTheGrace, life(late(1, NONE))), RELEASED, 7);
}

#[test]
fn a_place_that_is_put_back_at_the_tail() {
    let bounds = wrong_with_a_line(Rules::PutBackAtTheTail, life(RESTART));
    refuted("a place that is put back at the tail", bounds, ORDER, 17);
}
