//! After the client's stop, by a drain or a shutdown, no claim becomes a hold, whichever way the grant comes.

use super::*;
use crate::config::Stop;

const STOPS: [fn(&Stop); 2] = [Stop::close, |stop| _ = stop.stop()];

/// No hold comes of the grant in this story, whichever way the client stops. The server has to be told, once.
#[track_caller]
fn assert_not_held(story: impl Fn(fn(Case) -> Case) -> Case) {
    for stop in [Case::stop, Case::close] {
        let c = story(stop).count(0).token().none().shutdown().is(Some(AfterGivingUp::Withdraw));
        c.caller().is_shut_down().is_open().yes().shutdown().none();
    }
}

#[test]
fn a_push_is_not_believed_after_the_stop() {
    assert_not_held(|stop| stop(in_queue()).push().no());
}

#[test]
fn an_answer_is_not_believed_after_the_stop() {
    assert_not_held(|stop| stop(in_queue()).answer(got(7)).is(AfterAnswer::Nothing));
}

/// A push that overtook an answer is not believed after the stop. It was kept for the answer.
#[test]
fn an_early_push_is_not_believed_after_the_stop() {
    assert_not_held(|stop| {
        stop(claim().caller().asks().push().no()).answer(rank(1)).is(AfterAnswer::Nothing)
    });
}

#[test]
fn a_grant_that_a_renewal_finds_is_not_believed_after_the_stop() {
    assert_not_held(|stop| stop(in_queue()).beat(got(7)).is(AfterRenewal::Nothing));
}

#[test]
fn a_grant_that_a_withdrawal_finds_is_released_after_the_stop() {
    let c = claim().tries_for(S).caller().asks().answer(rank(1)).at(S);
    let c = c.caller().gives_up_with(AfterGivingUp::Withdraw).stop().late_grant().no();
    c.leaving_token().is(Some(TOKEN));
    let c = claim().tries_for(S).caller().asks().answer(rank(1)).at(S);
    let c = c.caller().gives_up_with(AfterGivingUp::Withdraw).close().late_grant().no();
    c.leaving_token().is(Some(TOKEN));
}

#[test]
fn a_claim_that_was_never_asked_leaves_nothing_at_the_stop() {
    claim().shutdown().is(Some(AfterGivingUp::Nothing)).is_open().no();
}

/// A drain: its callers take it, its owner re-enters it, the watchdog renews it, and the last unlock releases it. It is open
/// until the server knows.
#[test]
fn a_hold_goes_on_when_the_client_is_closed() {
    let c = held().close().shutdown().none().is_open().yes().caller().gets(7);
    let c = c.join().is(Joined::Held { token: TOKEN }).at(10 * S).beat(DONE).at(30 * S).count(2);
    c.unlock().still_held(1).unlock().last().is_open().yes().retire().is_open().no();
}

/// The grant comes before the stop, between it and the failing of the claim, or after both.
#[test]
fn a_claim_is_a_hold_only_if_its_grant_came_before_the_stop() {
    let grants: [fn(&Case); 3] = [
        |case| _ = case.push_at(NOW),
        |case| _ = case.granted(NOW),
        |case| _ = case.renewed(NOW, Renewal::Granted { token: TOKEN, lease: LEASE }),
    ];
    for (stop, grant) in STOPS.into_iter().flat_map(|stop| grants.map(|grant| (stop, grant))) {
        for moment in 0..3 {
            let case = in_queue();
            let grant_at = |now: i32| {
                if now == moment {
                    grant(&case)
                }
            };
            grant_at(0);
            stop(&case.claim.config.stop);
            grant_at(1);
            let failed = case.claim.fail_for_shutdown();
            grant_at(2);
            let holds = moment == 0;
            assert_eq!(
                (failed.is_none(), case.claim.hold_count(case.start) == 1),
                (holds, holds),
                "{moment}"
            );
        }
    }
}
