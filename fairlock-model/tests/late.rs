//! What arrives late, and what an operator takes by force: the right rules hold, each wrong rule is refuted.
#![allow(missing_docs, reason = "tests")]

mod support;

use fairlock_model::bounds::{Bounds, Discipline, Faults};
use fairlock_model::properties::{FORCE, ORDER, PROGRESS, RESIDUE, TURN, VALIDITY};
use fairlock_model::rules::Rules;
use support::{holds, holds_to_depth, prompt, refuted, two};

const LATE: Faults = Faults { time_outs: 1, ..Faults::NONE };
const FORCED: Faults = Faults { forces: 1, ..Faults::NONE };

fn late() -> Bounds {
    Bounds { faults: LATE, ..two() }
}

fn wrong(rules: Rules) -> Bounds {
    Bounds { rules, ..late() }
}

/// Places and holds of another discipline, with two requests of each owner.
fn other(discipline: Discipline, bounds: Bounds) -> Bounds {
    Bounds { discipline, requests: 2, ..bounds }
}

/// Time is prompt, and yet a command may be late.
fn prompt_and_late(idle: u8) -> Bounds {
    Bounds { requests: 2, late: true, time: prompt(20, idle), ..late() }
}

#[test]
fn a_late_attempt_leaves_nothing() {
    holds("two clients that wait on, a late command", Bounds { give_ups: false, ..late() });
}

#[test]
fn a_late_attempt_with_a_slow_server_leaves_nothing() {
    let faults = Faults { lags: 1, ..LATE };
    holds_to_depth("two clients, a late command, a slow server", Bounds { faults, alike: true, ..two() }, 17);
}

/// The wait for the end and its margin, and the lease, are 4 ticks: the lock is unused for no longer.
#[test]
fn prompt_clients_wait_for_no_longer_than_the_end_of_a_late_attempt() {
    holds("two clients, a late command, prompt", prompt_and_late(4));
    refuted(prompt_and_late(3), PROGRESS);
}

#[test]
fn a_clock_that_is_set_forward_costs_a_trip() {
    let faults = Faults { jumps: 1, ..Faults::NONE };
    holds("two clients, a clock that jumps, prompt", Bounds { faults, time: prompt(20, 0), ..two() });
}

#[test]
fn a_force_takes_no_later_hold() {
    holds("two clients, a force", Bounds { faults: FORCED, ..two() });
}

#[test]
fn a_force_beside_a_late_attempt() {
    let faults = Faults { forces: 1, ..LATE };
    holds_to_depth("two clients, a force, a late command", Bounds { faults, alike: true, ..two() }, 16);
}

#[test]
fn places_by_owner() {
    let bounds = Bounds { alike: true, ..other(Discipline::ByOwner, late()) };
    holds_to_depth("places by owner, two requests each, a late command", bounds, 22);
}

#[test]
fn plain_locks() {
    holds("plain, two requests each, a late command", other(Discipline::Plain, late()));
}

#[test]
fn an_ask_without_an_end() {
    refuted(wrong(Rules::NoEndOfAnAsk), RESIDUE);
}

#[test]
fn a_heartbeat_without_an_end() {
    refuted(wrong(Rules::NoEndOfAHeartbeat), RESIDUE);
}

#[test]
fn a_force_without_an_end() {
    refuted(Bounds { faults: FORCED, ..wrong(Rules::NoEndOfAForce) }, FORCE);
}

#[test]
fn an_end_by_a_clock_that_is_ahead() {
    refuted(wrong(Rules::EndIsAhead), RESIDUE);
    refuted(Bounds { faults: FORCED, ..wrong(Rules::EndIsAhead) }, FORCE);
}

#[test]
fn no_withdrawal_after_the_end() {
    refuted(wrong(Rules::NoWithdrawalAfterTheEnd), RESIDUE);
}

#[test]
fn a_withdrawal_without_a_margin_for_a_slow_server() {
    let faults = Faults { lags: 1, ..LATE };
    refuted(Bounds { faults, ..wrong(Rules::WithdrawalWithoutMargin) }, RESIDUE);
}

#[test]
fn an_end_that_is_judged_when_the_last_answer_comes() {
    refuted(wrong(Rules::EndJudgedByTheAnswer), RESIDUE);
}

#[test]
fn a_release_that_found_no_hold_and_settles_the_request() {
    refuted(wrong(Rules::AnyReleaseSettles), RESIDUE);
}

#[test]
fn news_of_another_grant_that_is_ignored() {
    refuted(Bounds { faults: Faults::NONE, ..wrong(Rules::NewsOfAnotherGrantIsIgnored) }, RESIDUE);
}

#[test]
fn a_refused_request_that_does_not_ask_again() {
    let faults = Faults { jumps: 1, ..Faults::NONE };
    let bounds =
        Bounds { faults, give_ups: false, time: prompt(12, 9), ..wrong(Rules::TooLateIsNotRepeated) };
    refuted(bounds, TURN);
}

#[test]
fn a_renewal_of_any_hold() {
    let faults = Faults { forces: 1, ..LATE };
    refuted(Bounds { faults, ..wrong(Rules::RenewalOfAnyHold) }, FORCE);
}

#[test]
fn a_late_plain_request_that_takes_over_its_owners_hold() {
    refuted(other(Discipline::Plain, wrong(Rules::LateRequestTakesOver)), VALIDITY);
}

#[test]
fn a_next_request_that_comes_before_the_withdrawal() {
    refuted(other(Discipline::ByOwner, wrong(Rules::NextRequestBeforeTheWithdrawal)), ORDER);
}

#[test]
fn an_owners_place_that_is_taken_for_the_requests() {
    refuted(other(Discipline::ByOwner, wrong(Rules::OwnersPlaceIsTheRequests)), ORDER);
}

#[test]
fn a_withdrawal_by_owner_without_an_end() {
    refuted(other(Discipline::ByOwner, wrong(Rules::NoEndOfAWithdrawal)), ORDER);
}

#[test]
fn an_unanswered_withdrawal_by_owner_that_is_forgotten() {
    refuted(other(Discipline::ByOwner, wrong(Rules::UnansweredWithdrawalIsForgotten)), ORDER);
}
