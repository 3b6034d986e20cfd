//! When a claim is next due: retries, rechecks, and requests on which no caller waits.

use super::*;

/// How often the watchdog renews the claim in that time if no renewal is answered. The pause of the client's retries is one
/// second.
fn failed_renewals(case: &Case, from: Duration, until: Duration) -> u32 {
    let (mut at, mut renewals, mut pauses) = (from, 0, Pauses::default());
    for _ in 0..10_000 {
        let times = RoundTimes { pauses, ..case.times(at) };
        match case.claim.watchdog_step(&times) {
            WatchdogStep::RenewHold { .. } | WatchdogStep::RenewPlace { .. } => {
                renewals += 1;
                let after = case.claim.renewed(Err(unavailable()), times.now, LEASE, times.now);
                assert_eq!(after, AfterRenewal::Unanswered);
                case.claim.renewal_done();
                pauses.renewals = Some(times.now + S);
            }
            WatchdogStep::Wait(Some(next)) => at = next - case.start,
            other => panic!("{other:?}"),
        }
        if at >= until {
            return renewals;
        }
    }
    panic!("it spins: {renewals} renewals");
}

#[test]
fn a_hold_that_is_not_renewed_is_tried_again_after_the_pause_and_not_before() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let renewals = failed_renewals(&case, 10 * S, 25 * S);
    assert!((14..=16).contains(&renewals), "{renewals}");
    // A hold that has not failed yet is not tried either while the client pauses: it has time.
    let other = Case::new();
    other.step(NOW);
    other.granted(NOW);
    let pauses = Pauses { renewals: Some(other.start + 11 * S), asks: None };
    let times = RoundTimes { pauses, ..other.times(10 * S) };
    assert!(
        matches!(other.claim.watchdog_step(&times), WatchdogStep::Wait(Some(at)) if at == other.start + 11 * S)
    );
    let times = RoundTimes { pauses, ..other.times(11 * S) };
    assert!(matches!(other.claim.watchdog_step(&times), WatchdogStep::RenewHold { .. }));
}

#[test]
fn a_place_that_is_not_renewed_is_tried_again_after_the_pause_and_not_before() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let renewals = failed_renewals(&case, 2 * S, 9 * S);
    assert!((6..=8).contains(&renewals), "{renewals}");
}

#[test]
fn a_renewal_that_is_under_way_is_not_due_again() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.watchdog_step(15 * S), WatchdogStep::RenewHold { .. }));
    let WatchdogStep::Wait(Some(at)) = case.watchdog_step(15 * S) else { panic!() };
    assert_eq!(Some(at), case.claim.valid_until(), "nothing comes before its end");
    case.claim.renewal_done();
    assert!(matches!(case.watchdog_step(15 * S), WatchdogStep::RenewHold { .. }));
}

#[test]
fn a_request_whose_first_ask_is_not_answered_is_asked_again_by_the_watchdog() {
    let case = Case::new();
    case.step(NOW);
    assert_eq!(case.answer(NOW, Err(unavailable())), AfterAnswer::Nothing);
    let due = case.claim.stop_attending();
    assert_eq!(due, Some(case.start), "the first retry is at once");
    assert!(matches!(case.watchdog_step(NOW), WatchdogStep::Ask(_)));
    // But it goes with the other retries of its client.
    let pauses = Pauses { renewals: None, asks: Some(case.start + S) };
    let times = RoundTimes { pauses, ..case.times(NOW) };
    assert!(matches!(case.claim.watchdog_step(&times), WatchdogStep::Wait(Some(at)) if at == case.start + S));
    assert!(case.claim.begin_to_ask() && !case.claim.begin_to_ask(), "one thread asks at a time");
}

#[test]
fn a_request_on_which_no_caller_waits_rechecks_when_the_holders_lease_ends() {
    let case = Case::new();
    case.step(NOW);
    case.answer(NOW, Ok(Acquired::Queued { rank: 0, recheck_in: S, ticket: 1, latest: 1 }));
    assert_eq!(case.claim.due_at(), Some(case.start + PLACE / 3), "its caller rechecks");
    assert!(matches!(case.step(NOW), CallerStep::Sleep(Some(at)) if at == case.start + S));
    assert_eq!(case.claim.stop_attending(), Some(case.start + S), "the watchdog has to recheck");
    assert!(matches!(case.watchdog_step(NOW), WatchdogStep::Wait(Some(at)) if at == case.start + S));
    assert!(matches!(case.watchdog_step(S), WatchdogStep::Ask(_)));
}

#[test]
fn a_request_on_which_no_caller_waits_fails_after_the_outage_limit() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.claim.stop_attending();
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    case.claim.renewed(Err(unavailable()), case.start + 2 * S, LEASE, case.start + 2 * S);
    assert!(matches!(case.watchdog_step(9 * S), WatchdogStep::RenewPlace { .. }));
    assert!(matches!(case.watchdog_step(OUTAGE), WatchdogStep::GivenUp), "it asks no more");
    assert!(decided.try_recv().is_ok());
    assert!(matches!(case.step(OUTAGE), CallerStep::Failed(Failure::Backend(_))));
    // If the server was only not asked, it is asked.
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.claim.stop_attending();
    assert!(matches!(case.watchdog_step(S * 2), WatchdogStep::RenewPlace { .. })); // its answer is still to come
    assert!(matches!(case.watchdog_step(OUTAGE), WatchdogStep::Ask(_)));
}

