//! Asking: answers, wake-ups and failures.

use super::*;

stories! {
    /// One thread asks at a time.
    fn a_free_lock_is_taken_at_the_first_ask() {
        "caller asks; caller sleeps ever; answer got/7 Granted FirstAsk; caller takes 7 1; unlock Last"
    }

    /// Its maker attends to it, so the watchdog need not be told. The server saw the ask before the release that the wake-up is
    /// about.
    fn a_wake_up_during_an_ask_leads_to_another_ask() {
        "caller asks; wake no; answer rank/1; caller asks; answer rank/1; caller sleeps 10s"
    }

    fn one_attempt_is_repeated_once_if_it_was_not_answered() {
        "waits no; caller asks; answer down Nothing; caller asks; answer down Withdraw"
        "waits no; caller asks; answer busy/1s Over; caller is-busy"
    }

    fn a_silent_server_is_asked_after_the_outage_limit() {
        "caller asks; answer rank/1; at 1s; caller sleeps 10s; at 10s; caller asks"
    }

    fn a_failed_heartbeat_does_not_keep_a_waiter_from_asking() {
        "caller asks; answer rank/1; at 2s; beat down Unanswered; caller sleeps; wake; caller asks"
    }

    fn grants_that_come_too_late_are_an_error_only_where_they_follow_each_other() {
        "caller asks; answer got/7/1ms Nothing; at 1s; answer rank/1; at 10s; answer got/7/1ms Nothing; at 19s
        answer got/7/1ms Nothing; at 20s; answer got/7/1ms Withdraw"
    }

    /// The server has a place, and may be told of that.
    fn a_request_that_was_heard_before_is_not_refused_as_a_whole() {
        "caller asks; at 1s; answer Mismatch Withdraw; refused yes"
        "caller asks; answer rank/1; at 1s; answer Mismatch Withdraw; refused no"
    }

    /// Its first attempt may have taken a place, also if it was not answered.
    fn a_store_that_takes_no_writes_ends_a_newcomers_call_but_takes_no_place_from_a_waiter() {
        "waits no; caller asks; answer full Withdraw; refused yes; caller fails"
        "waits 1s; caller asks; answer full Withdraw; refused yes; caller fails"
        "caller asks; answer full Withdraw; refused yes; caller fails"
        "caller asks; answer rank/1; answer full Nothing; at 9s; answer full Nothing; at 10s; answer full Withdraw
        refused no"
        "caller asks; answer down; answer full Nothing; at 9s; answer full Nothing; at 10s; answer full Withdraw
        refused no"
    }

    fn a_request_of_which_no_attempt_was_sent_is_over_when_it_fails() {
        "waits no; caller asks; answer unsent Nothing; caller asks; answer unsent Over; caller fails"
        "waits no; caller asks; answer down Nothing; caller asks; answer unsent Withdraw; caller fails"
        "caller asks; answer unsent-denied Over; refused yes; caller fails"
        "caller asks; answer denied Withdraw; refused yes; caller fails"
        "caller asks; answer rank/1; answer unsent-denied Withdraw; refused no; caller fails"
        "caller asks; give-up Withdraw; answer unsent Unsent"
        "caller asks; answer unsent; give-up Nothing"
    }

    /// Its maker asks first, so that it has its place when the call returns. The watchdog is told when no caller waits.
    fn the_watchdog_asks_for_a_request_on_which_no_caller_waits() {
        "dog waits; caller asks; answer rank/1; leave; wake yes; attend; dog waits; leave; dog asks"
    }
}

#[test]
fn an_answer_that_came_too_late_is_not_a_grant() {
    let case = Case::after("caller asks");
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
                if case.answer(now, Err(unavailable())) == AfterAnswer::Withdraw {
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
