//! Leaked holds, and the ends of holds.

use super::*;

stories! {
    /// A guard holds it at first.
    fn leaked_holds_are_counted_and_taken_back_one_by_one() {
        "caller asks; answer got/7; leaked 0; unleak Err 1; join; join; unleak Err 3; leak; leak; leaked 2; lost-leak no
        unleak Ok; leaked 1; lose yes; lost-leak yes; leaked 0; unleak Ok; lost-leak no; unleak Err 0"
    }

    fn a_hold_that_is_leaked_after_its_loss_is_remembered() {
        "caller asks; answer got/7; lose; lost-leak no; leak; lost-leak yes"
    }

    fn what_is_not_held_has_no_leaks() {
        "leak; leaked 0; unleak Err 0; lost-leak no"
    }

    fn only_the_last_guard_of_a_lost_hold_is_the_last() {
        "caller asks; answer got/7; join; lose; unlock Lost one; unlocked no; unlock Lost last; unlocked yes
        unlock NotHeld; retire; unlocked yes"
    }

    fn a_renewal_may_outlast_the_claim() {
        "caller asks; answer got/7; at 15s; dog renews-hold; renewing yes; may-make-a-place yes; retire; renewing yes
        renewal-over; renewing no; may-make-a-place no"
    }
}

#[test]
fn a_hold_tells_how_long_it_has_lasted_also_when_it_is_over() {
    let case = Case::after("caller asks; answer got/7; at 3s");
    let at = case.start + 3 * S;
    assert_eq!(case.claim.held_for(at), Some(3 * S));
    let case = case.tell("unlock Last 3s");
    assert_eq!(case.claim.held_for(at), Some(3 * S));
    case.claim.retire();
    assert_eq!(case.claim.held_for(at), None);
}

#[test]
fn failed_attempts_to_leave_are_counted_with_their_last_error() {
    let case = Case::after("caller asks; answer got/7; leaves no; unlock; leaves 0");
    assert!(matches!(case.claim.leaving(), Some((0, None))));
    case.claim.leaving_failed(unavailable());
    let seen = case.claim.signal.epoch();
    case.claim.leaving_failed(BackendError::new(BackendErrorKind::Denied, "last"));
    assert!(case.claim.signal.epoch() > seen, "callers look again");
    case.tell("leaves 2 last; retire; leaves no");
}

/// A grant whose end has overtaken this: there is no token any more.
#[test]
fn a_grant_is_told_with_the_times_that_follow_from_it() {
    let case = Case::after("caller asks; answer rank/0/4s; at 2s; push yes");
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
        let case = Case::after("waits 1s; caller asks; answer rank/1; at 1s; caller gives-up");
        assert!(wanted || case.claim.decline_grant());
        let sent = case.start + S;
        assert_eq!(case.claim.granted_while_leaving(TOKEN, sent, LEASE, sent + after), is_taken);
        assert_eq!(case.claim.token(), Some(TOKEN));
        assert_eq!(case.claim.hold_count(sent), u32::from(is_taken));
        assert_eq!(case.claim.leaving_token().is_some(), !is_taken);
        assert_eq!(case.claim.decline_grant(), !is_taken);
    }
    Case::after("caller asks; answer got/7; late-grant no (it does not leave); decline no");
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
