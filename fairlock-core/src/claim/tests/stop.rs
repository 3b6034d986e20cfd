//! After the client's stop, by a drain or a shutdown, no claim becomes a hold, whichever way the grant comes.

use super::*;
use crate::stop::Stop;

const STOPS: [fn(&Stop); 2] = [Stop::close, |stop| _ = stop.stop()];

/// No hold comes of the grant in this story, in which both ways to stop stand for STOP. The server has to be told, once.
#[track_caller]
fn assert_not_held(story: &str) {
    for stop in ["stop", "close"] {
        Case::after(&story.replace("STOP", stop))
            .tell("count 0; token None; shutdown Withdraw; caller is-shut-down; open yes; shutdown None");
    }
}

#[test]
fn a_push_is_not_believed_after_the_stop() {
    assert_not_held("caller asks; answer rank/1; STOP; push no");
}

#[test]
fn an_answer_is_not_believed_after_the_stop() {
    assert_not_held("caller asks; answer rank/1; STOP; answer got/7 Nothing");
}

/// It was kept for the answer.
#[test]
fn a_push_that_overtook_an_answer_is_not_believed_after_the_stop() {
    assert_not_held("caller asks; push no; STOP; answer rank/1 Nothing");
}

#[test]
fn a_grant_that_a_renewal_finds_is_not_believed_after_the_stop() {
    assert_not_held("caller asks; answer rank/1; STOP; beat got/7 Nothing");
}

stories! {
    fn a_grant_that_a_withdrawal_finds_is_released_after_the_stop() {
        "waits 1s; caller asks; answer rank/1; at 1s; caller gives-up Withdraw; stop; late-grant no; leaving-token 7"
        "waits 1s; caller asks; answer rank/1; at 1s; caller gives-up Withdraw; close; late-grant no; leaving-token 7"
    }

    fn a_claim_that_was_never_asked_leaves_nothing_at_the_stop() {
        "shutdown Nothing; open no"
    }

    /// A drain: its callers take it, its owner re-enters it, the watchdog renews it, and the last unlock releases it. It is open
    /// until the server knows.
    fn a_hold_goes_on_when_the_client_is_closed() {
        "caller asks; answer got/7; close; shutdown None; open yes; caller takes 7 1; join Held 2; at 10s; beat done; at 30s
        count 2; unlock StillHeld 1; unlock Last; open yes; retire; open no"
    }
}

/// The grant comes before the stop, between it and the failing of the claim, or after both.
#[test]
fn a_claim_is_a_hold_only_if_its_grant_came_before_the_stop() {
    let grants: [fn(&Case); 3] = [
        |case| _ = case.push(NOW),
        |case| _ = case.granted(NOW),
        |case| _ = case.renewed(NOW, Renewal::Granted { token: TOKEN, lease: LEASE }),
    ];
    for (stop, grant) in STOPS.into_iter().flat_map(|stop| grants.map(|grant| (stop, grant))) {
        for moment in 0..3 {
            let case = Case::after("caller asks; answer rank/1");
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
