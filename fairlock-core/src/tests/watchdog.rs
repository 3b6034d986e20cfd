//! The rounds of the watchdog: what goes together, what waits, and what ends it.

use super::logger::lines_about;
use super::scene::{Scene, THREADS, play, scenes};
use super::store::Op;
use super::support::{S, ms};

scenes! {
    fn a_hold_is_renewed_three_times_a_lease() {
        THREADS "a locks; pass 100s; called renew 10; a is-held; stats renewals 10; stats late-renewals 0; a unlocks done
        asked ...; pass 100s; asked nothing"
    }

    fn a_place_is_renewed_three_times_its_time_to_live() {
        THREADS "acquire says rank/0; a requests; pass 9s
        at renew 1666666666ns 3333333332ns 4999999998ns 6666666664ns 8333333330ns"
    }

    fn what_comes_due_soon_goes_with_what_is_due() {
        THREADS "a locks; pass 2s; b locks; pass 8s; asked acquire acquire renew/2"
    }

    /// The first repeat is at once, and once more after an answer.
    fn a_renewal_that_fails_is_repeated_at_once_and_then_with_pauses() {
        THREADS "a locks; renew says down*3; pass 12s; called renew 4
        at renew 9698ms 9698ms 9723ms..9748ms 9773ms..9848ms; a is-held; stats late-renewals 1; asked ...
        renew says down; pass 10s; called renew 2; at renew 19s..20s 19s..20s; stats late-renewals 2"
    }

    fn a_senseless_answer_is_no_answer() {
        THREADS "a locks; renew says rank/0; pass 30s; a is-held"
    }

    /// Its caller has asked meanwhile, and has the lock.
    fn a_hold_is_not_lost_by_the_late_news_that_its_place_was_gone() {
        THREADS "acquire says rank/0; a locks; renew takes 1s; renew says lost; pass 2s; a is-renewing; a is-woken
        a gets 1001; pass 1s; a is-held; stats lost 0"
    }

    fn a_place_without_a_ticket_that_is_gone_is_counted_and_asked_for_again() {
        THREADS "acquire says rank/0/60s/0*2; a requests; renew says lost; pass 2s; stats places-lost 1
        asked acquire renew acquire"
    }

    /// In one call, also for callers that wait: each by itself would be a call.
    fn the_watchdog_asks_for_places_that_are_gone() {
        THREADS "acquire says rank/0/60s/5*3; a locks; b@a locks; c@a locks; asked ...; renew says lost*3
        acquire says rank/0/60s/5*3; pass 2s; asked renew/3 acquire!dog acquire!dog acquire!dog; stats places-lost 0
        a is-pushed 1001; b is-pushed 1002; c is-pushed 1003; a gets 1001; b gets 1002; c gets 1003"
    }

    fn a_loss_is_reported_in_time_while_the_watchdog_waits_for_a_release_or_an_ask() {
        THREADS "a is fixed 3s; a locks; b locks; release says down; release takes 0s; release takes 8s; b drops; pass 3s
        a hears LeaseOver"
        THREADS "a is fixed 3s; a locks; acquire says rank/0*2; b requests; acquire takes 8s; b is-woken; pass 3s
        a hears LeaseOver"
    }

    fn a_slow_round_makes_the_next_ones_renew_earlier_for_a_while_only() {
        THREADS "a locks; renew takes 3s; pass 200s; called renew 19..24; a is-held"
    }

    /// Its caller's ask, the watchdog's, and one after the claim's own pause.
    fn a_repeated_ask_that_is_answered_ends_the_pause_for_those_that_fail_later() {
        THREADS "a is-cut; b is-cut; a requests; pass 3s; a is-back; pass 1s; a decided; b requests; pass 60ms
        called acquire b 3"
    }

    fn a_request_whose_first_call_is_not_answered_is_still_granted() {
        THREADS "a locks; a unlocks done; pass 60s (the watchdog sleeps without an end); acquire says down; a requests
        a decided; a waits gets 1002"
    }

    /// A hold that ends by its own terms causes no message.
    fn the_next_waiter_of_a_client_rechecks_when_the_fixed_lease_before_it_ends() {
        THREADS "a is fixed 500ms; acquire says rank/0/30s rank/1; a requests; b@a requests; a is-pushed 9; renew says got/10
        pass 510ms; at renew 500ms; b decided"
    }

    /// Its lease is raised after a tenth of a second.
    fn a_hold_that_was_handed_over_survives_an_outage_of_more_than_its_places_time() {
        THREADS "acquire says rank/0; a requests; a is-pushed 9; a waits gets 9; a valid 4948ms; pass 100ms
        a valid 29698ms; renew is-down; pass 19s; a is-held"
    }

    fn a_short_critical_section_is_not_renewed() {
        THREADS "acquire says rank/0; a requests; a is-pushed 9; a waits gets 9; pass 80ms; a unlocks done
        asked acquire release"
    }

    /// As if the process had stood still for longer than any lease.
    fn after_a_jump_to_the_last_time_holds_are_lost_and_locks_work() {
        THREADS "a locks; jump ever; a is-lost; a drops; a locks gets 1002; a renews sure ...; a unlocks done; jump ever
        a locks gets 1003; a renews sure ...; a unlocks done; x shuts-down done"
    }

    fn an_ask_that_panics_is_repeated() {
        THREADS "acquire says rank/0; a requests; acquire panics 1; a is-woken; pass 2s; a decided; called acquire 3"
    }
}

