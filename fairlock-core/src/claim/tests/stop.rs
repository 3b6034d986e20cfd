//! After the client's stop no claim becomes a hold, whichever way the grant comes.

use std::sync::atomic::Ordering;

use super::*;

/// A claim in line, at a moment when its client is stopped and has not failed the claim yet.
fn in_line() -> Case {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.claim.config.stop.store(true, Ordering::SeqCst);
    case
}

fn assert_not_held(case: &Case) {
    assert_eq!((case.claim.hold_count(case.start), case.claim.token()), (0, None));
    assert!(case.claim.fail_for_shutdown(), "the server has to be told");
    assert!(matches!(case.step(NOW), CallerStep::Failed(Failure::Shutdown)));
}

#[test]
fn a_push_is_not_believed_after_the_stop() {
    let case = in_line();
    assert!(!case.push(NOW));
    assert_not_held(&case);
}

#[test]
fn an_answer_is_not_believed_after_the_stop() {
    let case = in_line();
    assert_eq!(case.granted(NOW), AfterAnswer::Nothing);
    assert_not_held(&case);
}

#[test]
fn a_grant_that_a_renewal_finds_is_not_believed_after_the_stop() {
    let case = in_line();
    assert_eq!(case.renewed(NOW, Renewal::Granted { token: TOKEN, lease: LEASE }), AfterRenewal::Nothing);
    assert_not_held(&case);
}

#[test]
fn a_grant_that_a_withdrawal_finds_is_released_after_the_stop() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    assert!(matches!(case.step(S), CallerStep::GiveUp(GiveUp { after: AfterGivingUp::Withdraw, .. })));
    case.claim.config.stop.store(true, Ordering::SeqCst);
    let now = case.start + S;
    assert!(!case.claim.granted_while_leaving(TOKEN, now, LEASE, now));
    assert_eq!(case.claim.leaving_token(), Some(TOKEN), "it is to be released");
}
