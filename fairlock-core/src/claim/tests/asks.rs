//! Asking: answers, wake-ups and failures.

use super::*;

#[test]
fn a_free_lock_is_taken_at_the_first_ask() {
    let case = Case::new();
    assert!(matches!(case.step(NOW), CallerStep::Ask));
    assert!(matches!(case.step(NOW), CallerStep::Sleep(None)), "one thread asks at a time");
    assert_eq!(case.granted(NOW), AfterAnswer::Granted(GrantedBy::FirstAsk));
    assert!(matches!(case.step(NOW), CallerStep::Take { token: TOKEN, count: 1 }));
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Last { token: TOKEN, .. }));
}

#[test]
fn a_wake_up_during_an_ask_leads_to_another_ask() {
    let case = Case::new();
    case.step(NOW);
    assert!(!case.claim.wake(), "its maker attends to it, so the watchdog need not be told");
    case.queued(NOW); // the server saw the ask before the release that the wake-up is about
    assert!(matches!(case.step(NOW), CallerStep::Ask));
    case.queued(NOW);
    assert!(matches!(case.step(NOW), CallerStep::Sleep(Some(_))));
}

#[test]
fn an_answer_that_came_too_late_is_not_a_grant() {
    let case = Case::new();
    case.step(NOW);
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

#[test]
fn a_store_that_takes_no_writes_ends_a_newcomers_call_but_takes_no_place_from_a_waiter() {
    let full = || Err(BackendError::new(BackendErrorKind::Refused, "full"));
    for wait in [Wait::No, Wait::UpTo(S), Wait::Forever] {
        let newcomer = Case::with(wait, Terms::Renewed(LEASE));
        newcomer.step(NOW);
        assert_eq!(newcomer.answer(NOW, full()), AfterAnswer::Withdraw);
        assert!(newcomer.claim.was_refused());
        assert!(matches!(newcomer.step(NOW), CallerStep::Failed(Failure::Backend(_))));
    }
    for heard in [true, false] {
        let case = Case::new();
        case.step(NOW);
        // Its first attempt may have taken a place.
        _ = if heard { case.queued(NOW) } else { case.answer(NOW, Err(unavailable())) };
        assert_eq!([case.answer(NOW, full()), case.answer(OUTAGE - S, full())], [AfterAnswer::Nothing; 2]);
        assert_eq!(case.answer(OUTAGE, full()), AfterAnswer::Withdraw);
        assert!(!case.claim.was_refused());
    }
}

#[test]
fn one_attempt_is_repeated_once_if_it_was_not_answered() {
    let case = Case::with(Wait::No, Terms::Renewed(LEASE));
    assert!(matches!(case.step(NOW), CallerStep::Ask));
    assert_eq!(case.answer(NOW, Err(unavailable())), AfterAnswer::Nothing);
    assert!(matches!(case.step(NOW), CallerStep::Ask));
    assert_eq!(case.answer(NOW, Err(unavailable())), AfterAnswer::Withdraw);
    let busy = Case::with(Wait::No, Terms::Renewed(LEASE));
    busy.step(NOW);
    assert_eq!(busy.answer(NOW, Ok(Acquired::Busy { recheck_in: S })), AfterAnswer::Over);
    assert!(matches!(busy.step(NOW), CallerStep::NotGranted));
}

#[test]
fn a_silent_server_is_asked_after_the_outage_limit() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let CallerStep::Sleep(Some(until)) = case.step(S) else { panic!() };
    assert_eq!(until, case.start + OUTAGE);
    assert!(matches!(case.step(OUTAGE), CallerStep::Ask));
}

#[test]
fn a_failed_heartbeat_does_not_keep_a_waiter_from_asking() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let later = case.start + 2 * S;
    case.claim.renewed(Err(unavailable()), later, LEASE, later);
    assert!(matches!(case.step(2 * S), CallerStep::Sleep(Some(_))));
    case.claim.wake();
    assert!(matches!(case.step(2 * S), CallerStep::Ask));
}

#[test]
fn the_watchdog_asks_for_a_request_on_which_no_caller_waits() {
    let case = Case::new();
    let step = case.watchdog_step(NOW);
    assert!(
        !matches!(step, WatchdogStep::Ask(_)),
        "its maker asks first, so that it has its place when the call returns"
    );
    case.step(NOW);
    case.queued(NOW);
    case.claim.stop_attending();
    assert!(case.claim.wake(), "no caller waits: the watchdog is told");
    case.claim.attend();
    assert!(!matches!(case.watchdog_step(NOW), WatchdogStep::Ask(_)), "its caller asks");
    case.claim.stop_attending();
    assert!(matches!(case.watchdog_step(NOW), WatchdogStep::Ask(_)));
}

#[test]
fn grants_that_come_too_late_are_an_error_only_where_they_follow_each_other() {
    let case = Case::new();
    case.step(NOW);
    let too_late = |at: Duration| {
        let short = Ok(Acquired::Granted { token: TOKEN, lease: Duration::from_millis(1) });
        case.answer(at, short)
    };
    assert_eq!(too_late(NOW), AfterAnswer::Nothing);
    case.queued(S);
    assert_eq!([too_late(OUTAGE), too_late(OUTAGE + 9 * S)], [AfterAnswer::Nothing; 2]);
    assert_eq!(too_late(2 * OUTAGE), AfterAnswer::Withdraw);
}

/// The server has a place, and may be told of that.
#[test]
fn a_request_that_was_heard_before_is_not_refused_as_a_whole() {
    let refused = || Err(BackendError::new(BackendErrorKind::Mismatch, "no"));
    for (heard, is_refused) in [(false, true), (true, false)] {
        let case = Case::new();
        case.step(NOW);
        if heard {
            case.queued(NOW);
        }
        assert_eq!(case.answer(S, refused()), AfterAnswer::Withdraw);
        assert_eq!(case.claim.was_refused(), is_refused);
    }
}
