//! Callers that leave without the lock.

use super::*;

stories! {
    /// The withdrawal finds the grant, which the caller takes while it waits for that answer.
    fn a_caller_that_leaves_believes_nothing_any_more() {
        "waits 1s; caller asks; answer rank/1; at 1s; caller gives-up Withdraw; push no; beat got/7 Nothing
        late-grant yes; count 1"
    }

    fn a_grant_that_no_caller_waits_for_is_released() {
        "waits 1s; caller asks; answer rank/1; at 1s; caller gives-up; decline yes; late-grant no; leaving-token 7"
    }

    fn a_caller_that_leaves_does_not_take_the_place_of_the_others() {
        "join; caller asks; answer rank/1; patience 1s; at 1s; caller gives-up OthersWait; patience ever; caller sleeps"
    }

    fn an_answer_after_all_callers_left_is_late() {
        "caller asks; shutdown Withdraw; answer rank/1 Late; retire; answer got/7 Late"
    }

    fn attempts_to_leave_are_counted_from_the_withdrawal_on() {
        "waits 1s; caller asks; answer down; at 1s; caller gives-up; leaves 0 planned: down"
    }
}

#[test]
fn a_request_that_is_withdrawn_once_more_is_the_same_request() {
    let claim = Case::new().claim;
    let more = claim.once_more(Instant::now());
    assert_eq!((more.request, &more.owner, &more.lock), (claim.request, &claim.owner, &claim.lock));
    assert!(more.leaving().is_some() && more.leaving_token().is_none());
}
