//! What the watchdog does first, and what it leaves to callers.

use super::*;

stories! {
    fn nothing_is_due_for_a_request_whose_ask_is_under_way() {
        "caller asks; leave none; at 20s; dog waits ever; asking yes; may-make-a-place yes"
    }

    /// A heartbeat has failed, so there is an error; but the answer to an ask may come any moment.
    fn a_request_does_not_fail_while_an_ask_is_under_way() {
        "caller asks; answer rank/1; at 2s; beat down; leave; begin-to-ask yes; pauses renewals 60s; at 10s; dog waits"
    }

    fn a_request_on_which_a_caller_waits_is_given_up_by_that_caller() {
        "caller asks; answer rank/1; at 2s; beat down; pauses renewals 60s; at 10s; dog waits; leave; dog gives-up"
    }

    /// An ask renews the place as well. A place goes with others a little earlier, and after a third of its time it can't wait.
    fn an_ask_that_is_due_goes_before_a_renewal_that_can_wait() {
        "caller asks; answer rank/1; leave; at 1665ms; dog renews-place; renewal-over; wake; dog asks; at 1666666666ns
        dog renews-place"
    }

    fn a_renewal_under_way_does_not_keep_the_watchdog_from_asking() {
        "caller asks; answer rank/1; leave; at 1666666666ns; dog renews-place 30s; wake; dog asks"
    }

    fn only_what_waits_is_asked_for() {
        "caller asks; answer rank/1; begin-to-ask yes; at 1s; answer rank/1; push yes; begin-to-ask no"
    }

    fn a_failed_ask_counts_until_the_next_answer() {
        "last-ask-failed no; caller asks; answer down; last-ask-failed yes; caller asks; answer rank/1; last-ask-failed no"
    }

    fn a_refusal_is_no_reason_to_ask_again() {
        "caller asks; answer denied Withdraw; caller fails; leaves 1 planned: denied"
    }

    /// By an ask alone, too.
    fn an_outage_concerns_what_was_not_answered_since_it_began() {
        "caller asks; answer rank/1; concerned never None; concerned 0s None; concerned 1s Waits; at 1s; beat down
        concerned never Waits; concerned 0s Waits; beat rank/0/1; concerned never None; concerned 1s None; wake
        caller asks; answer down; concerned never Waits; push yes; concerned never None; concerned 2s Holds; at 2s
        beat down; concerned never Holds; lose; concerned never None; concerned 9s None"
        "concerned 0s Waits"
    }

    /// Without an ask it has no place.
    fn after_a_gap_the_next_renewal_is_at_once() {
        "caller asks; answer rank/1; at 100ms; renew-at-once; dog renews-place"
        "renew-at-once; dog waits"
    }

    fn a_grant_is_by_the_wake_up_or_by_polling_as_its_ask_was() {
        "caller asks; answer rank/1; wake; caller asks; answer got/7 Granted WakeUp"
        "caller asks; answer rank/0/1s; at 1s; caller asks; answer got/7 Granted Polling"
    }

    fn the_same_ticket_told_again_is_no_lost_place() {
        "caller asks; answer rank/1; wake; at 1s; caller asks; answer rank/1 Nothing"
    }
}

#[test]
fn a_wake_up_is_for_what_waits_only() {
    let case = Case::after("caller asks; answer rank/1; leave");
    let seen = case.claim.signal.epoch();
    assert!(case.claim.wake());
    assert_eq!(case.claim.signal.epoch(), seen + 1);
    case.push(S);
    assert!(!case.claim.wake());
    assert_eq!(case.claim.signal.epoch(), seen + 1);
}
