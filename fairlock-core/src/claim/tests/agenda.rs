//! When a claim is next due: retries, rechecks, and requests on which no caller waits.

use super::*;

stories! {
    /// A hold that has not failed yet is not tried either while the client pauses: it has time.
    fn a_hold_waits_for_the_pause_of_its_client() {
        "caller asks; answer got/7; pauses renewals 11s; at 10s; dog waits 11s; at 11s; dog renews-hold"
    }

    /// Nothing comes before its end.
    fn a_renewal_that_is_under_way_is_not_due_again() {
        "caller asks; answer got/7; at 15s; dog renews-hold; dog waits 29698ms; renewal-over; dog renews-hold"
    }

    /// The first retry is at once; but it goes with the other retries of its client. One thread asks at a time.
    fn a_request_whose_first_ask_is_not_answered_is_asked_again_by_the_watchdog() {
        "caller asks; answer down Nothing; leave 0s; dog asks; pauses asks 1s; dog waits 1s; begin-to-ask yes
        begin-to-ask no"
    }

    /// The watchdog has to recheck, when its caller does not.
    fn a_request_on_which_no_caller_waits_rechecks_when_the_holders_lease_ends() {
        "caller asks; answer rank/0/1s; due 1666666666ns; caller sleeps 1s; leave 1s; dog waits 1s; at 1s; dog asks"
    }

    /// If the server was only not asked, it is asked: the answer to a renewal is still to come.
    fn a_request_on_which_no_caller_waits_fails_after_the_outage_limit() {
        "caller asks; answer rank/1; leave; at 2s; beat down; at 9s; dog renews-place; at 10s; dog gives-up; caller fails"
        "caller asks; answer rank/1; leave; at 2s; dog renews-place; at 10s; dog asks"
    }

    fn a_claim_that_leaves_passes_its_recheck_on_once() {
        "waits 1s; caller asks; answer rank/0/1100ms; take-recheck none (it still waits); at 1s; caller gives-up
        take-recheck 1100ms; take-recheck none"
    }

    /// It has no place that could recheck before it asks. A heartbeat that was under way may have been answered before the
    /// holder's lease ended.
    fn a_recheck_that_was_passed_on_is_kept_until_it_is_done() {
        "recheck 1100ms no; caller asks; answer rank/1; recheck 1100ms yes; due 1100ms; at 600ms; beat rank/1; due 1100ms
        at 1100ms; beat rank/1; due 2766666666ns"
    }

    /// A round of the watchdog before that does not renew: it costs a fast line nothing.
    fn a_hold_that_was_handed_over_is_raised_to_the_full_lease_after_a_tenth_of_a_second() {
        "caller asks; answer rank/1; at 2s; push yes; at 2089ms; dog waits 2100ms; at 2100ms; dog renews-hold 1 30s
        beat done; renewal-over; until 31798ms; due 12100ms"
    }

    /// With others already when two thirds of that time are over.
    fn a_hold_with_a_full_lease_is_renewed_when_two_thirds_of_it_are_left() {
        "caller asks; answer got/7; due 9698ms; at 6365ms; dog waits; at 6566ms; dog renews-hold"
    }

    /// A lease of two milliseconds is all margin. The same by a heartbeat, which is not repeated at once either.
    fn a_grant_that_is_nearly_over_is_not_asked_about_again_before_its_end() {
        "caller asks; at 1s; answer got/7/2ms Nothing; caller sleeps 1003ms; at 1003ms; caller asks; answer rank/1; leave
        at 3s; dog renews-place; beat got/7/2ms Nothing; renewal-over; dog waits 3003ms; at 3003ms; dog asks"
    }

    fn a_renewal_that_comes_earlier_for_another_claim_goes_no_earlier_with_others() {
        "caller asks; answer rank/1; recheck 1400ms yes; at 1110ms; dog waits; at 1113ms; dog renews-place"
    }
}

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
fn what_is_not_renewed_is_tried_again_after_the_pause_and_not_before() {
    let hold = Case::after("caller asks; answer got/7");
    let renewals = failed_renewals(&hold, 10 * S, 25 * S);
    assert!((14..=16).contains(&renewals), "{renewals}");
    let place = Case::after("caller asks; answer rank/1");
    let renewals = failed_renewals(&place, 2 * S, 9 * S);
    assert!((6..=8).contains(&renewals), "{renewals}");
}

#[test]
fn a_request_that_fails_without_a_caller_is_decided() {
    let case = Case::after("caller asks; answer rank/1; leave; at 2s; beat down");
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    let _case = case.tell("at 9s; dog renews-place; at 10s; dog gives-up");
    assert!(decided.try_recv().is_ok());
}
