//! The very moments at which a hold begins and ceases to be certain, and at which a renewal is late.

use super::*;

/// All of a lease that is certain.
const CERTAIN: Duration = Duration::from_millis(29_698);
const JUST_BEFORE: Duration = Duration::from_nanos(29_697_999_999);

fn held(wait: Wait, terms: Terms) -> Case {
    let case = Case::with(wait, terms);
    case.step(NOW);
    assert_eq!(case.granted(NOW), AfterAnswer::Granted(GrantedBy::FirstAsk));
    case
}

#[test]
fn a_hold_is_certain_until_its_deadline_and_not_at_it() {
    let case = held(Wait::Forever, Terms::Renewed(LEASE));
    let [before, at] = [JUST_BEFORE, CERTAIN].map(|time| case.start + time);
    let claim = &case.claim;
    assert_eq!(claim.valid_until(), Some(at));
    assert_eq!([before, at].map(|now| claim.valid_token(now)), [Some(TOKEN), None]);
    assert_eq!([before, at].map(|now| claim.hold_count(now)), [1, 0]);
    assert_eq!([before, at].map(|now| claim.as_held(now).is_some()), [true, false]);
    assert_eq!([before, at].map(|now| claim.renewal(now).is_some()), [true, false]);
    assert_eq!(
        [before, at].map(|now| claim.loss(now).map(|lost| lost.cause)),
        [None, Some(LostCause::NotRenewed)]
    );
    assert!(matches!(claim.watchdog_step(&case.times(CERTAIN)), WatchdogStep::Lose(LostCause::NotRenewed)));
    assert!(matches!(claim.unlock(at), Unlocked::Expired));
    assert!(matches!(case.step(CERTAIN), CallerStep::TooLate));
    assert!(matches!(case.step(JUST_BEFORE), CallerStep::Take { .. }));
    assert!(matches!(claim.join(LockKind::Fair, 1, at), Joined::Expired));
    assert!(matches!(claim.join(LockKind::Fair, 1, before), Joined::Held { count: 2, .. }));
    assert!(matches!(claim.unlock(before), Unlocked::StillHeld { count: 1, .. }));
    assert!(matches!(claim.unlock(before), Unlocked::Last { .. }));
}

#[test]
fn what_is_not_held_has_no_times() {
    let case = Case::new();
    let claim = &case.claim;
    assert_eq!(
        (claim.valid_until(), claim.valid_token(case.start), claim.hold_count(case.start)),
        (None, None, 0)
    );
    assert!(claim.as_held(case.start).is_none() && claim.renewal(case.start).is_none());
    assert!(claim.loss(case.start).is_none() && claim.held_for(case.start).is_none());
    assert!(claim.token().is_none() && claim.leaving_token().is_none() && claim.leaving().is_none());
    assert!(matches!(claim.unlock(case.start), Unlocked::NotHeld));
    assert!(!claim.is_renewing() && !claim.is_asking() && !claim.may_make_a_place() && claim.is_waiting());
    assert!(!claim.was_heard() && silent_for(claim, case.start).is_none() && !claim.is_unlocked());
}

#[test]
fn a_renewal_is_late_when_more_than_half_of_its_time_is_over() {
    for (early, late) in [(Duration::ZERO, false), (Duration::from_nanos(1), true)] {
        let case = held(Wait::Forever, Terms::Renewed(LEASE));
        let due = case.claim.due_at().unwrap() - case.start;
        let last_moment = due + (CERTAIN - due) / 2;
        let after = case.renewed(last_moment + early, Renewal::Renewed);
        let expected = if late { Punctuality::Late } else { Punctuality::InTime };
        assert_eq!(after, AfterRenewal::Renewed(expected));
    }
    let case = held(Wait::Forever, Terms::Renewed(LEASE));
    assert_eq!(
        case.renewed(S, Renewal::Renewed),
        AfterRenewal::Renewed(Punctuality::InTime),
        "before it was due"
    );
}

#[test]
fn a_renewal_that_took_two_attempts_is_late_and_the_next_one_is_not() {
    let case = held(Wait::Forever, Terms::Renewed(LEASE));
    let at = case.start + S;
    assert_eq!(case.claim.renewed(Err(unavailable()), at, LEASE, at), AfterRenewal::Unanswered);
    assert_eq!(case.renewed(S, Renewal::Renewed), AfterRenewal::Renewed(Punctuality::Late));
    assert_eq!(case.renewed(2 * S, Renewal::Renewed), AfterRenewal::Renewed(Punctuality::InTime));
}

