//! Waiters whose places are gone, but that know their tickets.

use crate::story::{FAIR, Story};

stories! {
    /// Their heartbeats may come in any order.
    fn lost_places_are_restored_in_the_order_of_their_tickets() {
        FAIR "a gets; B waits 0; C waits 1; D waits 2; lose line; D waits 0; e waits 1; B beats 0; C waits 1
        line B C D e; pass 5s with B C D e; a releases; B hears"
    }

    /// The first heartbeat does not get the lock: waiters that stood ahead may be heard within a place's time.
    fn a_line_that_was_lost_with_its_hold_is_served_in_its_former_order() {
        FAIR "a gets; B waits 0; C@1 waits 1; lose line; lose hold; C beats 0 5s; pass 4999ms with C
        B beats 0 1ms (the last moment of a living waiter); d@1 waits 2; a busy; held by nobody; pass 1ms
        C waits 0; B hears"
    }

    /// Its process was stopped when its turn came.
    fn a_waiter_whose_grant_has_expired_is_served_next() {
        FAIR "a gets; B waits 0; C waits 1; D waits 2; a releases; B hears; pass 6s with C D; C gets; B beats gone
        B waits 0; C releases; B hears"
    }

    /// The heartbeat was sent before its client learnt of the grant.
    fn a_heartbeat_that_comes_after_the_release_of_its_hold_leaves_nothing() {
        FAIR "a gets; B waits 0; C waits 1; a releases; B hears; B releases; C hears; B beats gone; line nobody"
    }

    /// Nothing was forgotten: so nobody waits for others to come back.
    fn a_heartbeat_that_comes_after_the_withdrawal_begins_nothing() {
        FAIR "a gets; B waits 0; C waits 1; B leaves; B beats gone; line C; a releases; C hears
        D waits 0; E waits 1; lose line; E leaves; E beats gone; D beats 0; line D"
    }

    fn a_waiter_that_was_kicked_goes_to_the_tail_and_no_further() {
        FAIR "a gets; B waits 0; C waits 1; B is-kicked; B beats gone; B waits 1 anew; d waits 2
        lose line (the new place is like any other); B beats 0; C beats 0; line C B"
    }

    /// Each of their calls is a heartbeat of the line, whose clock would stand still.
    fn a_lost_line_whose_waiters_are_silent_gives_way_to_others_that_ask() {
        FAIR "a gets; B waits 0; lose line; lose hold; B beats 0; pass 2s; c busy; pass 2s; c busy; pass 1s; c tries"
    }

    fn a_waiter_that_was_granted_the_lock_is_kicked_no_more() {
        FAIR "a gets; B waits 0; C waits 1; d waits 2; a releases; B hears; B is-kicked holding; pass 6s with C d
        C gets; B waits 0 (its hold is over, and its ticket is still the first)"
    }

    /// All are refreshed before the lock is handed on.
    fn one_call_restores_all_places_of_a_client() {
        FAIR "a gets; B waits 0; C waits 1; lose line; C+B beat 1 0"
    }

    /// A waiter without a place would ask again and again without a pause, since the lock is not held.
    fn a_line_that_rests_is_looked_at_when_a_hold_ends_or_it_has_rested() {
        FAIR "a gets; B waits 0; lose line; B beats 0 30001ms"
        FAIR "a gets; B waits 0; lose line; a releases; B beats 0 5s; as plain; c knocks 5s"
    }
}

#[test]
fn a_ticket_that_was_never_given_out_is_not_restored() {
    let mut story = Story::of(FAIR);
    story.tell("a gets; B waits 0");
    let given = *story.ticket("B");
    for forged in [given + 1, given, u64::MAX, 1] {
        *story.ticket("c") = forged;
        story.tell("c beats gone; c waits 1; c leaves");
    }
}
