//! A call of an owner whose earlier hold the server has not been told of: it settles that first.

use super::scene::scenes;

scenes! {
    fn the_next_call_releases_the_earlier_hold_and_asks_then() {
        UNWATCHED "a locks; release says down; a drops; asked acquire release; a tries gets 1002 0s
        asked release acquire; chores 0"
    }

    /// The watchdog waits for answers about another lock.
    fn a_call_after_a_release_that_was_not_answered_does_not_wait_for_a_slow_renewal() {
        THREADS "a locks; b locks; renew takes 8s; pass 12s; release says down; b drops; b tries gets 1003 0s"
    }

    fn one_attempt_makes_one_attempt_to_settle() {
        UNWATCHED "a locks; release is-down; a drops; asked acquire release; a tries fails Unavailable 0s
        asked release"
    }

    /// The first repeat is at once.
    fn a_caller_with_time_settles_with_growing_pauses() {
        UNWATCHED "a locks; release says down*4; a drops; asked acquire release; a locks gets 1002 75ms..150ms
        called release 4; at release 0s 0s ..."
    }

    fn a_caller_without_a_limit_gives_up_after_the_outage_limit() {
        UNWATCHED "a locks; release is-down; a drops; asked acquire release; a locks fails Unavailable 10s
        a told planned: down; called release 10..30"
    }

    fn a_timed_wait_ends_on_time_with_the_error_of_its_last_attempt() {
        UNWATCHED "a locks; release is-down; a drops; a tries-for 2s fails Unavailable 2s"
    }

    fn a_refused_release_settles_as_well() {
        UNWATCHED "a locks; release says down denied; a drops; a locks gets 1002 0s"
    }

    fn a_cancelled_caller_does_not_wait_for_the_end_of_an_earlier_hold() {
        UNWATCHED "a is cancellable; a locks; release is-down; a drops; a locks; a is-cancelled
        a fails Cancelled 0s..59ms"
    }

    /// Another thread of the owner is releasing, and has no answer yet: the lock may be busy or not.
    fn a_timed_wait_for_a_release_that_is_under_way_ends_on_time() {
        UNWATCHED "a locks; release takes 15s; a unlocks; a' tries-for 2s is-busy 2s; a done 15s"
    }

    fn a_wait_for_a_release_that_is_under_way_is_an_error_after_the_outage_limit() {
        UNWATCHED "a locks; release takes 15s; a unlocks; a' locks fails Unavailable 10s
        a' told the end of an earlier hold or wait of this owner; a done 15s"
    }

    fn a_call_goes_on_as_soon_as_the_release_under_way_is_answered() {
        UNWATCHED "a locks; release takes 1s; a unlocks; a' locks gets 1002 1s; a done 1s"
    }

    /// As after an ask, which the server would carry out after the withdrawal.
    fn a_withdrawal_by_the_next_call_comes_after_the_heartbeat() {
        THREADS "acquire says rank/0; renew takes 300ms; a tries-for 1700ms is-busy 1750ms; asked acquire renew
        a tries gets 1001 216ms..217ms; asked withdraw ..."
    }

    fn a_call_does_not_wait_for_a_heartbeat_beyond_its_own_time() {
        THREADS "acquire says rank/0; renew takes 8s; a tries-for 1700ms is-busy 1750ms; a tries-for 1s is-busy 1s
        asked acquire renew; pass 10s; asked withdraw ..."
    }
}
