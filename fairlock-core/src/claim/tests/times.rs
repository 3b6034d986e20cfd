//! The very moments at which a hold begins and ceases to be certain, and at which a renewal is late.

use super::*;

/// All of a lease that is certain.
const CERTAIN: Duration = Duration::from_millis(29_698);
const JUST_BEFORE: Duration = Duration::from_nanos(29_697_999_999);

stories! {
    /// It is due at 9698 ms, and 10 s after that half of the time is over.
    fn a_renewal_is_late_when_more_than_half_of_its_time_is_over() {
        "caller asks; answer got/7; at 1s; beat done Renewed InTime (before it was due)"
        "caller asks; answer got/7; at 19698ms; beat done Renewed InTime"
        "caller asks; answer got/7; at 19698000001ns; beat done Renewed Late"
    }

    fn a_renewal_that_took_two_attempts_is_late_and_the_next_one_is_not() {
        "caller asks; answer got/7; at 1s; beat down Unanswered; beat done Renewed Late; at 2s; beat done Renewed InTime"
    }

    /// No renewal lasts longer than to its end, and when nothing but its end is left none is due.
    fn a_capped_hold_is_renewed_until_a_renewal_reaches_its_end() {
        "is capped 70s; caller asks; answer got/7; at 10s; beat done; due 20s; at 50s; renewal None; at 39s; beat done
        due 49s; at 50s; renewal 1 20s; at 40s; beat done; until 69698ms; due 69698ms; at 69698ms; loss MaxHold"
    }

    fn a_capped_hold_that_is_not_renewed_ends_for_that_reason() {
        "is capped 70s; caller asks; answer got/7; at 30s; loss NotRenewed"
    }

    fn a_holder_that_renews_a_fixed_lease_begins_it_anew() {
        "is fixed 30s; caller asks; answer got/7; at 9s; renewal 1 30s; beat done; until 38698ms; at 38698ms
        loss LeaseOver"
    }

    /// Of the place 150 ms are left, and hardly earlier.
    fn a_hold_of_which_little_is_left_is_renewed_when_a_third_of_that_is_over() {
        "caller asks; answer rank/1; at 4798ms; push yes; due 4848ms; at 4823ms; dog waits"
    }

    fn a_late_grant_by_a_heartbeat_leaves_the_next_heartbeat_where_it_was() {
        "caller asks; answer rank/1; at 3s; beat got/7/2ms Nothing; due 4666666666ns"
    }

    /// Answers to commands that were under way together.
    fn an_answer_that_an_earlier_one_has_overtaken_takes_no_time_away() {
        "caller asks; at 2s; answer rank/1; at 1s; answer rank/1; at 2s; silent 0s; at 3s; push yes; until 6948ms; at 5s
        beat done; at 4s; beat done; until 34698ms"
    }
}

#[test]
fn a_hold_is_certain_until_its_deadline_and_not_at_it() {
    let case = Case::after("caller asks; answer got/7");
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
fn a_fixed_lease_that_was_granted_as_a_whole_is_not_renewed() {
    for answered_after in [NOW, S] {
        let case = Case::after("is fixed 30s; caller asks");
        let granted = Ok(Acquired::Granted { token: TOKEN, lease: LEASE });
        case.claim.answered(granted, case.start, case.start + answered_after);
        let case = case.tell("leave; due 29698ms; at 20s; dog waits 29698ms");
        assert_eq!(case.claim.take_grant().recheck_at, Some(case.start + LEASE), "others look at its end");
    }
}
