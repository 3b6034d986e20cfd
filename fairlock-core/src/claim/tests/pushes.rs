//! Pushed grants, and the answers and heartbeats that they cross.

use super::*;

/// Valid from the time when the ask was sent, for the life of the place.
#[test]
fn a_push_that_overtakes_the_answer_waits_for_it() {
    let c = claim().caller().asks().at(S).push().no().at(ms(0));
    c.answer(rank(1)).is(AfterAnswer::Granted(GrantedBy::WakeUp)).until(ms(4948));
}

#[test]
fn a_late_answer_does_not_undo_a_push() {
    let c = in_queue().wake().at(S).caller().asks().push().yes().answer(rank(1)).is(AfterAnswer::Nothing);
    c.caller().gets(7);
}

/// The server is asked instead.
#[test]
fn a_push_is_not_believed_past_the_place_it_was_for() {
    in_queue().at(5 * S).push().no().caller().asks();
}

/// A grant that is over is not believed because its push comes later. The process stood still until its grant was nearly over. It
/// hears that from a heartbeat, and only then hears the push.
#[test]
fn a_grant_that_is_over_is_not_believed_by_its_push() {
    in_queue().at(5 * S).beat(got(7).time(ms(2))).is(AfterRenewal::Nothing).push().no().count(0);
}

#[test]
fn heartbeats_move_the_time_from_which_a_push_counts() {
    in_queue().at(4 * S).beat(rank(0)).at(6 * S).push().yes().until(ms(8948));
}

/// A heartbeat's answer that a push has overtaken changes nothing. No renewal is hurried by it.
#[test]
fn a_heartbeat_that_a_push_has_overtaken_changes_nothing() {
    let c = in_queue().at(S).push().yes().due(ms(1100)).beat(rank(0)).is(AfterRenewal::Nothing).due(ms(1100));
    c.beat(got(7)).is(AfterRenewal::Nothing).due(ms(1100));
}

/// A grant that was taken away before its answer came is not believed. An operator takes the hold while the answer that tells of
/// the grant is on its way. The message counts once: a forged one can't keep a claim from its grant.
#[test]
fn a_grant_taken_before_its_answer_is_not_believed() {
    let c = claim().caller().asks().taken().yes().answer(got(7)).is(AfterAnswer::Nothing).token().none();
    c.caller().asks().answer(got(7)).is(AfterAnswer::Granted(GrantedBy::WakeUp)).taken().no();
}

/// An error would say that the lease is too short.
#[test]
fn a_grant_that_was_taken_away_is_no_error() {
    let c = claim().tries_for(S).caller().asks().taken().yes().answer(got(7)).is(AfterAnswer::Nothing).at(S);
    c.caller().gives_up_with(AfterGivingUp::Withdraw).quietly();
}

#[test]
fn a_push_grants_no_more_than_the_lease_that_was_asked_for() {
    claim().fixed(2 * S).caller().asks().answer(rank(1)).at(S).push().yes().until(ms(1978));
}
