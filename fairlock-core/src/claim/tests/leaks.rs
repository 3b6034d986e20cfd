//! Leaked holds, and the ends of holds.

use super::*;

fn held() -> Case {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    case
}

#[test]
fn leaked_holds_are_counted_and_taken_back_one_by_one() {
    let case = held();
    let claim = &case.claim;
    assert_eq!((claim.leaked(), claim.unleak()), (0, Err(1)), "a guard holds it");
    claim.join(LockKind::Fair, 1, case.start);
    claim.join(LockKind::Fair, 1, case.start);
    assert_eq!(claim.unleak(), Err(3));
    claim.leak();
    claim.leak();
    assert_eq!((claim.leaked(), claim.has_lost_leak()), (2, false));
    assert_eq!(claim.unleak(), Ok(()));
    assert_eq!(claim.leaked(), 1);
    claim.lose(LostCause::Taken);
    assert_eq!((claim.has_lost_leak(), claim.leaked()), (true, 0));
    assert_eq!((claim.unleak(), claim.has_lost_leak()), (Ok(()), false));
    assert_eq!(claim.unleak(), Err(0));
}

#[test]
fn a_hold_that_is_leaked_after_its_loss_is_remembered() {
    let case = held();
    case.claim.lose(LostCause::Taken);
    assert!(!case.claim.has_lost_leak());
    case.claim.leak();
    assert!(case.claim.has_lost_leak());
}

#[test]
fn what_is_not_held_has_no_leaks() {
    let case = Case::new();
    case.claim.leak();
    assert_eq!((case.claim.leaked(), case.claim.unleak(), case.claim.has_lost_leak()), (0, Err(0), false));
}

#[test]
fn only_the_last_guard_of_a_lost_hold_is_the_last() {
    let case = held();
    case.join();
    case.claim.lose(LostCause::Taken);
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Lost { last: false, .. }));
    assert!(!case.claim.is_unlocked());
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Lost { last: true, .. }));
    assert!(case.claim.is_unlocked());
    assert!(matches!(case.claim.unlock(case.start), Unlocked::NotHeld));
    case.claim.retire();
    assert!(case.claim.is_unlocked());
}

#[test]
fn a_hold_tells_how_long_it_has_lasted_also_when_it_is_over() {
    let case = held();
    let at = case.start + 3 * S;
    assert_eq!(case.claim.held_for(at), Some(3 * S));
    assert!(
        matches!(case.claim.unlock(at), Unlocked::Last { held_for, is_asking: false, .. } if held_for == 3 * S)
    );
    assert_eq!(case.claim.held_for(at), Some(3 * S));
    case.claim.retire();
    assert_eq!(case.claim.held_for(at), None);
}

#[test]
fn failed_attempts_to_leave_are_counted_with_their_last_error() {
    let case = held();
    assert!(case.claim.leaving().is_none());
    case.claim.unlock(case.start);
    assert!(matches!(case.claim.leaving(), Some((0, None))));
    case.claim.leaving_failed(unavailable());
    let seen = case.claim.signal.epoch();
    case.claim.leaving_failed(BackendError::new(BackendErrorKind::Denied, "no"));
    assert!(case.claim.signal.epoch() > seen, "callers look again");
    assert!(matches!(case.claim.leaving(), Some((2, Some(error))) if error.message() == "no"));
    case.claim.retire();
    assert!(case.claim.leaving().is_none());
}

#[test]
fn a_renewal_may_outlast_the_claim() {
    let case = held();
    case.watchdog_step(15 * S);
    assert!(case.claim.is_renewing() && case.claim.may_make_a_place());
    case.claim.retire();
    assert!(case.claim.is_renewing());
    case.claim.renewal_done();
    assert!(!case.claim.is_renewing() && !case.claim.may_make_a_place());
}

/// A grant whose end has overtaken this: there is no token any more.
#[test]
fn a_grant_is_told_with_the_times_that_follow_from_it() {
    let case = Case::new();
    case.step(NOW);
    case.answer(NOW, Ok(Acquired::Queued { rank: 0, recheck_in: 4 * S, ticket: 1, latest: 1 }));
    assert!(case.push(2 * S));
    let grant = case.claim.take_grant();
    assert_eq!((grant.token, grant.waited, grant.ends_at), (TOKEN, 2 * S, case.claim.valid_until()));
    assert_eq!((grant.due_at, grant.recheck_at), (case.claim.due_at(), Some(case.start + 4 * S)));
    assert_eq!(case.claim.take_grant().recheck_at, None, "it is passed on once");
    case.claim.retire();
    let grant = case.claim.take_grant();
    assert_eq!((grant.token.get(), grant.waited, grant.ends_at), (0, NOW, None));
}

#[test]
fn a_grant_that_a_withdrawal_finds_is_taken_only_by_a_caller_that_waits_for_it_in_time() {
    let certain = LEASE - terms::margin(LEASE);
    for (wanted, after, is_taken) in
        [(true, certain - Duration::from_nanos(1), true), (true, certain, false), (false, NOW, false)]
    {
        let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
        case.step(NOW);
        case.queued(NOW);
        assert!(matches!(case.step(S), CallerStep::GiveUp(_)));
        assert!(wanted || case.claim.decline_grant());
        let sent = case.start + S;
        assert_eq!(case.claim.granted_while_leaving(TOKEN, sent, LEASE, sent + after), is_taken);
        assert_eq!(case.claim.token(), Some(TOKEN));
        assert_eq!(case.claim.hold_count(sent), u32::from(is_taken));
        assert_eq!(case.claim.leaving_token().is_some(), !is_taken);
        assert_eq!(case.claim.decline_grant(), !is_taken);
    }
    let over = held();
    assert!(!over.claim.granted_while_leaving(TOKEN, over.start, LEASE, over.start), "it does not leave");
    assert!(!over.claim.decline_grant());
}

#[test]
fn a_stray_grant_leaves_with_its_token() {
    let case = Case::new();
    let request = RequestId::new(4);
    let hold = Hold::new(&case.claim.lock, &case.claim.owner, request, TOKEN);
    let stray = Claim::of_stray_grant(&hold, &case.claim.config, case.start);
    assert_eq!((stray.request, stray.leaving_token()), (request, Some(TOKEN)));
    assert!(matches!(stray.join(LockKind::Fair, 1, case.start), Joined::Leaving));
}
