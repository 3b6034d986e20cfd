//! How a lock is acquired: what is asked, by which thread, and when again.

use super::scene::scenes;

scenes! {
    fn an_uncontended_lock_is_two_calls() {
        BOTH "a locks gets 1001; a unlocks done; asked acquire release"
    }

    fn each_re_entry_and_each_inner_unlock_tells_the_count() {
        THREADS "a locks gets 1001; a locks gets 1001; a holds 2; a unlocks done; a unlocks done
        asked acquire/0 count/2 count/1 release"
    }

    fn callers_of_one_owner_that_wait_together_tell_the_count_when_they_are_granted() {
        THREADS "acquire says rank/0; a locks; a' locks; a is-pushed 9; a gets 9; a' gets 9
        asked acquire count count; a holds 2"
    }

    fn a_re_entry_that_finds_the_hold_lost_reports_that_and_asks_anew() {
        THREADS "a locks; count says lost; a' locks gets 1002; a hears Taken; stats lost 1; a unlocks lost Taken
        a' unlocks done"
    }

    fn a_count_that_is_not_answered_counts_as_told() {
        THREADS "a locks gets 1001; count says down; a locks gets 1001"
    }

    /// Its ask is under way when a caller that waits longer joins it, and does not get the lock.
    fn a_caller_that_has_joined_one_attempt_goes_on_by_itself_when_that_fails() {
        THREADS "acquire says busy rank/0; acquire takes 1s; a tries; a' tries-for 5s; a is-busy 1s; a' is-busy 5s
        at acquire 0s 1s"
    }

    fn one_attempt_on_a_busy_lock_asks_once_and_leaves_nothing() {
        BOTH "acquire says busy; a tries is-busy 0s; asked acquire; waiting nobody; a tries gets 1001"
    }

    fn a_caller_gives_up_when_the_server_was_silent_for_the_outage_limit() {
        THREADS "acquire is-down; a locks fails Unavailable 10s..11s; called acquire 10..40
        at acquire 0s 0s ... (the first retry is at once); called withdraw 1; waiting nobody"
    }

    fn a_refusal_is_an_error_at_once() {
        BOTH "acquire says denied; a locks fails Denied 0s"
    }

    fn a_cancelled_caller_gets_no_request() {
        THREADS "a is cancellable; a is-cancelled; a requests fails Cancelled; a locks fails Cancelled; asked nothing
        waiting nobody"
        TASKS "a is cancellable; a is-cancelled; a locks at-once fails Cancelled; asked nothing"
    }

    fn a_cancel_ends_a_wait_at_once_and_its_request_is_withdrawn() {
        BOTH "a is cancellable; acquire says rank/3; a locks; a is-cancelled; a fails Cancelled 0s
        asked acquire withdraw"
    }

    /// The process stood still until the grant was over.
    fn a_grant_that_ended_before_its_caller_took_it_is_given_back_and_asked_for_anew() {
        UNWATCHED "acquire says rank/0 got/7; a requests; a is-pushed 5; jump 5s; a waits gets 7; stats lost 1
        chores 1 (the first hold is to be released)"
    }

    /// Its message was lost, or comes later than the answer: then it is no stray grant.
    fn a_message_that_comes_after_the_hold_is_over_is_known_if_an_answer_told_of_the_grant() {
        THREADS "acquire says rank/0 got/5; a locks; a is-woken; a gets 5; a unlocks done; a is-pushed 5
        called release 1 (none of a stray grant); stats ignored 0"
    }

    fn a_message_about_a_hold_that_was_granted_at_the_first_ask_is_a_stray() {
        THREADS "a locks; a unlocks done; a is-pushed 5; called release 2; stats ignored 1"
    }

    fn a_place_that_was_lost_is_counted_when_the_request_stands_at_the_tail() {
        THREADS "acquire says rank/0 rank/4/60s/8; a requests; a rank 0; a is-woken; a rank 4; stats places-lost 1"
    }

    /// A request that a caller can't take is not waited for a second time.
    fn a_wait_for_a_request_that_was_refused_tells_the_refusal_once() {
        THREADS "acquire says denied; a requests; a decided; a waits-for 1s fails Denied; a waits-for 1s fails Misuse"
    }

    fn a_look_without_a_wait_at_a_request_keeps_its_place() {
        THREADS "acquire says rank/0; a requests; a waits-for 0s is-busy; asked acquire; a is-pushed 5
        a waits-for 0s gets 5"
    }

    fn a_caller_that_begins_to_wait_for_a_request_asks_for_it_itself() {
        UNWATCHED "acquire says rank/0 got/5; a requests; a is-woken; a waits gets 5 0s"
    }

    /// Each grant is over when its answer comes.
    fn a_lease_that_is_shorter_than_a_trip_is_not_asked_for_without_end() {
        THREADS "a is fixed 1s; acquire says got/5000/1s*9; acquire takes 2s*9; a tries fails Unavailable 0s..4s
        called acquire 2; called withdraw 1; waiting nobody"
        THREADS "a is fixed 1s; acquire says got/5000/1s*9; acquire takes 2s*9
        a tries-for 5s fails Unavailable 0s..9s; called acquire 3; called withdraw 1; waiting nobody"
        THREADS "a is fixed 1s; acquire says got/5000/1s*9; acquire takes 2s*9; a locks fails Unavailable 0s..14s
        called acquire 6; called withdraw 1; waiting nobody"
    }
}
