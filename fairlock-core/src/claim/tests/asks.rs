//! Asking: answers, wake-ups and failures.

use super::*;

/// One thread asks at a time.
#[test]
fn a_free_lock_is_taken_at_the_first_ask() {
    let c = claim().caller().asks().caller().waits_for_ever();
    c.answer(got(7)).is(AfterAnswer::Granted(GrantedBy::FirstAsk)).caller().gets(7).unlock().last();
}

/// Its maker attends to it, so the watchdog need not be told. The server saw the ask before the release that the wake-up is
/// about.
#[test]
fn a_wake_up_during_an_ask_leads_to_another_ask() {
    let c = claim().caller().asks().wake().no().answer(rank(1)).caller().asks().answer(rank(1));
    c.caller().waits_until(10 * S);
}

#[test]
fn one_attempt_is_repeated_once_if_it_was_not_answered() {
    let c = claim().tries().caller().asks().answer(DOWN).is(AfterAnswer::Nothing).caller().asks();
    c.answer(DOWN).is(AfterAnswer::Withdraw);
    claim().tries().caller().asks().answer(busy(S)).is(AfterAnswer::Over).caller().is_busy();
}

#[test]
fn a_silent_server_is_asked_after_the_outage_limit() {
    in_queue().at(S).caller().waits_until(10 * S).at(10 * S).caller().asks();
}

#[test]
fn a_failed_heartbeat_does_not_keep_a_waiter_from_asking() {
    let c = in_queue().at(2 * S).beat(DOWN).is(AfterRenewal::Unanswered).caller().waits().wake();
    c.caller().asks();
}

/// Grants that come too late are an error only where they follow each other.
#[test]
fn late_grants_are_an_error_if_they_follow_each_other() {
    let c = claim().caller().asks().answer(got(7).time(ms(1))).is(AfterAnswer::Nothing).at(S).answer(rank(1));
    let c = c.at(10 * S).answer(got(7).time(ms(1))).is(AfterAnswer::Nothing).at(19 * S);
    let c = c.answer(got(7).time(ms(1))).is(AfterAnswer::Nothing).at(20 * S);
    c.answer(got(7).time(ms(1))).is(AfterAnswer::Withdraw);
}

/// The server has a place, and may be told of that.
#[test]
fn a_request_that_was_heard_before_is_not_refused_as_a_whole() {
    let c = claim().caller().asks().at(S).answer(error(BackendErrorKind::Mismatch)).is(AfterAnswer::Withdraw);
    c.was_refused().yes();
    let c = in_queue().at(S).answer(error(BackendErrorKind::Mismatch)).is(AfterAnswer::Withdraw);
    c.was_refused().no();
}

/// A store that takes no writes ends a newcomer's call but takes no place from a waiter. Its first attempt may have taken a
/// place, also if it was not answered.
#[test]
fn a_store_without_writes_ends_newcomers_calls_only() {
    let c = claim().tries().caller().asks().answer(FULL).is(AfterAnswer::Withdraw).was_refused().yes();
    c.caller().fails();
    let c = claim().tries_for(S).caller().asks().answer(FULL).is(AfterAnswer::Withdraw).was_refused().yes();
    c.caller().fails();
    let c = claim().caller().asks().answer(FULL).is(AfterAnswer::Withdraw).was_refused().yes();
    c.caller().fails();
    let c = in_queue().answer(FULL).is(AfterAnswer::Nothing).at(9 * S).answer(FULL).is(AfterAnswer::Nothing);
    c.at(10 * S).answer(FULL).is(AfterAnswer::Withdraw).was_refused().no();
    let c = claim().caller().asks().answer(DOWN).answer(FULL).is(AfterAnswer::Nothing).at(9 * S);
    let c = c.answer(FULL).is(AfterAnswer::Nothing).at(10 * S).answer(FULL).is(AfterAnswer::Withdraw);
    c.was_refused().no();
}

#[test]
fn a_request_of_which_no_attempt_was_sent_is_over_when_it_fails() {
    let c = claim().tries().caller().asks().answer(UNSENT).is(AfterAnswer::Nothing).caller().asks();
    c.answer(UNSENT).is(AfterAnswer::Over).caller().fails();
    let c = claim().tries().caller().asks().answer(DOWN).is(AfterAnswer::Nothing).caller().asks();
    c.answer(UNSENT).is(AfterAnswer::Withdraw).caller().fails();
    let c = claim().caller().asks().answer(UNSENT_DENIED).is(AfterAnswer::Over).was_refused().yes();
    c.caller().fails();
    let c = claim().caller().asks().answer(DENIED).is(AfterAnswer::Withdraw).was_refused().yes();
    c.caller().fails();
    let c = in_queue().answer(UNSENT_DENIED).is(AfterAnswer::Nothing).at(10 * S).answer(UNSENT_DENIED);
    c.is(AfterAnswer::Withdraw).was_refused().no().caller().fails();
    // Heartbeats are answered meanwhile.
    let c = in_queue().answer(DENIED).is(AfterAnswer::Nothing).at(5 * S).beat(rank(1)).at(9 * S);
    let c = c.answer(DENIED).is(AfterAnswer::Nothing).beat(rank(1)).at(10 * S).answer(DENIED);
    c.is(AfterAnswer::Withdraw).caller().fails();
    let c = in_queue().answer(DENIED).at(9 * S).answer(rank(1)).answer(DENIED).at(10 * S).answer(DENIED);
    c.is(AfterAnswer::Nothing);
    let c = claim().caller().asks().give_up().is(Some(AfterGivingUp::Withdraw));
    c.answer(UNSENT).is(AfterAnswer::Unsent);
    claim().caller().asks().answer(UNSENT).give_up().is(Some(AfterGivingUp::Nothing));
}

/// Its maker asks first, so that it has its place when the call returns. The watchdog is told when no caller waits.
#[test]
fn the_watchdog_asks_for_a_request_on_which_no_caller_waits() {
    let c = claim().dog().waits().caller().asks().answer(rank(1)).leave().wake().yes().attend().dog().waits();
    c.leave().dog().asks();
}

#[test]
fn an_answer_that_came_too_late_is_not_a_grant() {
    let case = claim().caller().asks();
    let answer = Ok(Acquired::Granted { token: TOKEN, lease: LEASE });
    let after = case.claim.answered(answer, case.start, case.start + LEASE);
    assert_eq!(after, AfterAnswer::Nothing);
    assert!(matches!(case.step(LEASE), CallerStep::Ask));
}

#[test]
fn a_failing_server_is_asked_again_until_the_outage_limit() {
    let case = Case::new();
    let mut now = Duration::ZERO;
    let mut asks = 0;
    loop {
        assert!(asks < 1000, "it spins");
        match case.step(now) {
            CallerStep::Ask => {
                asks += 1;
                case.claim.wake(); // wake-ups don't make it spin
                if case.answer_at(now, Err(unavailable())) == AfterAnswer::Withdraw {
                    break;
                }
            }
            CallerStep::Sleep(Some(until)) => now = until - case.start,
            other => panic!("{other:?}"),
        }
    }
    assert!(now >= OUTAGE && now <= OUTAGE + S, "{now:?}");
    assert!((10..60).contains(&asks), "{asks}");
    assert!(matches!(case.step(now), CallerStep::Failed(Failure::Backend(_))));
}
