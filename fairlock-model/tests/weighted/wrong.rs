//! The wrong rules that were tried: the model refutes each, by the property that it breaks.

use fairlock_model::weighted::bounds::{Bounds, Faults};
use fairlock_model::weighted::properties::{ENDED, ORDER, OWN_END, PROGRESS, SETTLED, UNITS, USED, VALIDITY};
use fairlock_model::weighted::rules::Rules;

use super::{CRASH, CUT, DEAD_HOLDER, NONE, free, holds, in_parts, prompt, refuted, stay};

fn wrong(rules: Rules) -> Bounds {
    wrong_with(rules, NONE)
}

fn wrong_with(rules: Rules, faults: Faults) -> Bounds {
    Bounds { rules, ..free(faults) }
}

/// With prompt time, and the least time that the right rules keep.
fn late(rules: Rules, idle: u8, faults: Faults) -> Bounds {
    Bounds { rules, ..prompt(idle, faults) }
}

#[test]
fn a_smaller_one_that_passes_a_waiting_bigger_one() {
    refuted("a smaller one that passes", wrong(Rules::SmallerPasses), ORDER, 9);
}

#[test]
fn a_newcomer_that_is_granted_although_others_wait() {
    refuted("a newcomer that barges", wrong(Rules::NewcomerBarges), ORDER, 6);
}

#[test]
fn a_newcomer_that_is_granted_between_two_parts() {
    let bounds = in_parts(wrong(Rules::NewcomerBargesBetweenParts));
    let bounds = Bounds { takes: &[1, 1, 2, 1], ..bounds };
    refuted("a newcomer that barges between parts", bounds, ORDER, 10);
}

#[test]
fn capacity_that_is_checked_before_what_is_over_is_dropped() {
    let rules = Rules::CapacityBeforeEnds;
    refuted("capacity before ends", wrong(rules), SETTLED, 8);
    refuted("capacity before ends, prompt", late(rules, 0, DEAD_HOLDER), PROGRESS, 15);
}

#[test]
fn an_end_that_frees_nothing() {
    refuted("an end that frees nothing", wrong(Rules::EndFreesNothing), USED, 6);
}

#[test]
fn units_that_a_repeated_release_frees_twice() {
    refuted("units freed twice", wrong(Rules::FreedTwice), USED, 9);
    refuted("units freed twice", wrong(Rules::FreedTwice), UNITS, 13);
}

#[test]
fn an_own_hold_that_is_over_and_stays_beside_the_next() {
    refuted("an own ended hold that stays", in_parts(wrong(Rules::OwnEndedHoldStays)), USED, 9);
}

#[test]
fn a_repeat_that_is_granted_anew() {
    refuted("a repeat that is granted anew", wrong(Rules::RepeatIsGrantedAnew), USED, 6);
    refuted("a repeat that is granted anew", wrong(Rules::RepeatIsGrantedAnew), VALIDITY, 11);
}

#[test]
fn a_withdrawal_that_hands_on_nothing() {
    let rules = Rules::WithdrawalWithoutHandOn;
    refuted("a withdrawal without hand-on", wrong(rules), SETTLED, 9);
    let bounds = Bounds { give_ups: true, ..late(rules, 0, NONE) };
    refuted("a withdrawal without hand-on, prompt", bounds, PROGRESS, 13);
}

#[test]
fn a_hand_on_that_ends_after_one_grant() {
    refuted("one grant a script", wrong(Rules::OneGrantAScript), SETTLED, 9);
}

#[test]
fn a_blocking_head_that_is_never_parked() {
    refuted("a blocking head that is never parked", late(Rules::BlockerNeverParked, 7, CRASH), PROGRESS, 47);
}

#[test]
fn a_blocking_head_that_is_parked_when_its_subscription_blinks() {
    refuted("a deaf blocker parked at once", wrong_with(Rules::DeafBlockerParkedAtOnce, CUT), ORDER, 7);
}

#[test]
fn a_parked_waiter_that_takes_one_unit() {
    refuted("a parked waiter that takes one unit", wrong(Rules::ParkedTakesOne), UNITS, 16);
}

#[test]
fn a_grant_by_the_newcomers_capacity() {
    let bounds = Bounds { capacities: &[2, 2, 3], ..wrong(Rules::NewcomersCapacity) };
    refuted("a grant by the newcomer's capacity", bounds, UNITS, 6);
}

#[test]
fn a_loop_that_grants_by_the_capacity_of_each_place() {
    let bounds = Bounds {
        capacities: &[2, 2, 3, 3],
        takes: &[2, 2, 3, 1],
        ..stay(wrong_with(Rules::CapacityOfEachPlace, CUT))
    };
    refuted("a loop by the capacity of each place", bounds, USED, 16);
}

#[test]
fn a_hold_that_is_over_and_is_renewed() {
    refuted("an ended hold that is renewed", wrong(Rules::EndedIsRenewed), ENDED, 7);
}

#[test]
fn a_renewal_that_raises_all_ends() {
    refuted("a renewal of all holds", wrong(Rules::RenewalRaisesAll), OWN_END, 8);
    refuted("a renewal of all holds, prompt", late(Rules::RenewalRaisesAll, 0, DEAD_HOLDER), PROGRESS, 24);
}

#[test]
fn one_end_for_all_holds() {
    refuted("one end for all", wrong(Rules::OneEnd), OWN_END, 5);
    refuted("one end for all, prompt", late(Rules::OneEnd, 0, DEAD_HOLDER), PROGRESS, 21);
}

#[test]
fn ends_on_the_line_clock() {
    refuted("ends on the line clock", wrong(Rules::EndsOnTheLineClock), OWN_END, 4);
}

#[test]
fn a_look_at_the_last_end() {
    refuted("a look at the last end", late(Rules::LastEnd, 0, DEAD_HOLDER), PROGRESS, 24);
}

#[test]
fn ends_that_nobody_looks_at() {
    refuted("no look at ends", late(Rules::NoLookAtEnds, 0, DEAD_HOLDER), PROGRESS, 15);
}

#[test]
fn a_renewal_of_a_hold_that_drops_others_and_hands_on_nothing() {
    refuted("a renewal that drops others", wrong(Rules::RenewalDropsOthers), SETTLED, 9);
}

/// Not wrong: with it a dead place is found a moment earlier, at the cost of each renewal.
#[test]
fn a_renewal_of_a_hold_that_hands_on() {
    let rules = Rules::RenewalHandsOn;
    holds("weighted: renewals of holds hand on, a crash, prompt", late(rules, 6, CRASH));
}

/// Not a rule but a limit: the smallest one that holds.
#[test]
fn units_that_are_free_for_a_tick_less() {
    refuted("no more than a place", prompt(6, CRASH), PROGRESS, 54);
}
