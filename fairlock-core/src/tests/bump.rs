//! A holder lets the others go first: a release, and a request at the tail.

use super::scene::scenes;

scenes! {
    /// The first hold is counted, and the new one renewed.
    fn a_bump_is_a_release_and_a_new_request_also_where_nobody_waits() {
        THREADS "a locks gets 1001; a bumps done; asked acquire release acquire; a token 1002; a is-held
        a valid 29698ms; stats holds 1; stats lost 0; pass 60s; a is-held; called renew 5..9; a unlocks done"
    }

    fn a_hold_that_is_held_twice_or_has_no_line_stays_without_a_question() {
        THREADS "a locks; a' locks; a bumps done; b is plain; b locks; b bumps done; called release 0; a is-held
        b is-held"
    }

    fn a_bump_waits_for_the_next_turn() {
        THREADS "a locks gets 1001; acquire says rank/0; a bumps; waiting a; pass 1s; a is-pushed 5000; a done 1s
        a token 5000; a is-held; a unlocks done"
    }

    /// The first attempt to release was carried out.
    fn each_step_of_a_bump_is_repeated_by_itself() {
        THREADS "a locks; release says down not-held; acquire says down got/5000; a bumps done; a token 5000
        asked acquire release release acquire acquire; stats lost 0"
    }

    fn a_bump_of_a_hold_that_is_gone_is_a_loss_and_asks_for_nothing() {
        THREADS "a locks; release says not-held; a bumps lost Taken; stats lost 1; held nobody; waiting nobody
        asked acquire release"
    }

    fn a_bump_of_a_hold_that_has_ended_is_a_loss() {
        UNWATCHED "a locks; jump 30s; a bumps lost NotRenewed; called acquire 1"
    }

    /// The release is repeated in the background.
    fn a_bump_whose_release_is_refused_ends_the_hold_and_asks_for_nothing() {
        THREADS "a locks; release says denied; a bumps fails Denied 0s; a is-lost; a check NotHeld
        asked acquire release release"
    }

    fn a_bump_whose_release_is_never_answered_gives_up_at_the_outage_limit() {
        THREADS "a locks; release is-down; a bumps fails Unavailable 9s..9999ms; a is-lost"
    }

    fn a_shutdown_ends_a_bump_that_waits() {
        THREADS "a locks; acquire says rank/0; a bumps; x shuts-down; a fails Shutdown; a is-lost; x done
        waiting nobody; held nobody"
    }

    /// Another thread of the same owner comes between the two steps: both have the new hold.
    fn a_caller_of_the_same_owner_shares_the_new_hold() {
        THREADS "a locks gets 1001; release takes 1s; a bumps; a' locks; a done; a' gets 1002 1s; a token 1002"
    }
}
