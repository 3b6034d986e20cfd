//! The right rules hold in every state within the limits. `.ci/run` checks those whose names end in `a_weighted_line`.

use fairlock_model::weighted::bounds::{Bounds, Faults};

use super::{CRASH, CUT, DEAD_HOLDER, NONE, TIME_OUT, free, holds, holds_to_depth, in_parts, prompt, stay};

const LOST_PUSH: Faults = Faults { lost_pushes: 1, ..NONE };

#[test]
fn three_clients_in_a_weighted_line() {
    holds("weighted: three clients", free(NONE));
}

#[test]
fn a_holder_that_dies_in_a_weighted_line() {
    let faults = Faults { lost_pushes: 1, ..DEAD_HOLDER };
    holds("weighted: a holder dies, a lost push, prompt", prompt(0, faults));
}

#[test]
fn a_waiter_that_dies_in_a_weighted_line() {
    holds("weighted: a crash, prompt", prompt(7, CRASH));
}

#[test]
fn a_crash() {
    holds("weighted: a crash", free(CRASH));
}

#[test]
fn an_unanswered_call() {
    holds("weighted: clients that wait on, a lost answer or late command", stay(free(TIME_OUT)));
}

#[test]
fn a_cut() {
    holds("weighted: clients that wait on, a cut", stay(free(CUT)));
}

#[test]
fn a_command_executed_twice() {
    let faults = Faults { duplicates: 1, ..NONE };
    holds("weighted: clients that wait on, a command executed twice", stay(free(faults)));
}

#[test]
fn a_crash_and_an_unanswered_call() {
    let faults = Faults { time_outs: 1, ..CRASH };
    let bounds = Bounds { takes: &[1, 2], ..free(faults) };
    holds("weighted: two clients, a crash, a lost answer or late command", bounds);
}

#[test]
fn two_requests_each() {
    let bounds = Bounds { takes: &[1, 2], requests: 2, ..free(TIME_OUT) };
    holds("weighted: two clients, two requests each, a lost answer or late command", bounds);
}

#[test]
fn three_clients_two_requests() {
    let bounds = Bounds { requests: 2, ..stay(free(NONE)) };
    holds("weighted: two requests each", bounds);
}

#[test]
fn scripts_that_grant_and_drop_one_at_a_time() {
    holds("weighted: in parts", in_parts(free(NONE)));
}

#[test]
fn other_units() {
    holds(
        "weighted: capacity 3, for 2, 2 and 1 units",
        Bounds { capacities: &[3; 3], takes: &[2, 2, 1], ..free(NONE) },
    );
    holds(
        "weighted: capacity 3, for 1, 1 and 3 units",
        Bounds { capacities: &[3; 3], takes: &[1, 1, 3], ..free(NONE) },
    );
}

#[test]
fn other_capacities() {
    let bounds = Bounds { capacities: &[2, 2, 3], takes: &[2, 2, 3], ..free(NONE) };
    holds("weighted: clients that say capacity 2, 2 and 3, for all units", bounds);
    let bounds = Bounds { capacities: &[2, 2, 3, 3], takes: &[2, 2, 3, 1], ..stay(free(CUT)) };
    holds_to_depth("weighted: clients that say capacity 2, 2, 3 and 3, a cut", bounds, 16);
}

#[test]
fn four_clients_to_a_depth() {
    let faults = Faults { time_outs: 1, ..CRASH };
    holds_to_depth("weighted: four clients", Bounds { takes: &[1, 1, 2, 1], ..free(faults) }, 10);
}

#[test]
fn prompt_clients_that_give_up() {
    let faults = Faults { time_outs: 1, ..LOST_PUSH };
    let bounds = Bounds { give_ups: true, ..prompt(0, faults) };
    holds("weighted: a lost call, a lost push, prompt", bounds);
}

#[test]
fn prompt_clients_with_a_crash_and_a_lost_push() {
    let faults = Faults { lost_pushes: 1, ..CRASH };
    holds("weighted: a crash, a lost push, prompt", prompt(7, faults));
}

#[test]
fn prompt_clients_with_a_cut() {
    holds("weighted: a cut, prompt", prompt(4, CUT));
}

/// The waiter that should go on may not have heard of it: it does with its next heartbeat.
#[test]
fn prompt_clients_in_parts() {
    let faults = Faults { lost_pushes: 1, ..DEAD_HOLDER };
    holds("weighted: in parts, a holder dies, a lost push, prompt", in_parts(prompt(2, faults)));
}
