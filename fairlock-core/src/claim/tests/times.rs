//! The very moments at which a hold begins and ceases to be certain, and at which a renewal is late.

use super::*;

/// All of a lease that is certain.
const CERTAIN: Duration = Duration::from_millis(29_698);
const JUST_BEFORE: Duration = Duration::from_nanos(29_697_999_999);

/// It is due at 9698 ms, and 10 s after that half of the time is over.
#[test]
fn a_renewal_is_late_when_more_than_half_of_its_time_is_over() {
    held().at(S).beat(DONE).is(AfterRenewal::Renewed(Punctuality::InTime)); // before it was due
    held().at(ms(19_698)).beat(DONE).is(AfterRenewal::Renewed(Punctuality::InTime));
    held().at(ns(19_698_000_001)).beat(DONE).is(AfterRenewal::Renewed(Punctuality::Late));
}

/// A renewal that took two attempts is late and the next one is not.
#[test]
fn a_renewal_that_took_two_attempts_is_late() {
    let c = held().at(S).beat(DOWN).is(AfterRenewal::Unanswered);
    let c = c.beat(DONE).is(AfterRenewal::Renewed(Punctuality::Late)).at(2 * S);
    c.beat(DONE).is(AfterRenewal::Renewed(Punctuality::InTime));
}

/// No renewal lasts longer than to its end, and when nothing but its end is left none is due.
#[test]
fn a_capped_hold_is_renewed_until_a_renewal_reaches_its_end() {
    let c = claim().capped(70 * S).caller().asks().answer(got(7)).at(10 * S).beat(DONE).due(20 * S);
    let c = c.at(50 * S).renewal().none().at(39 * S).beat(DONE).due(49 * S).at(50 * S);
    let c = c.renewal().is(Some((1, 20 * S))).at(40 * S).beat(DONE).until(ms(69_698)).due(ms(69_698));
    c.at(ms(69_698)).loss(LostCause::MaxHold);
}

#[test]
fn a_capped_hold_that_is_not_renewed_ends_for_that_reason() {
    claim().capped(70 * S).caller().asks().answer(got(7)).at(30 * S).loss(LostCause::NotRenewed);
}

#[test]
fn a_holder_that_renews_a_fixed_lease_begins_it_anew() {
    let c = claim().fixed(30 * S).caller().asks().answer(got(7)).at(9 * S).renewal().is(Some((1, 30 * S)));
    c.beat(DONE).until(ms(38_698)).at(ms(38_698)).loss(LostCause::LeaseOver);
}

/// A hold of which little is left is renewed when a third of that is over. Of the place 150 ms are left, and hardly earlier.
#[test]
fn a_hold_with_little_left_is_renewed_after_a_third() {
    in_queue().at(ms(4798)).push().yes().due(ms(4848)).at(ms(4823)).dog().waits();
}

/// A late grant by a heartbeat leaves the next heartbeat where it was.
#[test]
fn a_late_grant_does_not_move_the_next_heartbeat() {
    in_queue().at(3 * S).beat(got(7).time(ms(2))).is(AfterRenewal::Nothing).due(ns(4_666_666_666));
}

/// An answer that an earlier one has overtaken takes no time away. Answers to commands that were under way together.
#[test]
fn an_overtaken_answer_takes_no_time_away() {
    let c = claim().caller().asks().at(2 * S).answer(rank(1)).at(S).answer(rank(1)).at(2 * S).silent(ms(0));
    let c = c.at(3 * S).push().yes().until(ms(6948)).at(5 * S).beat(DONE).at(4 * S).beat(DONE);
    c.until(ms(34_698));
}

#[test]
fn a_hold_is_certain_until_its_deadline_and_not_at_it() {
    let case = claim().caller().asks().answer(got(7));
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
    assert!(matches!(claim.join(LockKind::Fair, 1, before), Joined::Held { .. }));
    assert!(matches!(claim.unlock(before), Unlocked::StillHeld));
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
        let case = claim().fixed(30 * S).caller().asks();
        let granted = Ok(Acquired::Granted { token: TOKEN, lease: LEASE });
        case.claim.answered(granted, case.start, case.start + answered_after);
        let case = case.leave().due(ms(29_698)).at(20 * S).dog().waits_until(ms(29_698));
        assert_eq!(case.claim.take_grant().recheck_at, Some(case.start + LEASE), "others look at its end");
    }
}

/// A store may say that a hold has no end.
#[test]
fn a_fixed_lease_that_was_granted_for_ever_is_a_hold() {
    let case = claim().fixed(30 * S).caller().asks().answer(got(7).time(Duration::MAX)).count(1).leave();
    assert_eq!(case.claim.due_at(), case.claim.valid_until(), "no renewal is due");
}
