//! How a caller stops waiting, and what it is told then.

use std::sync::Arc;

use super::scene::scenes;
use super::support::{World, ms};
use crate::backend::Wait;
use crate::claim::{CallerStep, Patience};
use crate::flow::{Waited, give_up};

scenes! {
    fn a_wait_that_is_over_leaves_the_line_and_is_not_granted() {
        BOTH "acquire says rank/0; a tries-for 1s is-busy 1s; asked acquire withdraw; waiting nobody"
    }

    fn a_wait_whose_asks_were_never_answered_is_an_error() {
        BOTH "acquire is-down; a tries-for 1s fails Unavailable 1s"
    }

    fn a_wait_whose_last_ask_failed_is_an_error_although_its_withdrawal_is_answered() {
        THREADS "acquire says rank/2/500ms; a tries-for 1s; acquire is-down; a fails Unavailable 1s
        a told planned: down; called acquire 3..99; called withdraw 1"
    }

    fn a_request_that_leaves_is_busy_if_others_have_the_lock() {
        THREADS "acquire says rank/2; a requests; a leaves is-busy 0s; asked acquire withdraw; waiting nobody"
    }

    fn a_request_that_leaves_takes_the_lock_that_it_was_granted() {
        THREADS "acquire says rank/0; withdraw says got/9; a requests; a leaves gets 9; a unlocks done
        b requests; b leaves gets 1001"
    }

    /// A wait that keeps the place goes on meanwhile, and is only not granted yet.
    fn a_request_that_leaves_is_an_error_if_its_last_ask_failed() {
        THREADS "acquire is-down; a requests; pass 1s; a waits-for 0s is-busy; a leaves fails Unavailable
        a told planned: down; called withdraw 1"
    }

    fn a_lock_that_was_granted_in_the_very_moment_goes_to_the_caller() {
        THREADS "acquire says rank/0; withdraw says got/9; a tries-for 1s gets 9 1s; called release 0; a unlocks done"
    }

    fn an_answer_that_is_late_is_not_waited_for_and_its_grant_is_released() {
        THREADS "acquire says rank/0; withdraw says got/9; withdraw takes 2s; a tries-for 1s is-busy 1050ms; pass 2s
        asked acquire withdraw release/9"
    }

    fn one_withdrawal_that_fails_is_repeated_while_the_caller_waits() {
        THREADS "acquire says rank/0; withdraw says down got/9; a tries-for 1s gets 9 1s"
    }

    fn a_caller_waits_for_no_withdrawal_that_is_repeated_after_a_pause() {
        THREADS "acquire says rank/0; withdraw is-down; a tries-for 1s fails Unavailable 1s; a told planned: down"
    }

    /// The first failure leads to no pause, so the first caller goes on waiting; the second one is another caller's.
    fn a_caller_whose_withdrawal_has_failed_is_told_when_the_pauses_begin() {
        THREADS "acquire says rank/0*2; a tries-for 1s; b tries-for 1005ms; withdraw is-down; withdraw takes 10ms*2
        a fails Unavailable 1020ms; b fails Unavailable 1020ms"
    }

    /// Those of other locks fail, and are repeated after pauses. That says nothing about this one. The caller looks before it
    /// is answered.
    fn a_caller_waits_for_its_own_withdrawal_while_others_pause() {
        THREADS "acquire says rank/0*2; other requests; other is-cut; other drops; pass 2s; withdraw says got/9
        a tries-for 1s; a takes 10ms; a gets 9 1010ms"
    }

    /// Without a watchdog no withdrawal is sent, and no heartbeat either.
    fn a_server_that_was_silent_for_two_heartbeats_is_an_error_and_a_shorter_silence_is_none() {
        UNWATCHED "acquire says rank/0; a tries-for 3200ms is-busy 3250ms"
        UNWATCHED "acquire says rank/0; a tries-for 3300ms fails Unavailable 3350ms
        a told no word of this request for 3350 ms"
    }

    fn a_caller_that_leaves_others_of_its_owner_behind_withdraws_nothing() {
        THREADS "acquire says rank/0; a locks; a' tries-for 1s is-busy 1s; asked acquire; a is-pushed 9; a gets 9
        a unlocks done"
    }

    fn a_lock_that_was_granted_to_a_cancelled_caller_is_released() {
        THREADS "a is cancellable; acquire says rank/0; withdraw says got/9; a locks; a is-cancelled
        a fails Cancelled; asked acquire withdraw release"
    }

    fn a_request_that_is_dropped_is_withdrawn_or_released() {
        THREADS "acquire says rank/0; a requests; a drops; asked acquire withdraw; b requests; b drops
        asked acquire release; held nobody; waiting nobody"
    }

    fn a_wait_for_a_plain_lock_that_is_over_is_withdrawn_as_well() {
        THREADS "a is plain; acquire says busy; a tries-for 1s is-busy 1s; asked acquire withdraw"
    }
}

#[test]
fn a_caller_that_only_looked_does_not_wait_for_the_answer_to_its_withdrawal() {
    let world = World::without_watchdog();
    let request = world.in_line("looked");
    let claim = world.claim("looked");
    let patience = Patience { wait: Wait::No, deadline: None, cancel: None, keeps_place: false };
    let CallerStep::GiveUp(step) = claim.caller_step(&patience, world.clock.now()) else {
        panic!("it only looks")
    };
    let shared = Arc::clone(&world.shared);
    let (waited, took) = world.run(move || give_up(&shared.ledger, &shared.chores, &claim, &patience, step));
    assert!(matches!(waited, Ok(Waited::NotGranted)) && took == ms(0), "{took:?}");
    drop(request);
}
