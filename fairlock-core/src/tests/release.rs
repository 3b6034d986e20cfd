//! How a hold is given back while the server does not answer, refuses, or says that the hold was over.

use super::scene::scenes;

scenes! {
    /// The first repeat is at once.
    fn an_unlock_is_repeated_with_growing_pauses_until_it_is_answered() {
        THREADS "a locks; release says down*3; a unlocks done 75ms..150ms; at release 0s 0s 25ms..50ms 75ms..150ms
        stats holds 1; stats lost 0"
    }

    fn an_unlock_whose_first_answer_is_not_held_has_lost_the_hold() {
        BOTH "a locks; release says not-held; a unlocks lost Taken 0s; stats lost 1; asked acquire release"
    }

    /// The attempt that was not answered was carried out, when the hold was certain.
    fn an_unlock_whose_later_answer_is_not_held_has_released_the_hold() {
        BOTH "a locks; release says down not-held; a unlocks done; stats lost 0"
        BOTH "a locks; release says down*2 not-held; a unlocks done; stats lost 0"
    }

    /// It was certain when it was given up, and the server may have waited for the end of the lease.
    fn an_unlock_whose_lease_ends_while_it_is_told_has_lost_nothing() {
        THREADS "a is fixed 3s; a locks; pass 2s; release takes 2s; release says not-held; a unlocks done 2s; stats lost 0
        stats holds 1; chores 0; log 0"
        THREADS "a is capped 3s; a locks; pass 2s; release takes 2s; release says not-held; a unlocks done; stats lost 0"
        THREADS "a is fixed 3s; a locks; pass 2s; release takes 2s; release says not-held; a drops done 2s; stats lost 0
        log 0"
        THREADS "a is fixed 3s; a is task; a locks gets 1001; pass 2s; release takes 2s; release says not-held; a unlocks
        pass 2s; a done; stats lost 0; stats holds 1; chores 0; log 0"
        THREADS "a is fixed 3s; a is task; a locks gets 1001; pass 2s; release takes 2s; release says not-held; a drops
        pass 3s; stats lost 0; log 0"
    }

    fn an_unlock_after_the_lease_or_of_a_taken_hold_tells_a_loss() {
        THREADS "a is fixed 3s; a locks; pass 2s; release takes 500ms; release says not-held; a unlocks lost Taken
        stats lost 1"
        THREADS "a is fixed 3s; a locks; pass 3s; a unlocks lost LeaseOver; stats lost 1"
        THREADS "a is fixed 3s; a is task; a locks gets 1001; pass 2s; release takes 500ms; release says not-held; a unlocks
        pass 1s; a lost Taken; stats lost 1"
        THREADS "a is fixed 3s; a is task; a locks gets 1001; pass 3s; a unlocks at-once lost LeaseOver; stats lost 1"
    }

    /// The message says so.
    fn a_hold_that_is_taken_by_force_while_it_is_released_is_lost() {
        THREADS "a is fixed 3s; a locks; pass 2s; release takes 2s; release says not-held; a unlocks; a is-taken 1001; pass 2s
        a lost Taken; stats lost 1; log 1 was lost by"
        THREADS "a is fixed 3s; a is task; a locks gets 1001; pass 2s; release takes 2s; release says not-held; a unlocks
        a is-taken 1001; pass 2s; a lost Taken; stats lost 1; log 1 was lost by"
    }

    /// It does not begin a pause that would end after the limit, and no pause is longer than a second.
    fn an_unlock_gives_up_at_the_outage_limit_and_is_repeated_in_the_background() {
        THREADS "a locks; release is-down; a unlocks fails Unavailable 9s..9999ms; a told planned: down
        called release 10..40; asked ...; release is-up; pass 2s; called release 1..9; chores 0; asked ...
        a locks gets 1002; asked acquire (nothing of the earlier hold is left)"
    }

    /// The watchdog tells the server once more.
    fn an_unlock_that_is_refused_is_an_error_at_once() {
        UNWATCHED "a locks; release says denied; a unlocks fails Denied 0s; asked acquire release; chores 1"
    }

    fn a_dropped_guard_tries_once_and_leaves_the_rest_to_the_watchdog() {
        UNWATCHED "a locks; release says down; a drops done 0s; asked acquire release; chores 1"
        THREADS "a locks; release says down; a drops; asked acquire release release!dog"
    }

    /// One call renews all holds that are due, so others may delay it. The server is told first.
    fn an_unlock_waits_for_a_renewal_that_is_under_way_but_not_for_long() {
        THREADS "a locks; renew takes 300ms; pass 9698ms; at renew 9698ms; a unlocks done 300ms; at release 9698ms"
        THREADS "a locks; renew takes 2s; pass 9698ms; at renew 9698ms; a unlocks done 500ms; at release 9698ms"
    }

    fn a_drop_waits_for_no_renewal() {
        THREADS "a locks; renew takes 1s; pass 9698ms; at renew 9698ms; a drops done 0s"
    }

    fn an_unlock_that_fails_waits_for_a_renewal_as_well() {
        THREADS "a locks; renew takes 300ms; pass 9698ms; release says denied; a unlocks fails Denied 300ms"
    }

    /// A push has granted the lock while the watchdog was asking: the ask must not be carried out after the release.
    fn a_release_goes_after_an_ask_that_is_under_way() {
        THREADS "acquire says rank/0*2; a requests; acquire takes 300ms; a is-woken; a is-asking; a is-pushed 9
        a waits gets 9; a unlocks done 300ms; at release 300ms"
    }

    fn an_inner_unlock_that_finds_the_hold_lost_reports_that() {
        THREADS "a locks; a' locks; count says lost; a' unlocks lost Taken; a is-lost; a unlocks lost Taken"
    }

    /// The server heard of the last unlock first.
    fn an_inner_unlock_that_the_last_one_has_overtaken_is_no_loss() {
        THREADS "a locks; a' locks; count says lost; count takes 1s; a' unlocks; a unlocks done; a' done; stats lost 0"
    }

    fn the_last_guard_of_a_lost_hold_has_it_released_and_no_other_has() {
        THREADS "a locks; a' locks; a loses; a unlocks lost Taken; called release 0; a' unlocks lost Taken
        called release 1"
    }

    fn an_unlock_after_the_end_of_the_lease_reports_the_loss() {
        UNWATCHED "a locks; jump 30s; a unlocks lost NotRenewed 0s; stats lost 1; chores 1"
    }

    /// Its owner's next request waits for the server to know.
    fn a_hold_that_is_lost_while_it_is_released_is_counted_once_and_known_until_then() {
        UNWATCHED "a locks; release takes 1s; a unlocks; a loses; claims 1; a done; claims 0; stats holds 1; stats lost 1"
    }
}
