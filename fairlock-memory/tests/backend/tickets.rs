//! Waiters whose places are gone, but that know their tickets.

use crate::story::{FAIR, Story};

stories! {
    /// They may ask in any order. A heartbeat puts none back: it may be later than the request's end.
    fn lost_places_are_restored_in_the_order_of_their_tickets() {
        FAIR "a gets; B waits 0; C waits 1; D waits 2; lose line; D waits 0; e waits 1; C+B beat gone gone; B waits 0; C waits 1
        line B C D e; pass 5s with B C D e; a releases; B hears"
    }

    /// The first to ask does not get the lock: waiters that stood ahead may be heard within a place's time.
    fn a_line_that_was_lost_with_its_hold_is_served_in_its_former_order() {
        FAIR "a gets; B waits 0; C@1 waits 1; lose line; lose hold; C waits 0 5s; pass 4999ms with C
        B waits 0 1ms (the last moment of a living waiter); d@1 waits 2; a busy; held by nobody; pass 1ms
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

    fn a_heartbeat_that_comes_after_the_withdrawal_begins_nothing() {
        FAIR "a gets; B waits 0; C waits 1; B leaves; B beats gone; line C; a releases; C hears; D waits 0; E waits 1
        lose line; E leaves; E beats gone; D beats gone; line nobody; D waits 0; line D"
    }

    /// It hears of its new ticket when it looks. Its heartbeats name the old one until then, and are of no place.
    fn a_waiter_that_was_kicked_goes_to_the_tail_and_no_further() {
        FAIR "a gets; B waits 0; C waits 1; B is-kicked; client 0 hears recheck-of-one; line C B; d waits 2; B beats gone
        B waits 1 anew; B beats 1; lose line (the new place is like any other); B waits 0; C waits 0; line C B"
    }

    /// Not at its old ticket, which would undo the kick.
    fn a_kicked_waiter_that_is_absent_keeps_its_new_place() {
        FAIR "a gets; B@1 waits 0; B beats 0; c waits 1; B is-kicked; client 1 hears recheck-of-one; client 1 hangs-up
        a releases; c hears; d waits 1; c releases; d hears; line B; e waits 1; B waits 0 anew; line B e"
    }

    /// Each of their calls is a heartbeat of the line, whose clock would stand still.
    fn a_lost_line_whose_waiters_are_silent_gives_way_to_others_that_ask() {
        FAIR "a gets; B waits 0; lose line; lose hold; B waits 0 5s; pass 2s; c busy; pass 2s; c busy; pass 1s; c tries"
    }

    fn a_waiter_that_was_granted_the_lock_is_kicked_no_more() {
        FAIR "a gets; B waits 0; C waits 1; d waits 2; a releases; B hears; B is-kicked holding; pass 6s with C d
        C gets; B waits 0 (its hold is over, and its ticket is still the first)"
    }

    /// A waiter without a place would ask again and again without a pause, since the lock is not held.
    fn a_line_that_rests_is_looked_at_when_a_hold_ends_or_it_has_rested() {
        FAIR "a gets; B waits 0; lose line; B waits 0 30001ms"
        FAIR "a gets; B waits 0; lose line; a releases; B waits 0 5s; as plain; c knocks 5s"
    }
}

#[test]
fn a_ticket_that_was_never_given_out_is_not_restored() {
    let mut story = Story::of(FAIR);
    story.tell("a gets; B waits 0");
    let given = *story.ticket("B");
    for forged in [given + 1, given, u64::MAX] {
        *story.ticket("c") = forged;
        story.tell("c beats gone; c waits 1; c leaves");
    }
}
