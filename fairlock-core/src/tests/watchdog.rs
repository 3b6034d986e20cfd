//! The rounds of the watchdog: what goes together, what waits, and what ends it.

use super::logger::lines_about;
use super::scene::*;
use super::store::Op;
use super::support::{S, ms};

#[test]
fn a_hold_is_renewed_three_times_a_lease() {
    let s = threads().a().locks().pass(100 * S).called(RENEW, 10).a().is_held().stats(|s| s.renewals, 10);
    s.stats(|s| s.late_renewals, 0).a().unlocks().done().forget_asked().pass(100 * S).asked_nothing();
}

#[test]
fn a_place_is_renewed_three_times_its_time_to_live() {
    let s = threads().acquire().says(rank(0)).a().requests().pass(9 * S);
    s.at(
        RENEW,
        [ns(1_666_666_666), ns(3_333_333_332), ns(4_999_999_998), ns(6_666_666_664), ns(8_333_333_330)],
    );
}

#[test]
fn what_comes_due_soon_goes_with_what_is_due() {
    threads().a().locks().pass(2 * S).b().locks().pass(8 * S).asked([ACQUIRE, ACQUIRE, RENEW.of(2)]);
}

/// A renewal that fails is repeated at once and then with pauses. The first repeat is at once, and once more after an answer.
#[test]
fn a_failed_renewal_is_repeated_at_once_then_with_pauses() {
    let s = threads().a().locks().renew().says(DOWN.times(3)).pass(12 * S).called(RENEW, 4);
    s.at(RENEW, [ms(9698)..=ms(9698), ms(9698)..=ms(9698), ms(9723)..=ms(9748), ms(9773)..=ms(9848)]);
    s.a().is_held().stats(|s| s.late_renewals, 1).forget_asked().renew().says(DOWN).pass(10 * S);
    s.called(RENEW, 2).at(RENEW, [19 * S..=20 * S, 19 * S..=20 * S]).stats(|s| s.late_renewals, 2);
}

/// The renewal is repeated with the same pauses.
#[test]
fn a_senseless_answer_is_no_answer() {
    let s = threads().a().locks().renew().says(rank(0).times(3)).pass(12 * S).called(RENEW, 4);
    let s = s.at(RENEW, [ms(9698)..=ms(9698), ms(9698)..=ms(9698), ms(9723)..=ms(9748), ms(9773)..=ms(9848)]);
    s.pass(18 * S).a().is_held();
}

/// Its caller has asked meanwhile, and has the lock.
#[test]
fn a_hold_is_not_lost_by_the_late_news_that_its_place_was_gone() {
    let s = threads().acquire().says(rank(0)).a().locks().renew().takes(S).renew().says(GONE).pass(2 * S);
    s.a().is_renewing().is_woken().gets(1001).pass(S).a().is_held().stats(|s| s.lost, 0);
}

/// A place without a ticket that is gone is counted and asked for again.
#[test]
fn a_lost_place_without_a_ticket_is_asked_for_again() {
    let s = threads().acquire().says(rank(0).time(60 * S).ticket(0).times(2)).a().requests();
    s.renew().says(GONE).pass(2 * S).stats(|s| s.places_lost, 1).asked([ACQUIRE, RENEW, ACQUIRE]);
}

/// In one call, also for callers that wait: each by itself would be a call.
#[test]
fn the_watchdog_asks_for_places_that_are_gone() {
    let s = threads().acquire().says(rank(0).time(60 * S).ticket(5).times(3)).a().locks().b().on(A).locks();
    s.c().on(A).locks().forget_asked().renew().says(GONE.times(3));
    s.acquire().says(rank(0).time(60 * S).ticket(5).times(3)).pass(2 * S);
    s.asked([RENEW.of(3), ACQUIRE.by_dog(), ACQUIRE.by_dog(), ACQUIRE.by_dog()]).stats(|s| s.places_lost, 0);
    s.a().is_pushed(1001).b().is_pushed(1002).c().is_pushed(1003).a().gets(1001).b().gets(1002);
    s.c().gets(1003);
}

/// A loss is reported in time while the watchdog waits for a release or an ask.
#[test]
fn a_loss_is_reported_in_time_while_the_watchdog_waits() {
    let s = threads().a().fixed(3 * S).locks().b().locks().release().says(DOWN).release().takes(ms(0));
    s.release().takes(8 * S).b().drops().pass(3 * S).a().hears(LeaseOver);
    let s = threads().a().fixed(3 * S).locks().acquire().says(rank(0).times(2)).b().requests();
    s.acquire().takes(8 * S).b().is_woken().pass(3 * S).a().hears(LeaseOver);
}

