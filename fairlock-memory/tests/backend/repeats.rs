//! Repeats after lost replies, and withdrawals that meet a grant: each request does the same only once.

use crate::story::{FAIR, tell};

stories! {
    fn a_repeated_acquire_of_the_holder_is_granted_with_the_same_token_and_the_rest_of_the_lease() {
        FAIR "lose reply acquire; a asks fails Unavailable; pass 10s; a gets 20s; a has 20s 1; a keeps 20s"
    }

    fn a_repeated_acquire_of_a_waiter_keeps_its_one_place() {
        FAIR "a gets; lose reply acquire; b asks fails Unavailable; c waits 1; b waits 0; line b c"
    }

    fn a_repeated_release_takes_nothing_from_the_next_holder() {
        FAIR "a gets; b waits 0; lose reply release; a releases fails Unavailable; b hears; a releases gone
        b has 5s"
    }

    fn a_late_release_does_not_end_the_next_hold_of_the_same_owner() {
        FAIR "a gets; a releases; a' gets; a releases gone; a' has 30s"
    }

    fn a_repeated_release_removes_the_place_of_a_late_acquire() {
        FAIR "a gets; a releases; b gets; a waits 0 (its first attempt arrives); c waits 1; a releases gone; line c"
    }

    fn a_repeated_renewal_of_a_place_that_became_a_hold_says_so_with_the_same_token() {
        FAIR "a gets; b waits 0; lose message; a releases; b beats gets 5s; b beats keeps 5s; b keeps"
    }

    fn a_withdrawal_leaves_no_trace_and_can_be_repeated() {
        FAIR "a gets; b waits 0; c waits 1; lose reply withdraw; b leaves fails Unavailable; b leaves; line c
        a releases; c hears"
    }

    fn a_withdrawal_that_meets_a_grant_says_so_and_the_hold_can_be_released() {
        FAIR "a gets; b waits 0; c waits 1; a releases; b hears; b leaves holding 5s; b leaves holding 5s
        b releases; c hears"
    }

    fn a_withdrawal_never_makes_the_leaving_request_the_holder() {
        FAIR "a gets; b waits 0; c waits 1; lose hold; b leaves; c hears"
    }

    fn a_place_that_was_granted_and_expired_is_lost_for_its_old_request() {
        FAIR "a gets; b waits 0; a releases; b hears; pass 5s; b renews gone; b beats gone; b releases gone; b gets"
    }
}

/// Or a waiter that is silent because its process stands still would lose its turn.
#[test]
fn a_release_that_changes_nothing_is_no_heartbeat_of_the_line() {
    let nothing = "pass 2s; z=a releases gone;".repeat(3);
    tell(FAIR, &format!("a gets; b waits 0; {nothing} a releases; b hears"));
}
