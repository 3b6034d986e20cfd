//! The wrong rules that were tried: the model refutes each, by the property that it breaks.
#![allow(missing_docs, reason = "tests")]

mod support;

use fairlock_model::bounds::{Bounds, Faults};
use fairlock_model::properties::{EXCLUSION, ORDER, PROGRESS, RESIDUE, TURN, VALIDITY};
use fairlock_model::rules::Rules;
use support::{prompt, refuted, two};

fn wrong(rules: Rules) -> Bounds {
    Bounds { rules, ..two() }
}

fn wrong_with(rules: Rules, faults: Faults) -> Bounds {
    Bounds { faults, ..wrong(rules) }
}

const ONE_TIME_OUT: Faults = Faults { time_outs: 1, ..Faults::NONE };

#[test]
fn a_lease_that_counts_from_its_answer() {
    refuted(wrong(Rules::ValidFromTheAnswer), VALIDITY);
    refuted(wrong(Rules::ValidFromTheAnswer), EXCLUSION);
}

#[test]
fn a_push_that_is_older_than_the_place() {
    refuted(wrong(Rules::PushOlderThanThePlace), VALIDITY);
    refuted(wrong(Rules::PushOlderThanThePlace), EXCLUSION);
}

#[test]
fn a_push_that_is_compared_with_the_ticket() {
    refuted(wrong(Rules::PushComparedWithTheTicket), VALIDITY);
    refuted(wrong(Rules::PushComparedWithTheTicket), EXCLUSION);
}

#[test]
fn a_place_that_is_put_back_at_the_tail() {
    refuted(Bounds { requests: 2, give_ups: false, ..wrong(Rules::PutBackAtTheTail) }, ORDER);
}

#[test]
fn a_heartbeat_that_puts_back_a_place_that_was_served() {
    let bounds = Bounds { time: prompt(12, 9), both_calls: true, ..wrong(Rules::HeartbeatPutsBackTheServed) };
    refuted(bounds, RESIDUE);
}

#[test]
fn a_lost_line_that_does_not_rest() {
    let faults = Faults { lost_lines: 1, ..Faults::NONE };
    let bounds = Bounds {
        clients: 3,
        give_ups: false,
        time: prompt(12, 9),
        ..wrong_with(Rules::LostLineDoesNotRest, faults)
    };
    refuted(bounds, ORDER);
}

#[test]
fn a_push_that_counts_from_an_answer_with_the_grant() {
    refuted(wrong(Rules::PushCountsFromAnyAnswer), VALIDITY);
}

#[test]
fn a_push_that_is_believed_past_the_place() {
    refuted(wrong(Rules::PushWithoutDeadline), VALIDITY);
    refuted(wrong(Rules::PushWithoutDeadline), EXCLUSION);
}

#[test]
fn a_lease_without_a_margin() {
    let faults = Faults { drifts: 1, ..Faults::NONE };
    refuted(wrong_with(Rules::NoMargin, faults), EXCLUSION);
}

#[test]
fn a_dead_head_that_is_waited_for() {
    let bounds = Bounds {
        clients: 3,
        time: prompt(24, 9),
        faults: Faults { crashes: 1, ..Faults::NONE },
        give_ups: false,
        ..wrong(Rules::DeadHeadIsWaitedFor)
    };
    refuted(bounds.clone(), PROGRESS);
    refuted(bounds, TURN);
}

#[test]
fn a_newcomer_that_barges() {
    refuted(wrong_with(Rules::NewcomerBarges, Faults { crashes: 1, ..Faults::NONE }), ORDER);
}

#[test]
fn a_newcomer_that_gets_the_lock_after_a_walk_that_ended() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    let bounds =
        Bounds { clients: 3, give_ups: false, ..wrong_with(Rules::NewcomerBargesAfterManyAbsent, faults) };
    refuted(bounds, ORDER);
}

#[test]
fn a_late_request_that_takes_over_its_owners_hold() {
    let bounds = Bounds { requests: 2, ..wrong_with(Rules::LateRequestTakesOver, ONE_TIME_OUT) };
    refuted(bounds.clone(), VALIDITY);
    refuted(bounds, EXCLUSION);
}

#[test]
fn a_release_of_any_hold() {
    refuted(wrong_with(Rules::ReleaseOfAnyHold, ONE_TIME_OUT), VALIDITY);
}

#[test]
fn a_place_that_is_kept_when_a_wait_ends() {
    let bounds = Bounds { time: prompt(24, 9), ..wrong(Rules::PlaceKeptOnTimeOut) };
    refuted(bounds, RESIDUE);
}

#[test]
fn a_line_without_polling() {
    let faults = Faults { lost_pushes: 1, ..Faults::NONE };
    let bounds = Bounds { time: prompt(24, 9), give_ups: false, ..wrong_with(Rules::NobodyLooks, faults) };
    refuted(bounds.clone(), PROGRESS);
    refuted(bounds, TURN);
}

/// Not a rule but a limit: the smallest one that holds.
#[test]
fn a_lock_that_may_idle_one_tick_less() {
    let faults = Faults { crashes: 1, time_outs: 1, cuts: 1, lost_pushes: 1, ..Faults::NONE };
    refuted(Bounds { requests: 2, faults, time: prompt(30, 5), ..two() }, PROGRESS);
}