/// A slow round makes the next ones renew earlier for a while only.
#[test]
fn a_slow_round_makes_the_next_ones_earlier_for_a_while() {
    threads().a().locks().renew().takes(3 * S).pass(200 * S).called(RENEW, 19..=24).a().is_held();
}

/// A repeated ask that is answered ends the pause for those that fail later. Its caller's ask, the watchdog's, and one after the
/// claim's own pause.
#[test]
fn an_answered_repeat_ends_the_pause_of_asks() {
    let s = threads().a().is_cut().b().is_cut().a().requests().pass(3 * S).a().is_back().pass(S);
    s.a().decided().b().requests().pass(ms(60)).called(ACQUIRE.about(B), 3);
}

#[test]
fn a_request_whose_first_call_is_not_answered_is_still_granted() {
    let s = threads().a().locks().unlocks().done().pass(60 * S); // the watchdog sleeps without an end
    s.acquire().says(DOWN).a().requests().decided().waits().gets(1002);
}

/// The next waiter of a client rechecks when the fixed lease before it ends. A hold that ends by its own terms causes no message.
#[test]
fn the_next_waiter_looks_when_a_fixed_lease_ends() {
    let s = threads().a().fixed(ms(500)).acquire().says([rank(0).time(30 * S), rank(1)]).a().requests();
    s.b().on(A).requests().a().is_pushed(9).renew().says(got(10)).pass(ms(510)).at(RENEW, [ms(500)]);
    s.b().decided();
}

/// A hold that was handed over survives an outage of more than its place's time. Its lease is raised after a tenth of a second.
#[test]
fn a_handed_over_hold_survives_a_longer_outage() {
    let s = threads().acquire().says(rank(0)).a().requests().is_pushed(9).waits().gets(9).valid(ms(4948));
    s.pass(ms(100)).a().valid(ms(29_698)).renew().is_down().pass(19 * S).a().is_held();
}

#[test]
fn a_short_critical_section_is_not_renewed() {
    let s = threads().acquire().says(rank(0)).a().requests().is_pushed(9).waits().gets(9).pass(ms(80));
    s.a().unlocks().done().asked([ACQUIRE, RELEASE]);
}

/// As if the process had stood still for longer than any lease.
#[test]
fn after_a_jump_to_the_last_time_holds_are_lost_and_locks_work() {
    let s = threads().a().locks().jump(EVER).a().is_lost().drops().locks().gets(1002).renews().sure();
    s.a().unlocks().done().jump(EVER).a().locks().gets(1003).renews().sure().unlocks().done();
    s.x().shuts_down().done();
}

#[test]
fn an_ask_that_panics_is_repeated() {
    let s = threads().acquire().says(rank(0)).a().requests().acquire().panics(1).a().is_woken().pass(2 * S);
    s.a().decided().called(ACQUIRE, 3);
}

/// Requests without a caller fail after the outage limit and are withdrawn. However many there are.
#[test]
fn requests_without_a_caller_fail_and_are_withdrawn() {
    let s = threads().acquire().is_down();
    let each = |does: fn(By) -> By| (0..200).for_each(|n| _ = does(s.by(&format!("waiter {n}"))));
    each(|waiter| waiter.requests());
    s.forget_asked().pass(9 * S);
    each(|waiter| waiter.pending());
    s.pass(2 * S).called(ACQUIRE, 10..=80).called(WITHDRAW, 200).log(0..=2, "");
    each(|waiter| waiter.decided());
    each(|waiter| waiter.waits().fails(Unavailable));
}

