//! What the watchdog does first, and what it leaves to callers.

use super::*;

#[test]
fn nothing_is_due_for_a_request_whose_ask_is_under_way() {
    let c = claim().caller().asks().leave().none().at(20 * S).dog().waits_for_ever().is_asking().yes();
    c.may_make_a_place().yes();
}

/// A heartbeat has failed, so there is an error; but the answer to an ask may come any moment.
#[test]
fn a_request_does_not_fail_while_an_ask_is_under_way() {
    let c = in_queue().at(2 * S).beat(DOWN).leave().begin_to_ask().yes().pauses_renewals(60 * S).at(10 * S);
    c.dog().waits();
}

#[test]
fn a_request_on_which_a_caller_waits_is_given_up_by_that_caller() {
    let c = in_queue().at(2 * S).beat(DOWN).pauses_renewals(60 * S).at(10 * S).dog().waits().leave();
    c.dog().gives_up();
}

/// An ask renews the place as well. A place goes with others a little earlier, and after a third of its time it can't wait.
#[test]
fn an_ask_that_is_due_goes_before_a_renewal_that_can_wait() {
    let c = in_queue().leave().at(ms(1665)).dog().renews_place().renewal_over().wake().dog().asks();
    c.at(ns(1_666_666_666)).dog().renews_place();
}

#[test]
fn a_renewal_under_way_does_not_keep_the_watchdog_from_asking() {
    in_queue().leave().at(ns(1_666_666_666)).dog().renews_place_for(30 * S).wake().dog().asks();
}

#[test]
fn only_what_waits_is_asked_for() {
    in_queue().begin_to_ask().yes().at(S).answer(rank(1)).push().yes().begin_to_ask().no();
}

#[test]
fn a_failed_ask_counts_until_the_next_answer() {
    let c = claim().last_ask_failed().no().caller().asks().answer(DOWN).last_ask_failed().yes();
    c.caller().asks().answer(rank(1)).last_ask_failed().no();
}

#[test]
fn a_refusal_is_no_reason_to_ask_again() {
    let c = claim().caller().asks().answer(DENIED).is(AfterAnswer::Withdraw).caller().fails();
    c.leaving().is(Some((1, Some("planned: denied"))));
}

/// By an ask alone, too.
#[test]
fn an_outage_concerns_what_was_not_answered_since_it_began() {
    let c = in_queue().concerned(None).none().concerned(Some(ms(0))).none();
    let c = c.concerned(Some(S)).is(Some(Standing::Waits)).at(S).beat(DOWN);
    let c = c.concerned(None).is(Some(Standing::Waits)).concerned(Some(ms(0))).is(Some(Standing::Waits));
    let c = c.beat(rank(0)).concerned(None).none().concerned(Some(S)).none().wake().caller().asks();
    let c = c.answer(DOWN).concerned(None).is(Some(Standing::Waits)).push().yes().concerned(None).none();
    let c = c.concerned(Some(2 * S)).is(Some(Standing::Holds)).at(2 * S).beat(DOWN);
    let c = c.concerned(None).is(Some(Standing::Holds)).lose().concerned(None).none();
    c.concerned(Some(9 * S)).none();
    claim().concerned(Some(ms(0))).is(Some(Standing::Waits));
}

/// Without an ask it has no place.
#[test]
fn after_a_gap_the_next_renewal_is_at_once() {
    in_queue().at(ms(100)).renew_at_once().dog().renews_place();
    claim().renew_at_once().dog().waits();
}

#[test]
fn a_grant_is_by_the_wake_up_or_by_polling_as_its_ask_was() {
    in_queue().wake().caller().asks().answer(got(7)).is(AfterAnswer::Granted(GrantedBy::WakeUp));
    let c = claim().caller().asks().answer(rank(0).time(S)).at(S).caller().asks();
    c.answer(got(7)).is(AfterAnswer::Granted(GrantedBy::Polling));
}

#[test]
fn the_same_ticket_told_again_is_no_lost_place() {
    in_queue().wake().at(S).caller().asks().answer(rank(1)).is(AfterAnswer::Nothing);
}

#[test]
fn a_wake_up_is_for_what_waits_only() {
    let case = in_queue().leave();
    let seen = case.claim.signal.generation();
    assert!(case.claim.wake());
    assert_eq!(case.claim.signal.generation(), seen + 1);
    case.push_at(S);
    assert!(!case.claim.wake());
    assert_eq!(case.claim.signal.generation(), seen + 1);
}
