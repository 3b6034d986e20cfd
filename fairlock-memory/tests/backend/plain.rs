//! Plain locks: there is no line, the first caller gets a free lock, and every waiting client is woken.

use crate::story::PLAIN;

stories! {
    fn a_plain_lock_goes_to_the_first_caller_after_a_release() {
        PLAIN "a gets; b knocks 30s; line nobody; a releases; client 0 hears recheck; held by nobody; c gets
        b knocks"
    }

    fn a_release_wakes_each_waiting_client_once_and_no_other() {
        PLAIN "a@2 gets; b knocks; c knocks; d knocks; e@1 knocks; f@2 busy; a releases; client 0 hears recheck
        client 1 hears recheck"
    }

    fn the_interest_ends_with_a_grant_a_withdrawal_or_an_attempt_without_wait() {
        PLAIN "a gets; b knocks; c knocks; d knocks; a releases; client 0 hears recheck; b gets; c leaves; d busy
        b releases"
    }

    fn a_renewed_plain_request_is_told_when_to_recheck_or_that_the_lock_is_free() {
        PLAIN "a gets; b knocks; pass 10s; b beats 0 20s; pass 20s; b beats 0 0s; b gets; b beats keeps 30s
        b releases"
    }

    fn a_renewal_registers_a_removed_interest_again() {
        PLAIN "a gets; b beats 0; a releases; client 0 hears recheck"
    }

    fn force_on_a_plain_lock_tells_the_holder_and_the_waiters() {
        PLAIN "a@1 gets; b knocks; force; a hears taken; client 0 hears recheck"
    }
}
