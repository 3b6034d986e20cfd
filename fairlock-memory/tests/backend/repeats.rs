//! Repeats after lost replies, and withdrawals that meet a grant: each request does the same only once.

use fairlock_core::backend::BackendErrorKind::Unavailable;
use fairlock_memory::Operation;

use crate::story::*;

/// A repeated acquire of the holder is granted with the same token and the rest of the lease.
#[test]
fn a_repeated_acquire_keeps_the_token_and_the_lease() {
    let s = fair().lose_reply(Operation::Acquire).a().ask().fails(Unavailable).pass(10 * S);
    s.a().gets().lasting(20 * S).has(20 * S, 1).keeps().lasting(20 * S);
}

#[test]
fn a_repeated_acquire_of_a_waiter_keeps_its_one_place() {
    let s = fair().a().gets().lose_reply(Operation::Acquire).b().ask().fails(Unavailable);
    s.c().waits(1).b().waits(0).queue(&[B, C]);
}

#[test]
fn a_repeated_release_takes_nothing_from_the_next_holder() {
    let s = fair().a().gets().b().waits(0).lose_reply(Operation::Release);
    s.a().release().fails(Unavailable).b().hears().a().release().gone().b().has(5 * S, 1);
}

#[test]
fn a_late_release_does_not_end_the_next_hold_of_the_same_owner() {
    fair().a().gets().releases().a2().gets().a().release().gone().a2().has(30 * S, 1);
}

#[test]
fn a_repeated_release_removes_the_place_of_a_late_acquire() {
    let s = fair().a().gets().releases().b().gets().a().waits(0); // its first attempt arrives
    s.c().waits(1).a().release().gone().queue(&[C]);
}

/// A repeated renewal of a place that became a hold says so with the same token.
#[test]
fn a_repeated_heartbeat_tells_of_the_grant_again() {
    let s = fair().a().gets().b().waits(0).lose_message().a().releases();
    s.b().beat_once().gets().lasting(5 * S).beat_once().keeps().lasting(5 * S).keeps();
}

#[test]
fn a_withdrawal_leaves_no_trace_and_can_be_repeated() {
    let s = fair().a().gets().b().waits(0).c().waits(1).lose_reply(Operation::Withdraw);
    s.b().leave().fails(Unavailable).leaves().queue(&[C]).a().releases().c().hears();
}

/// A withdrawal that meets a grant says so and the hold can be released.
#[test]
fn a_withdrawal_that_meets_a_grant_says_so() {
    let s = fair().a().gets().b().waits(0).c().waits(1).a().releases().b().hears();
    s.b().leave().holding().lasting(5 * S).leave().holding().lasting(5 * S).releases().c().hears();
}

#[test]
fn a_withdrawal_never_makes_the_leaving_request_the_holder() {
    fair().a().gets().b().waits(0).c().waits(1).lose_hold().b().leaves().c().hears();
}

/// A place that was granted and expired is lost for its old request.
#[test]
fn a_place_that_was_granted_and_expired_is_lost() {
    let s = fair().a().gets().b().waits(0).a().releases().b().hears().pass(5 * S).b().renew(1).gone();
    s.b().beat_once().gone().release().gone().gets();
}

/// Or a waiter that is silent because its process stands still would lose its turn.
#[test]
fn a_release_that_changes_nothing_is_no_heartbeat_of_the_queue() {
    let s = fair().a().gets().b().waits(0);
    (0..3).for_each(|_| _ = s.pass(2 * S).z().naming(A).release().gone());
    s.a().releases().b().hears();
}
