//! Callers that leave without the lock.

use super::*;

/// The withdrawal finds the grant, which the caller takes while it waits for that answer.
#[test]
fn a_caller_that_leaves_believes_nothing_any_more() {
    let c = claim().tries_for(S).caller().asks().answer(rank(1)).at(S);
    let c = c.caller().gives_up_with(AfterGivingUp::Withdraw).push().no();
    c.beat(got(7)).is(AfterRenewal::Nothing).late_grant().yes().count(1);
}

#[test]
fn a_grant_that_no_caller_waits_for_is_released() {
    let c = claim().tries_for(S).caller().asks().answer(rank(1)).at(S).caller().gives_up().decline().yes();
    c.late_grant().no().leaving_token().is(Some(TOKEN));
}

#[test]
fn a_caller_that_leaves_does_not_take_the_place_of_the_others() {
    let c = claim().join().caller().asks().answer(rank(1)).patience(Wait::UpTo(S)).at(S);
    c.caller().gives_up_with(AfterGivingUp::OthersWait).patience(Wait::Forever).caller().waits();
}

#[test]
fn an_answer_after_all_callers_left_is_late() {
    let c = claim().caller().asks().shutdown().is(Some(AfterGivingUp::Withdraw));
    c.answer(rank(1)).is(AfterAnswer::Late).retire().answer(got(7)).is(AfterAnswer::Late);
}

#[test]
fn attempts_to_leave_are_counted_from_the_withdrawal_on() {
    let c = claim().tries_for(S).caller().asks().answer(DOWN).at(S).caller().gives_up();
    c.leaving().is(Some((0, Some("planned: down"))));
}

#[test]
fn a_request_that_is_withdrawn_once_more_is_the_same_request() {
    let claim = Case::new().claim;
    let more = claim.once_more(Instant::now());
    assert_eq!((more.request, &more.owner, &more.lock), (claim.request, &claim.owner, &claim.lock));
    assert!(more.leaving().is_some() && more.leaving_token().is_none());
}
