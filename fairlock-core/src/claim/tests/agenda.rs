//! When a claim is next due: retries, rechecks, and requests on which no caller waits.

use super::*;

/// A hold that has not failed yet is not tried either while the client pauses: it has time.
#[test]
fn a_hold_waits_for_the_pause_of_its_client() {
    let c = held().pauses_renewals(11 * S).at(10 * S).dog().waits_until(11 * S).at(11 * S);
    c.dog().renews_hold();
}

/// Nothing comes before its end.
#[test]
fn a_renewal_that_is_under_way_is_not_due_again() {
    let c = held().at(15 * S).dog().renews_hold().dog().waits_until(ms(29_698)).renewal_over();
    c.dog().renews_hold();
}

/// A request whose first ask is not answered is asked again by the watchdog. The first retry is at once; but it goes with the
/// other retries of its client. One thread asks at a time.
#[test]
fn the_watchdog_repeats_an_unanswered_first_ask() {
    let c = claim().caller().asks().answer(DOWN).is(AfterAnswer::Nothing).leave().is(Some(ms(0)));
    c.dog().asks().pauses_asks(S).dog().waits_until(S).begin_to_ask().yes().begin_to_ask().no();
}

/// A request on which no caller waits rechecks when the holder's lease ends. The watchdog has to recheck, when its caller does
/// not.
#[test]
fn a_request_without_a_caller_looks_when_the_lease_ends() {
    let c = claim().caller().asks().answer(rank(0).time(S)).due(ns(1_666_666_666)).caller().waits_until(S);
    c.leave().is(Some(S)).dog().waits_until(S).at(S).dog().asks();
}

/// A request on which no caller waits fails after the outage limit. If the server was only not asked, it is asked: the answer to
/// a renewal is still to come.
#[test]
fn a_request_without_a_caller_fails_after_the_outage_limit() {
    let c =
        in_queue().leave().at(2 * S).beat(DOWN).at(9 * S).dog().renews_place().at(10 * S).dog().gives_up();
    c.caller().fails();
    in_queue().leave().at(2 * S).dog().renews_place().at(10 * S).dog().asks();
}

#[test]
fn a_claim_that_leaves_passes_its_recheck_on_once() {
    // it still waits
    let c = claim().tries_for(S).caller().asks().answer(rank(0).time(ms(1100))).take_recheck().none();
    c.at(S).caller().gives_up().take_recheck().is(Some(ms(1100))).take_recheck().none();
}

/// It has no place that could recheck before it asks. A heartbeat that was under way may have been answered before the
/// holder's lease ended.
#[test]
fn a_recheck_that_was_passed_on_is_kept_until_it_is_done() {
    let c = claim().recheck(ms(1100)).no().caller().asks().answer(rank(1)).recheck(ms(1100)).yes();
    let c = c.due(ms(1100)).at(ms(600)).beat(rank(1)).due(ms(1100)).at(ms(1100)).beat(rank(1));
    c.due(ns(2_766_666_666));
}

/// A hold that was handed over is raised to the full lease after a tenth of a second. A round of the watchdog before that does
/// not renew: it costs a fast queue nothing.
#[test]
fn a_handed_over_hold_gets_the_full_lease_after_100_ms() {
    let c = in_queue().at(2 * S).push().yes().at(ms(2089)).dog().waits_until(ms(2100)).at(ms(2100));
    c.dog().renews_hold_for(1, 30 * S).beat(DONE).renewal_over().until(ms(31_798)).due(ms(12_100));
}

/// A hold with a full lease is renewed when two thirds of it are left. With others already when two thirds of that time are over.
#[test]
fn a_hold_is_renewed_when_two_thirds_of_the_lease_are_left() {
    held().due(ms(9698)).at(ms(6365)).dog().waits().at(ms(6566)).dog().renews_hold();
}

/// A grant that is nearly over is not asked about again before its end. A lease of two milliseconds is all margin. The same by a
/// heartbeat, which is not repeated at once either.
#[test]
fn a_grant_that_is_nearly_over_is_not_asked_about() {
    let c = claim().caller().asks().at(S).answer(got(7).time(ms(2))).is(AfterAnswer::Nothing);
    let c = c.caller().waits_until(ms(1003)).at(ms(1003)).caller().asks().answer(rank(1)).leave().at(3 * S);
    let c = c.dog().renews_place().beat(got(7).time(ms(2))).is(AfterRenewal::Nothing).renewal_over();
    c.dog().waits_until(ms(3003)).at(ms(3003)).dog().asks();
}

/// A renewal that comes earlier for another claim goes no earlier with others.
#[test]
fn an_early_renewal_goes_no_earlier_with_others() {
    in_queue().recheck(ms(1400)).yes().at(ms(1110)).dog().waits().at(ms(1113)).dog().renews_place();
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

/// What is not renewed is tried again after the pause and not before.
#[test]
fn what_is_not_renewed_is_tried_again_after_the_pause() {
    let hold = claim().caller().asks().answer(got(7));
    let renewals = failed_renewals(&hold, 10 * S, 25 * S);
    assert!((14..=16).contains(&renewals), "{renewals}");
    let place = claim().caller().asks().answer(rank(1));
    let renewals = failed_renewals(&place, 2 * S, 9 * S);
    assert!((6..=8).contains(&renewals), "{renewals}");
}

#[test]
fn a_request_that_fails_without_a_caller_is_decided() {
    let case = in_queue().leave().at(2 * S).beat(DOWN);
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    let _case = case.at(9 * S).dog().renews_place().at(10 * S).dog().gives_up();
    assert!(decided.try_recv().is_ok());
}