#[test]
fn a_capped_hold_is_renewed_until_a_renewal_reaches_its_end() {
    let case = held(Wait::Forever, Terms::Capped { lease: LEASE, limit: 70 * S });
    case.renewed(10 * S, Renewal::Renewed);
    assert_eq!(case.claim.due_at(), Some(case.start + 20 * S));
    assert_eq!(case.claim.renewal(case.start + 50 * S), None, "its lease is over");
    case.renewed(39 * S, Renewal::Renewed);
    assert_eq!(case.claim.due_at(), Some(case.start + 49 * S));
    assert_eq!(
        case.claim.renewal(case.start + 50 * S),
        Some((TOKEN, 1, 20 * S)),
        "no longer than to its end"
    );
    case.renewed(40 * S, Renewal::Renewed);
    let end = case.claim.valid_until().unwrap();
    assert_eq!(case.claim.due_at(), Some(end), "nothing but its end is left");
    assert_eq!(case.claim.loss(end).unwrap().cause, LostCause::MaxHold);
}

#[test]
fn a_capped_hold_that_is_not_renewed_ends_for_that_reason() {
    let case = held(Wait::Forever, Terms::Capped { lease: LEASE, limit: 70 * S });
    assert_eq!(case.claim.loss(case.start + LEASE).unwrap().cause, LostCause::NotRenewed);
}

#[test]
fn a_fixed_lease_that_was_granted_as_a_whole_is_not_renewed() {
    for answered_after in [NOW, S] {
        let case = Case::with(Wait::Forever, Terms::Fixed(LEASE));
        case.step(NOW);
        let granted = Ok(Acquired::Granted { token: TOKEN, lease: LEASE });
        case.claim.answered(granted, case.start, case.start + answered_after);
        case.claim.stop_attending();
        assert_eq!(case.claim.due_at(), Some(case.start + CERTAIN));
        assert!(
            matches!(case.watchdog_step(20 * S), WatchdogStep::Wait(Some(at)) if at == case.start + CERTAIN)
        );
        assert_eq!(case.claim.take_grant().recheck_at, Some(case.start + LEASE), "others look at its end");
    }
}

#[test]
fn a_holder_that_renews_a_fixed_lease_begins_it_anew() {
    let case = held(Wait::Forever, Terms::Fixed(LEASE));
    assert_eq!(case.claim.renewal(case.start + 9 * S), Some((TOKEN, 1, LEASE)));
    case.renewed(9 * S, Renewal::Renewed);
    let end = case.start + 9 * S + CERTAIN;
    assert_eq!(case.claim.valid_until(), Some(end));
    assert_eq!(case.claim.loss(end).unwrap().cause, LostCause::LeaseOver);
}

#[test]
fn a_hold_of_which_little_is_left_is_renewed_when_a_third_of_that_is_over() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let left = Duration::from_millis(150);
    let now = case.claim.config.place_ttl - terms::margin(PLACE) - left;
    assert!(case.push(now));
    assert_eq!(case.claim.due_at(), Some(case.start + now + left / 3));
    assert!(matches!(case.watchdog_step(now + left / 6), WatchdogStep::Wait(_)), "hardly earlier");
}

#[test]
fn a_late_grant_by_a_heartbeat_leaves_the_next_heartbeat_where_it_was() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let nearly_over = Renewal::Granted { token: TOKEN, lease: Duration::from_millis(2) };
    assert_eq!(case.renewed(3 * S, nearly_over), AfterRenewal::Nothing);
    assert_eq!(case.claim.due_at(), Some(case.start + 3 * S + PLACE / 3));
}

/// Answers to commands that were under way together.
#[test]
fn an_answer_that_an_earlier_one_has_overtaken_takes_no_time_away() {
    let case = Case::new();
    case.step(NOW);
    case.queued(2 * S);
    case.queued(S);
    assert_eq!(silent_for(&case.claim, case.start + 2 * S), Some(NOW));
    case.push(3 * S);
    let until = case.start + 2 * S + PLACE - terms::margin(PLACE);
    assert_eq!(case.claim.valid_until(), Some(until));
    case.renewed(5 * S, Renewal::Renewed);
    case.renewed(4 * S, Renewal::Renewed);
    assert_eq!(case.claim.valid_until(), Some(case.start + 5 * S + LEASE - terms::margin(LEASE)));
}
