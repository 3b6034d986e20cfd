//! Leaked holds, and the ends of holds.

use super::*;

/// A guard holds it at first.
#[test]
fn leaked_holds_are_counted_and_taken_back_one_by_one() {
    let c = held().leaked(0).unleak().is(Err::<(), _>(1)).join().join().unleak().is(Err::<(), _>(3)).leak();
    let c = c.leak().leaked(2).has_lost_leak().no().unleak().is(Ok::<_, u32>(())).leaked(1).lose().yes();
    let c = c.has_lost_leak().yes().leaked(0).unleak().is(Ok::<_, u32>(())).has_lost_leak().no();
    c.unleak().is(Err::<(), _>(0));
}

#[test]
fn a_hold_that_is_leaked_after_its_loss_is_remembered() {
    held().lose().has_lost_leak().no().leak().has_lost_leak().yes();
}

#[test]
fn what_is_not_held_has_no_leaks() {
    claim().leak().leaked(0).unleak().is(Err::<(), _>(0)).has_lost_leak().no();
}

#[test]
fn only_the_last_guard_of_a_lost_hold_is_the_last() {
    let c = held().join().lose().unlock().lost_one().is_unlocked().no().unlock().lost_last();
    c.is_unlocked().yes().unlock().not_held().retire().is_unlocked().yes();
}

#[test]
fn a_renewal_may_outlast_the_claim() {
    let c = held().at(15 * S).dog().renews_hold().is_renewing().yes().may_make_a_place().yes().retire();
    c.is_renewing().yes().renewal_over().is_renewing().no().may_make_a_place().no();
}

#[test]
fn a_hold_tells_how_long_it_has_lasted_also_when_it_is_over() {
    let case = held().at(3 * S);
    let at = case.start + 3 * S;
    assert_eq!(case.claim.held_for(at), Some(3 * S));
    let case = case.unlock().last_after(3 * S);
    assert_eq!(case.claim.held_for(at), Some(3 * S));
    case.claim.retire();
    assert_eq!(case.claim.held_for(at), None);
}

#[test]
fn failed_attempts_to_leave_are_counted_with_their_last_error() {
    let case = held().leaving().none().unlock().leaving().is(Some((0, None::<&str>)));
    assert!(matches!(case.claim.leaving(), Some((0, None))));
    case.claim.leaving_failed(unavailable(), case.start);
    let seen = case.claim.signal.generation();
    case.claim.leaving_failed(BackendError::new(BackendErrorKind::Denied, "last"), case.start);
    assert!(case.claim.signal.generation() > seen, "callers look again");
    case.leaving().is(Some((2, Some("last")))).retire().leaving().none();
}

/// A grant whose end has overtaken this: there is no token any more.
#[test]
fn a_grant_is_told_with_the_times_that_follow_from_it() {
    let case = claim().caller().asks().answer(rank(0).time(4 * S)).at(2 * S).push().yes();
    let grant = case.claim.take_grant();
    assert_eq!((grant.token, grant.waited, grant.ends_at), (TOKEN, 2 * S, case.claim.valid_until()));
    assert_eq!((grant.due_at, grant.recheck_at), (case.claim.due_at(), Some(case.start + 4 * S)));
    assert_eq!(case.claim.take_grant().recheck_at, None, "it is passed on once");
    case.claim.retire();
    let grant = case.claim.take_grant();
    assert_eq!((grant.token.get(), grant.waited, grant.ends_at), (0, NOW, None));
}

/// A grant that a withdrawal finds is taken only by a caller that waits for it in time.
#[test]
fn a_grant_found_late_is_for_a_caller_that_waits_for_it() {
    let certain = LEASE - held::margin(LEASE);
    for (wanted, after, is_taken) in
        [(true, certain - Duration::from_nanos(1), true), (true, certain, false), (false, NOW, false)]
    {
        let case = claim().tries_for(S).caller().asks().answer(rank(1)).at(S).caller().gives_up();
        assert!(wanted || case.claim.decline_grant());
        let sent = case.start + S;
        assert_eq!(case.claim.granted_while_leaving(TOKEN, sent, LEASE, sent + after), is_taken);
        assert_eq!(case.claim.token(), Some(TOKEN));
        assert_eq!(case.claim.hold_count(sent), u32::from(is_taken));
        assert_eq!(case.claim.leaving_token().is_some(), !is_taken);
        assert_eq!(case.claim.decline_grant(), !is_taken);
    }
    let c = held().late_grant().no(); // it does not leave
    c.decline().no();
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
