//! The right rules hold in every state within the limits.
#![allow(missing_docs, reason = "tests")]

mod support;

use fairlock_model::bounds::{Bounds, Faults, Time};
use support::{holds, holds_to_depth, prompt, two};

/// One fault of each kind.
const FAULTS: Faults = Faults { crashes: 1, time_outs: 1, cuts: 1, ..Faults::NONE };

#[test]
fn two_clients_with_a_crash_and_a_late_command() {
    let faults = Faults { cuts: 0, ..FAULTS };
    holds("two clients, a crash, a lost answer or late command", Bounds { faults, ..two() });
}

#[test]
fn two_clients_with_a_crash_and_a_cut() {
    let faults = Faults { time_outs: 0, ..FAULTS };
    holds("two clients, a crash, a cut", Bounds { faults, ..two() });
}

#[test]
fn two_clients_with_a_late_command_and_a_cut() {
    let faults = Faults { crashes: 0, ..FAULTS };
    let bounds = Bounds { faults, give_ups: false, ..two() };
    holds("two clients that wait on, a lost answer or late command, a cut", bounds);
}

#[test]
fn two_clients_whose_watchdogs_call_while_they_ask() {
    holds("two clients, two calls at a time", Bounds { both_calls: true, ..two() });
}

#[test]
fn two_clients_that_ask_twice() {
    holds("two clients, two requests each", Bounds { requests: 2, give_ups: false, ..two() });
}

#[test]
fn two_clients_whose_commands_are_executed_twice() {
    let faults = Faults { duplicates: 1, ..Faults::NONE };
    holds("two clients, a command executed twice", Bounds { faults, ..two() });
}

#[test]
fn two_clients_whose_clocks_are_slow() {
    let faults = Faults { drifts: 1, crashes: 1, ..Faults::NONE };
    holds("two clients, a clock that drifts by the margin", Bounds { faults, ..two() });
}

#[test]
fn two_clients_whose_line_is_lost() {
    let faults = Faults { lost_lines: 1, ..Faults::NONE };
    holds("two clients, a lost line", Bounds { faults, ..two() });
}

#[test]
fn two_prompt_clients_get_their_turns() {
    let faults = Faults { lost_pushes: 1, ..FAULTS };
    let time = prompt(30, 6);
    holds("two clients, two requests each, prompt", Bounds { requests: 2, faults, time, ..two() });
}

#[test]
fn three_prompt_clients_get_their_turns() {
    let faults = Faults { lost_pushes: 1, crashes: 1, ..Faults::NONE };
    let bounds = Bounds { clients: 3, give_ups: false, faults, time: prompt(20, 3), ..two() };
    holds("three clients, prompt", bounds);
}

#[test]
fn three_prompt_clients_whose_line_is_lost_stay_in_order() {
    let faults = Faults { lost_lines: 1, ..Faults::NONE };
    let bounds = Bounds { clients: 3, give_ups: false, faults, time: prompt(16, 3), ..two() };
    holds("three clients, a lost line, prompt", bounds);
}

#[test]
fn three_clients_to_a_depth() {
    let bounds = Bounds { clients: 3, faults: FAULTS, time: Time::Free, ..two() };
    holds_to_depth("three clients, one fault of each kind", Bounds { alike: true, ..bounds }, 12);
}
