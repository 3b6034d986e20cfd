//! The rules of PROTOCOL.md hold: every state within the bounds was looked at.
#![allow(missing_docs, reason = "tests")]

mod support;

use fairlock_model::bounds::{Bounds, Evils, Time};
use support::{holds, holds_to_depth, prompt, two};

/// One evil of each kind.
const EVILS: Evils = Evils { crashes: 1, time_outs: 1, duplicates: 0, cuts: 1, lost_pushes: 0, drifts: 0 };

#[test]
fn two_clients_with_one_evil_of_each_kind() {
    holds("two clients, a crash, a lost answer or late command, a cut", Bounds { evils: EVILS, ..two() });
}

#[test]
fn two_clients_whose_watchdogs_speak_while_they_ask() {
    holds("two clients, two calls at a time", Bounds { both_calls: true, ..two() });
}

#[test]
fn two_clients_that_ask_twice() {
    holds("two clients, two requests each", Bounds { requests: 2, give_ups: false, ..two() });
}

#[test]
fn two_clients_whose_commands_are_carried_out_twice() {
    let evils = Evils { duplicates: 1, ..Evils::NONE };
    holds("two clients, a command carried out twice", Bounds { evils, ..two() });
}

#[test]
fn two_clients_whose_clocks_are_slow() {
    let evils = Evils { drifts: 1, crashes: 1, ..Evils::NONE };
    holds("two clients, a clock that drifts by the margin", Bounds { evils, ..two() });
}

#[test]
fn two_clients_that_are_never_late_get_their_turns() {
    let evils = Evils { lost_pushes: 1, ..EVILS };
    let time = prompt(30, 6);
    holds("two clients, two requests each, nobody late", Bounds { requests: 2, evils, time, ..two() });
}

#[test]
fn three_clients_that_are_never_late_get_their_turns() {
    let evils = Evils { lost_pushes: 1, crashes: 1, ..Evils::NONE };
    let bounds = Bounds { clients: 3, give_ups: false, evils, time: prompt(20, 3), ..two() };
    holds("three clients, nobody late", bounds);
}

#[test]
fn three_clients_to_a_depth() {
    let bounds = Bounds { clients: 3, evils: EVILS, time: Time::Free, ..two() };
    holds_to_depth("three clients, one evil of each kind", Bounds { alike: true, ..bounds }, 12);
}
