//! How a caller stops waiting, and what it is told then.

use std::sync::Arc;

use super::scene::*;
use super::support::{World, ms};
use crate::backend::{Condition, Wait};
use crate::claim::{CallerStep, Patience};
use crate::flow::WaitOutcome;

#[test]
fn a_wait_that_is_over_leaves_the_queue_and_is_not_granted() {
    both(|s| {
        s.acquire().says(rank(0)).a().tries_for(S).is_busy().after(S).asked([ACQUIRE, WITHDRAW]).waiting(&[]);
    });
}

#[test]
fn a_wait_whose_asks_were_never_answered_is_an_error() {
    both(|s| s.acquire().is_down().a().tries_for(S).fails(Unavailable).after(S));
}

/// A wait whose last ask failed is an error although its withdrawal is answered.
#[test]
fn a_wait_whose_last_ask_failed_is_an_error() {
    let s = threads().acquire().says(rank(2).time(ms(500))).a().tries_for(S).acquire().is_down();
    s.a().fails(Unavailable).after(S).told("planned: down").called(ACQUIRE, 3..=99).called(WITHDRAW, 1);
}

#[test]
fn a_request_that_leaves_is_busy_if_others_have_the_lock() {
    let s = threads().acquire().says(rank(2)).a().requests().leaves().is_busy().after(ms(0));
    s.asked([ACQUIRE, WITHDRAW]).waiting(&[]);
}

#[test]
fn a_request_that_leaves_takes_the_lock_that_it_was_granted() {
    let s = threads().acquire().says(rank(0)).withdraw().says(got(9)).a().requests().leaves().gets(9);
    s.a().unlocks().done().b().requests().leaves().gets(1001);
}

/// A wait that keeps the place goes on meanwhile, and is only not granted yet.
#[test]
fn a_request_that_leaves_is_an_error_if_its_last_ask_failed() {
    let s = threads().acquire().is_down().a().requests().pass(S).a().waits_for(ms(0)).is_busy();
    s.a().leaves().fails(Unavailable).told("planned: down").called(WITHDRAW, 1);
}

/// A lock that was granted in the very moment goes to the caller.
#[test]
fn a_lock_granted_in_the_very_moment_goes_to_the_caller() {
    let s = threads().acquire().says(rank(0)).withdraw().says(got(9)).a().tries_for(S).gets(9).after(S);
    s.called(RELEASE, 0).a().unlocks().done();
}

/// An answer that is late is not waited for and its grant is released.
#[test]
fn a_late_answer_is_not_waited_for() {
    let s = threads().acquire().says(rank(0)).withdraw().says(got(9)).withdraw().takes(2 * S);
    s.a().tries_for(S).is_busy().after(ms(1050)).pass(2 * S).asked([ACQUIRE, WITHDRAW, RELEASE.of(9)]);
}

#[test]
fn one_withdrawal_that_fails_is_repeated_while_the_caller_waits() {
    let s = threads().acquire().says(rank(0)).withdraw().says([DOWN, got(9)]);
    s.a().tries_for(S).gets(9).after(S);
}

/// A caller waits for no withdrawal that is repeated after a pause.
#[test]
fn a_caller_waits_for_no_paused_withdrawal() {
    let s = threads().acquire().says(rank(0)).withdraw().is_down();
    s.a().tries_for(S).fails(Unavailable).after(S).told("planned: down");
}

/// A caller whose withdrawal has failed is told when the pauses begin. The first failure leads to no pause, so the first caller
/// goes on waiting; the second one is another caller's.
#[test]
fn a_failed_withdrawal_is_told_when_the_pauses_begin() {
    let s = threads().acquire().says(rank(0).times(2)).a().tries_for(S).b().tries_for(ms(1005));
    s.withdraw().is_down().withdraw().takes_each(ms(10), 2).a().fails(Unavailable).after(ms(1020));
    s.b().fails(Unavailable).after(ms(1020));
}

/// Those of other locks fail, and are repeated after pauses. That says nothing about this one. The caller looks before it
/// is answered.
#[test]
fn a_caller_waits_for_its_own_withdrawal_while_others_pause() {
    let s = threads().acquire().says(rank(0).times(2)).by("other").requests().is_cut().drops().pass(2 * S);
    s.withdraw().says(got(9)).a().tries_for(S).takes(ms(10)).gets(9).after(ms(1010));
}

/// A server that was silent for two heartbeats is an error and a shorter silence is none. Without a watchdog no withdrawal is
/// sent, and no heartbeat either.
#[test]
fn a_silence_of_two_heartbeats_is_an_error() {
    unwatched().acquire().says(rank(0)).a().tries_for(ms(3200)).is_busy().after(ms(3250));
    let s = unwatched().acquire().says(rank(0)).a().tries_for(ms(3300)).fails(Unavailable).after(ms(3350));
    s.a().told("no word of this request for 3350 ms");
}

/// A caller that leaves others of its owner behind withdraws nothing.
#[test]
fn a_caller_that_leaves_others_behind_withdraws_nothing() {
    let s = threads().acquire().says(rank(0)).a().locks().a2().tries_for(S).is_busy().after(S).asked(ACQUIRE);
    s.a().is_pushed(9).gets(9).unlocks().done();
}

#[test]
fn a_lock_that_was_granted_to_a_cancelled_caller_is_released() {
    let s = threads().a().cancellable().acquire().says(rank(0)).withdraw().says(got(9)).a().locks();
    s.a().is_cancelled().fails(Cancelled).asked([ACQUIRE, WITHDRAW, RELEASE]);
}

#[test]
fn a_request_that_is_dropped_is_withdrawn_or_released() {
    let s = threads().acquire().says(rank(0)).a().requests().drops().asked([ACQUIRE, WITHDRAW]);
    s.b().requests().drops().asked([ACQUIRE, RELEASE]).held(&[]).waiting(&[]);
}

#[test]
fn a_wait_for_a_plain_lock_that_is_over_is_withdrawn_as_well() {
    let s = threads().a().plain().acquire().says(BUSY).a().tries_for(S).is_busy().after(S);
    s.asked([ACQUIRE, WITHDRAW]);
}

/// A caller that only looked does not wait for the answer to its withdrawal.
#[test]
fn a_caller_that_only_looked_waits_for_no_withdrawal() {
    let world = World::without_watchdog();
    let request = world.in_queue("looked");
    let claim = world.claim("looked");
    let condition = Condition::default();
    let patience = Patience { wait: Wait::No, deadline: None, cancel: None, condition, keeps_place: false };
    let CallerStep::GiveUp(step) = claim.caller_step(&patience, world.clock.now()) else {
        panic!("it only looks")
    };
    let shared = Arc::clone(&world.shared);
    let (waited, took) = world.run(move || shared.parts().give_up_request(&claim, &patience, step));
    assert!(matches!(waited, Ok(WaitOutcome::NotGranted)) && took == ms(0), "{took:?}");
    drop(request);
}