#[test]
fn a_hold_that_the_server_has_lost_is_lost_with_one_line() {
    let s = threads().by("watchdog:lost").locks().renew().says(GONE).pass(10 * S);
    s.by("watchdog:lost").hears(Taken);
    let said = lines_about("lock `watchdog:lost` was lost by");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn holds_are_renewed_before_places() {
    let s = threads().acquire().says(rank(0).times(20));
    (0..20).for_each(|n| _ = s.by(&format!("waiter {n}")).requests());
    s.a().locks().forget_asked().jump(10 * S).asked(RENEW.of(21).about(A));
}

#[test]
fn the_request_that_was_made_first_is_asked_for_first() {
    let s = threads().acquire().says(rank(0).times(40));
    let names: Vec<_> = (0..20).map(|n| format!("waiter {n}")).collect();
    names.iter().for_each(|name| _ = s.by(name).requests().pass(ms(1)));
    s.acquire().takes(ms(100)).by(&names[0]).is_woken().is_asking();
    names[1..].iter().for_each(|name| _ = s.by(name).is_woken());
    let calls: Vec<_> = names[1..].iter().map(|name| ACQUIRE.about(name)).collect();
    s.forget_asked().pass(ms(100)).asked(calls);
}

/// A quick round halves the time that the next one is thought to take.
#[test]
fn a_quick_round_halves_the_expected_time_of_the_next() {
    let s = threads().a().locks().renew().takes(3 * S).pass(14 * S);
    assert_eq!(*s.shared.timers.meanwhile.lock(), 3 * S);
    s.pass(10 * S).called(RENEW, 2);
    assert_eq!(*s.shared.timers.meanwhile.lock(), ms(1500));
}

/// Renewals go between two slow calls for requests without a caller. The heartbeats come due while the first call is under way.
/// All the others are due when it is over.
#[test]
fn renewals_go_between_two_slow_calls() {
    const ASKS: usize = crate::config::MOST_AT_ONCE + 1;
    let s = threads().acquire().says(rank(0).times(2 * ASKS + 2));
    let each = |does: fn(By) -> By| (0..ASKS).for_each(|n| _ = does(s.by(&format!("waiter {n}"))));
    s.a().requests();
    each(|waiter| waiter.requests());
    s.acquire().takes(S).a().is_woken().acquire().takes(2 * S);
    each(|waiter| waiter.is_woken());
    s.forget_asked().pass(3 * S).called(ACQUIRE, ASKS);
    let ops = s.store.ops();
    let last = ops.iter().rposition(|op| *op == Op::Acquire).unwrap();
    assert_eq!(ops[last - 1], Op::Renew);
}

/// A first ask that is answered does not end the pause of those that failed. Another server keeps the locks that no call gets.
/// The repeat of the last waits for the pause of all.
#[test]
fn an_answered_first_ask_ends_no_pause() {
    let s = threads();
    s.acquire().says(rank(0)).a().requests().b().is_cut().c().is_cut().b().requests();
    for _ in 0..100 {
        if s.store.calls_about("b", Op::Acquire) < 6 {
            s.clock.step(S);
        }
    }
    s.called(ACQUIRE.about(B), 6); // it has failed just now
    s.acquire().says(rank(0)).a().is_woken().called(ACQUIRE.about(A), 2).c().requests();
    s.called(ACQUIRE.about(C), 1);
}

#[test]
fn a_renewal_that_panics_is_repeated_with_growing_pauses() {
    let s = threads();
    s.by("watchdog:panics").locks().renew().panics(3).pass(12 * S).by("watchdog:panics").is_held();
    s.called(RENEW, 4);
    let renewals = s.store.times(Op::Renew);
    assert!(renewals[2] > renewals[1] && renewals[3] > renewals[2], "{renewals:?}");
    let said =
        lines_about("the thread fairlock-dog panicked, and goes on: planned: Renew of watchdog:panics");
    assert_eq!(said.len(), 1, "one line a minute: {said:?}");
}

/// A backend that panics in every renewal is tried with pauses and its holds are lost in time. When the panics end, the next hold
/// is renewed as usual.
#[test]
fn a_backend_that_panics_in_renewals_is_tried_with_pauses() {
    let s = threads().by("watchdog:always").locks().renew().panics(9999).pass(ms(29_700));
    s.by("watchdog:always").hears(NotRenewed).called(RENEW, 15..=100).by("watchdog:always").drops();
    s.renew().panics(0).pass(S).by("watchdog:always").locks().gets(1002).pass(100 * S);
    s.by("watchdog:always").is_held().log(1, "");
    assert_eq!(lines_about("planned: Renew of watchdog:always").len(), 1);
}

#[test]
fn the_threads_of_a_client_end_with_its_last_handle() {
    let s = threads();
    s.a().locks().pass(10 * S).a().drops();
    let (_, clock, gone) = s.without_handles();
    clock.advance(60 * S);
    assert!(gone.upgrade().is_none());
}
