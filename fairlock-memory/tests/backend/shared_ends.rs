//! Semaphores and read-write locks: holds that end, waiters that are absent, and who looks when.

use crate::story::{READ_WRITE, SEMAPHORE_OF_2, SEMAPHORE_OF_3, tell};

stories! {
    fn each_hold_has_an_end_of_its_own() {
        SEMAPHORE_OF_3 "a gets; pass 10s; b gets; b renews; pass 20s; held by b (the renewal raised one end only)
        taken 1; a renews gone (what is over is not renewed); a releases gone; c gets; held by b c; taken 2"
    }

    /// Not when enough of them would be over: a live holder may release before that.
    fn the_first_in_line_and_the_first_of_each_client_look_at_the_earliest_end() {
        READ_WRITE "a gets; pass 10s; b gets; w*all waits 0 20001ms
        t@1 waits 1 ever (its next heartbeat is earlier); pass 19s with w t; w waits 0 1001ms; t waits 1 1001ms
        b releases; w waits 0 1001ms; pass 1s; w gets; n waits 1"
    }

    fn a_dead_reader_delays_a_writer_by_its_lease_and_no_longer() {
        READ_WRITE "a gets; b gets; w*all waits 0; b releases; pass 29999ms with w
        w waits 0 50ms (it does not look more often); pass 1ms; w gets"
    }

    fn a_blocking_first_waiter_that_is_silent_is_passed_over_by_a_heartbeat_of_another() {
        READ_WRITE "a gets; w*all waits 0; c waits 1; pass 4999ms with c; taken 1; pass 1ms; c beats gets 5s
        held by a c; taken 2"
    }

    /// While it fits, a waiter without a subscription is passed over at once. One that does not fit would lose its turn
    /// to any number of small requests while its client connects anew.
    fn a_blocking_first_waiter_whose_client_hung_up_is_passed_over_after_half_a_place() {
        SEMAPHORE_OF_3 "a gets; large@1*3 waits 0; b waits 1; client 1 hangs-up; c busy; pass 2499ms with b; c busy
        pass 1ms; c tries (behind the waiter); b hears late; held by a b c; taken 3"
    }

    fn a_waiter_that_fits_and_whose_client_hung_up_is_passed_over_at_once() {
        SEMAPHORE_OF_2 "a gets; b gets; d@1 waits 0; c waits 1; client 1 hangs-up; a releases; held by b c; c hears"
    }

    fn a_blocking_waiter_that_comes_back_stands_at_its_ticket_and_those_that_entered_stay() {
        SEMAPHORE_OF_3 "a gets; large*3 waits 0; c waits 1; d*2 waits 2; pass 5s with c d; held by a c; taken 2
        large beats 0; a releases; held by c (two are free, and the first wants three); line large d; c gets
        c releases; large hears; held by large"
    }

    fn a_silent_blocker_leaves_by_a_try_that_does_not_fit() {
        SEMAPHORE_OF_2 "a gets; O@1*2 waits 0; O beats 0; client 1 hangs-up; pass 2499ms; z*2 busy; line O; pass 1ms
        z*2 busy; line nobody; O waits 0"
    }

    /// Only one of several pushed grants is lost.
    fn a_lost_grant_is_found_by_a_heartbeat_and_lasts_as_long_as_its_place() {
        SEMAPHORE_OF_2 "a*2 gets; b waits 0; c waits 1; pass 1s; lose message; a releases; c hears
        b beats finds 4s; b keeps; taken 2"
    }

    fn a_line_that_was_lost_beside_free_units_is_served_in_its_former_order() {
        SEMAPHORE_OF_3 "a*2 gets; B*3 waits 0; C waits 1; lose line
        C waits 0 5s (the waiters ahead have so long to come back); d busy; B waits 0; pass 5s with B C; held by a
        taken 2; n@1 waits 2; line B C n"
    }
}

#[test]
fn each_call_but_a_holders_own_that_finds_a_hold_over_hands_its_units_on() {
    let ends = "dead*2 gets; pass 15s; alive gets; w@1*2 waits 0; pass 14s with w; taken 3; pass 1s";
    for look in [
        "z waits 0",
        "z busy",
        "z leaves",
        "z beats gone",
        "alive counts 2",
        "z=alive releases gone",
        "z=alive is-taken gone",
    ] {
        tell(SEMAPHORE_OF_3, &format!("{ends}; {look}; w hears; held by alive w; taken 3"));
    }
}
