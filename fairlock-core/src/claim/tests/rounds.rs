//! What the watchdog does first, and what it leaves to callers.

use super::*;

fn in_line() -> Case {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case
}

#[test]
fn nothing_is_due_for_a_request_whose_ask_is_under_way() {
    let case = Case::new();
    case.step(NOW);
    assert_eq!(case.claim.stop_attending(), None);
    assert!(matches!(case.watchdog_step(2 * OUTAGE), WatchdogStep::Wait(None)));
    assert!(case.claim.is_asking() && case.claim.may_make_a_place());
}

/// A heartbeat has failed, so there is an error; but the answer to an ask may come any moment.
#[test]
fn a_request_does_not_fail_while_an_ask_is_under_way() {
    let case = in_line();
    case.claim.renewed(Err(unavailable()), case.start + 2 * S, LEASE, case.start + 2 * S);
    case.claim.stop_attending();
    assert!(case.claim.begin_to_ask());
    let pauses = Pauses { renewals: Some(case.start + 60 * S), asks: None };
    let times = RoundTimes { pauses, ..case.times(OUTAGE) };
    assert!(matches!(case.claim.watchdog_step(&times), WatchdogStep::Wait(_)));
}

#[test]
fn a_request_on_which_a_caller_waits_is_given_up_by_that_caller() {
    let case = in_line();
    case.claim.renewed(Err(unavailable()), case.start + 2 * S, LEASE, case.start + 2 * S);
    let pauses = Pauses { renewals: Some(case.start + 60 * S), asks: None };
    let times = RoundTimes { pauses, ..case.times(OUTAGE) };
    assert!(matches!(case.claim.watchdog_step(&times), WatchdogStep::Wait(_)));
    case.claim.stop_attending();
    assert!(matches!(case.claim.watchdog_step(&times), WatchdogStep::GivenUp));
}

/// An ask renews the place as well.
#[test]
fn an_ask_that_is_due_goes_before_a_renewal_that_can_wait() {
    let case = in_line();
    case.claim.stop_attending();
    let nearly = PLACE / 3 - Duration::from_millis(1);
    assert!(matches!(case.watchdog_step(nearly), WatchdogStep::RenewPlace { .. }), "with others");
    case.claim.renewal_done();
    case.claim.wake();
    assert!(matches!(case.watchdog_step(nearly), WatchdogStep::Ask(_)));
    assert!(matches!(case.watchdog_step(PLACE / 3), WatchdogStep::RenewPlace { .. }), "it can't wait");
}

#[test]
fn a_renewal_under_way_does_not_keep_the_watchdog_from_asking() {
    let case = in_line();
    case.claim.stop_attending();
    assert!(matches!(case.watchdog_step(PLACE / 3), WatchdogStep::RenewPlace { lease: LEASE }));
    case.claim.wake();
    assert!(matches!(case.watchdog_step(PLACE / 3), WatchdogStep::Ask(_)));
}

#[test]
fn only_what_waits_is_asked_for() {
    let case = in_line();
    assert!(case.claim.begin_to_ask());
    case.queued(S);
    case.push(S);
    assert!(!case.claim.begin_to_ask());
}

#[test]
fn a_failed_ask_counts_until_the_next_answer() {
    let case = Case::new();
    assert!(!case.claim.last_ask_failed());
    case.step(NOW);
    case.answer(NOW, Err(unavailable()));
    assert!(case.claim.last_ask_failed());
    case.step(NOW);
    case.queued(NOW);
    assert!(!case.claim.last_ask_failed());
}

#[test]
fn a_refusal_is_no_reason_to_ask_again() {
    let case = Case::new();
    case.step(NOW);
    let denied = BackendError::new(BackendErrorKind::Denied, "no");
    assert_eq!(case.answer(NOW, Err(denied)), AfterAnswer::Withdraw);
    assert!(matches!(case.step(NOW), CallerStep::Failed(Failure::Backend(_))));
    assert!(case.claim.leaving().is_some());
}

#[test]
fn an_outage_concerns_what_was_not_answered_since_it_began() {
    let case = in_line();
    let at = |time: Duration| Some(case.start + time);
    let concerned = |since| case.claim.is_concerned(since);
    assert_eq!((concerned(None), concerned(at(NOW)), concerned(at(S))), (None, None, Some(Standing::Waits)));
    case.claim.renewed(Err(unavailable()), case.start + S, LEASE, case.start + S);
    assert_eq!((concerned(None), concerned(at(NOW))), (Some(Standing::Waits), Some(Standing::Waits)));
    case.renewed(S, waiting(1));
    assert_eq!((concerned(None), concerned(at(S))), (None, None));
    case.claim.wake();
    case.step(S);
    case.answer(S, Err(unavailable()));
    assert_eq!(concerned(None), Some(Standing::Waits), "by an ask alone");
    case.push(S);
    assert_eq!((concerned(None), concerned(at(2 * S))), (None, Some(Standing::Holds)));
    case.claim.renewed(Err(unavailable()), case.start + 2 * S, LEASE, case.start + 2 * S);
    assert_eq!(concerned(None), Some(Standing::Holds));
    case.claim.lose(LostCause::NotRenewed);
    assert_eq!((concerned(None), concerned(at(9 * S))), (None, None));
    let unheard = Case::new();
    assert_eq!(unheard.claim.is_concerned(Some(unheard.start)), Some(Standing::Waits));
}

#[test]
fn after_a_gap_the_next_renewal_is_at_once() {
    let case = in_line();
    case.claim.renew_at_once(case.start + S / 10);
    assert!(matches!(case.watchdog_step(S / 10), WatchdogStep::RenewPlace { .. }));
    let unasked = Case::new();
    unasked.claim.renew_at_once(unasked.start);
    assert!(matches!(unasked.watchdog_step(NOW), WatchdogStep::Wait(_)), "it has no place");
}

#[test]
fn a_wake_up_is_for_what_waits_only() {
    let case = in_line();
    case.claim.stop_attending();
    let seen = case.claim.signal.epoch();
    assert!(case.claim.wake());
    assert_eq!(case.claim.signal.epoch(), seen + 1);
    case.push(S);
    assert!(!case.claim.wake());
    assert_eq!(case.claim.signal.epoch(), seen + 1);
}

#[test]
fn a_grant_is_by_the_wake_up_or_by_polling_as_its_ask_was() {
    let case = in_line();
    case.claim.wake();
    case.step(NOW);
    assert_eq!(case.granted(NOW), AfterAnswer::Granted(GrantedBy::WakeUp));
    let case = Case::new();
    case.step(NOW);
    case.answer(NOW, Ok(Acquired::Queued { rank: 0, recheck_in: S, ticket: 1, latest: 1 }));
    assert!(matches!(case.step(S), CallerStep::Ask));
    assert_eq!(case.granted(S), AfterAnswer::Granted(GrantedBy::Polling));
}

#[test]
fn the_same_ticket_told_again_is_no_lost_place() {
    let case = in_line();
    case.claim.wake();
    case.step(S);
    assert_eq!(case.queued(S), AfterAnswer::Nothing);
}
