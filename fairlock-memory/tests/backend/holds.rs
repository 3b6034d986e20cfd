//! Holds: counts, renewals, force, and tokens.

use crate::story::{FAIR, PLAIN, Story};

stories! {
    fn a_renewal_prolongs_the_hold_sets_its_count_and_never_shortens_it() {
        FAIR "a gets; pass 20s; a renews 3; lease 5s; a renews 3; a has 30s 3; pass 30s; held by nobody
        a renews gone"
    }

    fn the_hold_count_is_set_only_for_the_hold_that_is_named() {
        FAIR "a gets; a counts 2; b=a counts gone; a has 30s 2; a releases; a gets; a=a#1 counts gone; a counts 2
        a has 30s 2"
    }

    fn a_new_request_of_the_holder_waits_until_the_old_hold_is_over() {
        FAIR "a gets; a' waits 0; a renews (it takes nothing from the old one); a releases; a' hears; a' keeps
        a releases gone; a' has 5s"
    }

    fn a_release_with_a_wrong_token_or_request_touches_nothing() {
        FAIR "a gets; a releases; a gets; a=a#1 releases gone; b=a releases gone; a has 30s"
    }

    fn force_takes_the_lock_tells_the_holder_and_hands_on() {
        FAIR "a@1 gets; b waits 0; force; a hears taken; b hears; a releases gone; b releases; force nothing"
    }

    fn a_lease_may_be_endless() {
        FAIR "lease ever; ttl ever; a tries; pass 3600s; held by a"
    }

    fn a_fair_and_a_plain_handle_of_one_name_exclude_each_other_and_the_line_comes_first() {
        FAIR "as plain; a gets; b knocks; as fair; c waits 0; a releases; c hears; c releases
        client 0 hears recheck"
    }

    /// A place that was asked for in another call is not granted as if its owner had the answer.
    fn a_hold_that_is_taken_goes_to_no_waiter_that_would_not_hear_of_it() {
        FAIR "a gets; b@1 waits 0; client 1 hangs-up; z leaves; a is-taken; held by nobody; a hears taken"
    }

    fn the_next_waiter_is_told_when_a_hold_stays_for_a_time_only() {
        FAIR "a gets; b waits 0 30001ms; a stays 10s; client 0 hears recheck-of-one; b waits 0 10001ms; a releases gone
        pass 10s; b gets"
        PLAIN "a gets; b knocks 30s; a stays 10s; client 0 hears recheck; b knocks 10s; a releases gone"
    }
}

/// `gets` and `hears` tell of a greater token than any before.
#[test]
fn each_token_is_greater_than_all_before_even_those_of_removed_locks() {
    let mut story = Story::of(FAIR);
    story.tell("a gets");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    assert!(u128::from(story.greatest.unwrap().get()).abs_diff(wall) < 60_000_000);
    story.tell(&"b waits 0; a releases; b hears; b releases; held by nobody; a gets;".repeat(3));
    let last = story.greatest.unwrap().get();
    story.tell("a releases; pass 1s; a gets");
    assert!(story.greatest.unwrap().get() >= last + 999_000);
}