/// However many there are.
#[test]
fn requests_without_a_caller_fail_after_the_outage_limit_and_are_withdrawn() {
    let each = |does: fn(u32) -> String| (0..200).map(does).collect::<String>();
    let [ask, pend] = [|n| format!("w{n} requests;"), |n| format!("w{n} pending;")].map(each);
    let [tell, fail] = [|n| format!("w{n} decided;"), |n| format!("w{n} waits fails Unavailable;")].map(each);
    let meanwhile = "pass 2s; called acquire 10..80; called withdraw 200; log 0..2";
    play(&THREADS, &format!("acquire is-down; {ask} asked ...; pass 9s; {pend} {meanwhile}; {tell} {fail}"));
}

#[test]
fn a_hold_that_the_server_has_lost_is_lost_with_one_line() {
    let mut scene = Scene::of(&THREADS);
    scene.play("watchdog:lost locks; renew says lost; pass 10s; watchdog:lost hears Taken");
    let said = lines_about("lock `watchdog:lost` was lost by");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn holds_are_renewed_before_places() {
    let requests: String = (0..20).map(|n| format!("w{n} requests;")).collect();
    let mut scene = Scene::of(&THREADS);
    scene.play(&format!("acquire says rank/0*20; {requests} a locks; asked ...; jump 10s; asked renew/21:a"));
}

#[test]
fn the_request_that_was_made_first_is_asked_for_first() {
    let each = |does: fn(u32) -> String| (1..20).map(does).collect::<String>();
    let made = each(|n| format!("pass 1ms; w{n} requests;"));
    let mut scene = Scene::of(&THREADS);
    scene.play(&format!(
        "acquire says rank/0*40; w0 requests; {made} acquire takes 100ms; w0 is-woken; w0 is-asking"
    ));
    scene.play(&each(|n| format!("w{n} is-woken;")));
    scene.play(&format!("asked ...; pass 100ms; asked {}", each(|n| format!(" acquire:w{n}"))));
}

#[test]
fn a_quick_round_halves_the_time_that_the_next_one_is_thought_to_take() {
    let mut scene = Scene::of(&THREADS);
    scene.play("a locks; renew takes 3s; pass 14s");
    assert_eq!(*scene.world.shared.timers.meanwhile.lock(), 3 * S);
    scene.play("pass 10s; called renew 2");
    assert_eq!(*scene.world.shared.timers.meanwhile.lock(), ms(1500));
}

/// The heartbeats come due while the first call is under way. All the others are due when it is over.
#[test]
fn renewals_go_between_two_slow_calls_for_requests_without_a_caller() {
    const ASKS: usize = crate::config::MOST_AT_ONCE + 1;
    let each = |does: fn(usize) -> String| (0..ASKS).map(does).collect::<String>();
    let mut scene = Scene::of(&THREADS);
    scene.play(&format!("acquire says rank/0*{}; first requests", 2 * ASKS + 2));
    scene.play(&each(|n| format!("w{n} requests;")));
    scene.play("acquire takes 1s; first is-woken; acquire takes 2s");
    scene.play(&each(|n| format!("w{n} is-woken;")));
    scene.play(&format!("asked ...; pass 3s; called acquire {ASKS}"));
    let ops = scene.world.store.ops();
    let last = ops.iter().rposition(|op| *op == Op::Acquire).unwrap();
    assert_eq!(ops[last - 1], Op::Renew);
}

/// Another server keeps the locks that no call gets. The repeat of the last waits for the pause of all.
#[test]
fn a_first_ask_that_is_answered_does_not_end_the_pause_of_those_that_failed() {
    let mut scene = Scene::of(&THREADS);
    scene.play("acquire says rank/0; a requests; b is-cut; c is-cut; b requests");
    for _ in 0..100 {
        if scene.world.store.calls_about("b", Op::Acquire) < 6 {
            scene.world.clock.step(S);
        }
    }
    scene.play(
        "called acquire b 6 (it has failed just now); acquire says rank/0; a is-woken; called acquire a 2",
    );
    scene.play("c requests; called acquire c 1");
}

#[test]
fn a_renewal_that_panics_is_repeated_with_growing_pauses() {
    let mut scene = Scene::of(&THREADS);
    scene.play("watchdog:panics locks; renew panics 3; pass 12s; watchdog:panics is-held; called renew 4");
    let renewals = scene.world.store.times(Op::Renew);
    assert!(renewals[2] > renewals[1] && renewals[3] > renewals[2], "{renewals:?}");
    let said =
        lines_about("the thread fairlock-dog panicked, and goes on: planned: Renew of watchdog:panics");
    assert_eq!(said.len(), 1, "one line a minute: {said:?}");
}

/// When the panics end, the next hold is renewed as usual.
#[test]
fn a_backend_that_panics_in_every_renewal_is_tried_with_pauses_and_its_holds_are_lost_in_time() {
    play(
        &THREADS,
        "watchdog:always locks; renew panics 9999; pass 29700ms; watchdog:always hears NotRenewed
        called renew 15..100; watchdog:always drops; renew panics 0; pass 1s; watchdog:always locks gets 1002; pass 100s
        watchdog:always is-held; log 1",
    );
    assert_eq!(lines_about("planned: Renew of watchdog:always").len(), 1);
}

#[test]
fn the_threads_of_a_client_end_with_its_last_handle() {
    let mut scene = Scene::of(&THREADS);
    scene.play("a locks; pass 10s; a drops");
    let (_, clock, gone) = scene.without_handles();
    clock.advance(60 * S);
    assert!(gone.upgrade().is_none());
}