#[test]
fn a_claim_that_leaves_passes_its_recheck_to_another_one_which_keeps_it_until_it_is_done() {
    let (first, second) = (Case::with(Wait::UpTo(S), Terms::Renewed(LEASE)), Case::new());
    first.step(NOW);
    first.answer(NOW, Ok(Acquired::Queued { rank: 0, recheck_in: S + S / 10, ticket: 1, latest: 1 }));
    assert_eq!(first.claim.take_recheck(), None, "it still waits");
    assert!(matches!(first.step(S), CallerStep::GiveUp(_)));
    let at = first.claim.take_recheck().unwrap();
    assert_eq!((at, first.claim.take_recheck()), (first.start + S + S / 10, None));

    assert!(!second.claim.recheck_by(at), "it has no place that could recheck");
    second.step(NOW);
    second.queued(NOW);
    assert!(second.claim.recheck_by(at));
    assert_eq!(second.claim.due_at(), Some(at));
    // A heartbeat that was under way may have been answered before the holder's lease ended.
    let waiting = Renewal::Waiting { rank: 1, recheck_in: Duration::MAX, latest: 1 };
    second.claim.renewed(Ok(waiting), at - S / 2, LEASE, at);
    assert_eq!(second.claim.due_at(), Some(at));
    second.claim.renewed(Ok(waiting), at, LEASE, at);
    assert_eq!(second.claim.due_at(), Some(at + PLACE / 3));
}

#[test]
fn a_hold_that_was_handed_over_is_raised_to_the_full_lease_after_a_tenth_of_a_second() {
    let case = Case::new();
    let ms = Duration::from_millis;
    case.step(NOW);
    case.queued(NOW);
    case.push(2 * S);
    // A round of the watchdog before that does not renew: it costs a fast line nothing.
    let raised_at = case.start + 2 * S + ms(100);
    assert!(matches!(case.watchdog_step(2 * S + ms(89)), WatchdogStep::Wait(Some(at)) if at == raised_at));
    let WatchdogStep::RenewHold { lease, .. } = case.watchdog_step(2 * S + ms(100)) else { panic!() };
    assert_eq!(lease, LEASE);
    case.renewed(2 * S + ms(100), Renewal::Renewed);
    case.claim.renewal_done();
    assert_eq!(case.claim.valid_until().unwrap(), raised_at + LEASE - terms::margin(LEASE));
    assert_eq!(case.claim.due_at(), Some(raised_at + LEASE / 3));
}

#[test]
fn a_hold_with_a_full_lease_is_renewed_when_two_thirds_of_it_are_left() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let due = case.claim.due_at().unwrap() - case.start;
    assert_eq!(due, LEASE / 3 - terms::margin(LEASE));
    assert!(matches!(case.watchdog_step(due / 3 * 2 - S / 10), WatchdogStep::Wait(_)));
    assert!(
        matches!(case.watchdog_step(due / 3 * 2 + S / 10), WatchdogStep::RenewHold { .. }),
        "with others"
    );
}

/// A lease of two milliseconds is all margin.
#[test]
fn a_grant_that_is_nearly_over_is_not_asked_about_again_before_its_end() {
    let ms = Duration::from_millis;
    let case = Case::new();
    case.step(NOW);
    assert_eq!(case.answer(S, Ok(Acquired::Granted { token: TOKEN, lease: ms(2) })), AfterAnswer::Nothing);
    assert!(matches!(case.step(S), CallerStep::Sleep(Some(at)) if at == case.start + S + ms(3)));
    assert!(matches!(case.step(S + ms(3)), CallerStep::Ask));
    // The same by a heartbeat, which is not repeated at once either.
    case.queued(S + ms(3));
    case.claim.stop_attending();
    assert!(matches!(case.watchdog_step(3 * S), WatchdogStep::RenewPlace { .. }));
    let granted = Renewal::Granted { token: TOKEN, lease: ms(2) };
    assert_eq!(case.renewed(3 * S, granted), AfterRenewal::Nothing);
    case.claim.renewal_done();
    assert!(
        matches!(case.watchdog_step(3 * S), WatchdogStep::Wait(Some(at)) if at == case.start + 3 * S + ms(3))
    );
    assert!(matches!(case.watchdog_step(3 * S + ms(3)), WatchdogStep::Ask(_)));
}

#[test]
fn a_renewal_that_comes_earlier_for_another_claim_goes_no_earlier_with_others() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    assert!(case.claim.recheck_by(case.start + 7 * S / 5));
    let gathered_from = PLACE / 3 - PLACE / 9;
    let nearly = gathered_from - Duration::from_millis(1);
    assert!(matches!(case.watchdog_step(nearly), WatchdogStep::Wait(_)));
    assert!(matches!(
        case.watchdog_step(gathered_from + Duration::from_millis(1)),
        WatchdogStep::RenewPlace { .. }
    ));
}
