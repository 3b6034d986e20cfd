//! A holder renews its hold itself. Of a lease of 30 s all but 1 % and 2 ms is certain: 29,698 ms.

use super::scene::scenes;

scenes! {
    fn a_renewal_tells_for_how_long_the_hold_is_certain() {
        THREADS "a locks; pass 5s; a valid 24698ms; a renews sure 29698ms; a valid 29698ms; stats renewals 1
        asked acquire renew"
    }

    fn what_is_certain_counts_from_before_the_renewal_was_sent() {
        UNWATCHED "a locks; renew takes 2s; a renews sure 27698ms 2s"
    }

    fn a_renewal_that_is_answered_when_its_own_time_is_over_is_a_loss() {
        UNWATCHED "a locks; renew takes 29697ms; a renews sure 1ms; a is-held; stats lost 0"
        UNWATCHED "a locks; renew takes 29698ms; a renews lost NotRenewed; a is-lost; stats lost 1"
        UNWATCHED "a locks; renew takes 30s; a renews lost NotRenewed; a is-lost; stats lost 1"
    }

    fn a_renewal_of_a_hold_that_is_gone_is_a_loss() {
        THREADS "a locks; renew says lost; a renews lost Taken; a is-lost; a renews lost Taken (told again)
        called renew 1; stats lost 1"
    }

    fn a_renewal_without_an_answer_or_with_a_senseless_one_changes_nothing() {
        THREADS "a locks; pass 1s; renew says down rank/0; a renews fails Unavailable; a told planned: down
        a renews fails Unavailable; a told the answer makes no sense; a valid 28698ms; stats renewals 0"
    }
}
