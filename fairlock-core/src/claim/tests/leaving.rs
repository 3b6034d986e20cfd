//! Callers that leave without the lock.

use super::*;

#[test]
fn a_caller_that_leaves_believes_nothing_any_more() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    let CallerStep::GiveUp(give_up) = case.step(S) else { panic!() };
    assert_eq!(give_up.after, AfterGivingUp::Withdraw);
    assert!(!case.push(S));
    assert_eq!(case.renewed(S, Renewal::Granted { token: TOKEN, lease: LEASE }), AfterRenewal::Nothing);
    // The withdrawal finds the grant, which the caller takes while it waits for that answer.
    assert!(case.claim.granted_while_leaving(TOKEN, case.start + S, LEASE, case.start + S));
    assert_eq!(case.claim.hold_count(case.start + S), 1);
}

#[test]
fn a_grant_that_no_caller_waits_for_is_released() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    case.step(S);
    assert!(case.claim.decline_grant());
    assert!(!case.claim.granted_while_leaving(TOKEN, case.start + S, LEASE, case.start + S));
    assert_eq!(case.claim.leaving_token(), Some(TOKEN));
}

#[test]
fn a_caller_that_leaves_does_not_take_the_place_of_the_others() {
    let case = Case::new();
    case.join();
    case.step(NOW);
    case.queued(NOW);
    let timed = case.patience(Wait::UpTo(S));
    let CallerStep::GiveUp(give_up) = case.claim.caller_step(&timed, case.start + S) else { panic!() };
    assert_eq!(give_up.after, AfterGivingUp::OthersWait);
    assert!(matches!(case.step(S), CallerStep::Sleep(_)));
}

#[test]
fn an_answer_after_all_callers_left_is_late() {
    let case = Case::new();
    case.step(NOW);
    assert_eq!(case.claim.fail_for_shutdown(), Some(AfterGivingUp::Withdraw));
    assert_eq!(case.queued(NOW), AfterAnswer::Late);
    case.claim.retire();
    assert_eq!(case.granted(NOW), AfterAnswer::Late);
}

#[test]
fn attempts_to_leave_are_counted_from_the_withdrawal_on() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.answer(NOW, Err(unavailable()));
    assert!(matches!(case.step(S), CallerStep::GiveUp(_)));
    assert!(matches!(case.claim.leaving(), Some((0, Some(_)))));
}

#[test]
fn a_request_that_is_withdrawn_once_more_is_the_same_request() {
    let claim = Case::new().claim;
    let more = claim.once_more(Instant::now());
    assert_eq!((more.request, &more.owner, &more.lock), (claim.request, &claim.owner, &claim.lock));
    assert!(more.leaving().is_some() && more.leaving_token().is_none());
}
