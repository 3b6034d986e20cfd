//! Fair locks: order, no barging, and absent waiters.

use std::time::Duration;

use crate::story::{FAIR, Story, tell};

stories! {
    fn waiters_get_the_lock_in_the_order_in_which_they_asked() {
        FAIR "a gets; b waits 0; c waits 1; d waits 2; a releases; b hears; b releases; c hears; c releases
        d hears; d releases; held by nobody"
    }

    fn neither_a_newcomer_nor_an_attempt_without_wait_barges_past_the_line() {
        FAIR "a gets; b waits 0; lose hold; c busy; held by b; b hears; lose hold; c gets; d waits 0; lose hold
        a waits 0; held by d; d hears"
    }

    fn an_attempt_without_wait_leaves_nothing_behind() {
        FAIR "a gets; b busy 30s; line nobody; b waits 0; b busy; line nobody; a releases; b tries 30s"
    }

    fn the_first_in_line_rechecks_when_the_hold_would_end_and_the_others_with_their_heartbeats() {
        FAIR "a gets; pass 10s; b waits 0 20001ms; c waits 1 ever; b beats 0 20001ms; c beats 1 ever"
    }

    fn a_waiter_looks_when_the_hold_ends_unless_its_next_heartbeat_is_not_later() {
        FAIR "ttl 6s (a heartbeat every two seconds); a gets; pass 28s; b waits 0 2001ms; c@1 waits 1 ever
        pass 1ms; c waits 1 2s; pass 1998ms; b waits 0 2ms (the next one gets it as soon as it is free)"
    }

    fn a_waiter_that_finds_the_lock_free_gets_it_by_the_answer_and_not_by_a_message() {
        FAIR "a gets; b waits 0; c waits 1; lose hold; b beats gets 5s; client 0 hears nothing; b releases; c hears
        c keeps"
    }

    fn an_overdue_waiter_is_passed_over_and_one_that_renews_is_not() {
        FAIR "a gets; b waits 0; c waits 1; pass 5s with c; a releases; c hears"
    }

    fn when_all_waiters_are_absent_a_newcomer_gets_the_lock() {
        FAIR "a gets; b@1 waits 0; client 1 hangs-up; a releases; held by nobody; c tries 30s"
    }

    /// One call refreshes both, the later ticket first: the order is that of the tickets.
    fn a_waiter_that_asks_gets_the_lock_though_its_client_is_not_subscribed() {
        FAIR "a gets; b waits 0; c waits 1; client 0 hangs-up; a releases; held by nobody; c+b beat 0 gets"
    }

    fn a_process_that_was_stopped_finds_the_order_unchanged() {
        FAIR "a gets; b waits 0; c waits 1; d waits 2; jump 20s; d beats 2; a releases; b hears; c beats 0
        jump 60s; d beats 0; c hears"
    }

    fn a_grant_is_valid_for_the_rest_of_the_place_and_never_longer_than_the_lease_that_was_requested_last() {
        FAIR "a gets; b waits 0; pass 2s; a releases; b hears; held by b; b has 3s; b renews; b has 30s"
        FAIR "a gets; b waits 0; lease 1s; b beats 0; a releases; b hears; b has 1s"
    }
}

#[test]
fn the_next_call_of_any_client_hands_an_expired_hold_on() {
    for look in ["z waits 0", "z busy", "z leaves", "z beats gone", "force nothing"] {
        let expires = "a gets; b waits 0; pass 29s with b; held by a; pass 1s";
        tell(FAIR, &format!("{expires}; {look}; b hears; held by b"));
    }
}

#[test]
fn a_waiter_whose_client_hung_up_is_passed_over_at_once() {
    let dead: String = (0..10).map(|number| format!("d{number}@1 waits {number};")).collect();
    tell(FAIR, &format!("a gets; {dead} c waits 10; client 1 hangs-up; a releases; c hears"));
}

const ABSENT: &str =
    "a gets; B waits 0; B beats 0; c waits 1; d waits 2; pass 5s with c d; a releases; c hears;";

#[test]
fn an_absent_waiter_leaves_and_its_ask_puts_it_back() {
    tell(FAIR, &format!("{ABSENT} line d; B beats gone; B waits 0; d beats 1; c releases; B hears"));
}

/// It is handed nothing by the call that puts it back, and so looks again at once.
#[test]
fn a_waiter_back_at_a_free_lock_gets_it_by_its_next_ask() {
    tell(FAIR, &format!("{ABSENT} d leaves; c releases; B waits 0 0s; held by nobody; B gets"));
}

/// The first answer to b was lost, so b may not know its ticket.
#[test]
fn a_waiter_that_may_not_know_its_ticket_stays() {
    let passed =
        "a gets; b waits 0; c waits 1; d waits 2; pass 5s with c d; a releases; c hears; c renews; line b d;";
    tell(FAIR, &format!("{passed} pass 4999ms with d; b waits 0; c releases; b hears"));
    tell(
        FAIR,
        &format!(
            "{passed} pass 4999ms with d; c releases; d hears; line b; d releases; held by nobody; b gets"
        ),
    );
    tell(FAIR, &format!("{passed} pass 5s with d; line b d; c releases; d hears; line nobody; b waits 0"));
    let deaf = "a gets; b@1 waits 0; c waits 1; client 1 hangs-up; a releases; c hears; line b";
    tell(FAIR, &format!("{deaf}; c releases; held by nobody; b gets"));
}

/// The line's clock moves by half of a place's time at most while no waiter is heard: its process may have stood still.
#[test]
fn calls_about_a_held_lock_make_no_waiter_overdue() {
    let calls = "pass 1s; a counts 1;".repeat(10);
    tell(FAIR, &format!("a gets; b waits 0; {calls} a releases; b hears"));
}

#[test]
fn inspect_shows_the_holder_and_the_line() {
    let mut story = Story::of(FAIR);
    story.tell("a gets; b waits 0; pass 2s; c waits 1; a has 28s 1; line b c");
    let state = story.seen();
    assert_eq!(state.holders[0].label.as_deref(), Some("a test"));
    let times = state.line.iter().map(|waiter| (waiter.waiting.unwrap(), waiter.place_left.unwrap()));
    assert!(
        times.eq([(2, 3), (0, 5)].map(|(one, other)| (Duration::from_secs(one), Duration::from_secs(other))))
    );
    assert_eq!(state.line[0].label.as_deref(), Some("a test"));
}
