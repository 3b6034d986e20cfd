//! A holder renews its hold itself. Of a lease of 30 s all but 1 % and 2 ms is certain: 29,698 ms.

use super::scene::*;

#[test]
fn a_renewal_tells_for_how_long_the_hold_is_certain() {
    let s = threads().a().locks().pass(5 * S).a().valid(ms(24_698)).renews().sure_for(ms(29_698));
    s.a().valid(ms(29_698)).stats(|s| s.renewals, 1).asked([ACQUIRE, RENEW]);
}

#[test]
fn what_is_certain_counts_from_before_the_renewal_was_sent() {
    unwatched().a().locks().renew().takes(2 * S).a().renews().sure_for(ms(27_698)).after(2 * S);
}

/// A renewal that is answered when its own time is over is a loss.
#[test]
fn a_renewal_answered_after_its_own_time_is_a_loss() {
    let s = unwatched().a().locks().renew().takes(ms(29_697)).a().renews().sure_for(ms(1)).is_held();
    s.stats(|s| s.lost, 0);
    let s = unwatched().a().locks().renew().takes(ms(29_698)).a().renews().lost(NotRenewed).is_lost();
    s.stats(|s| s.lost, 1);
    let s = unwatched().a().locks().renew().takes(30 * S).a().renews().lost(NotRenewed).is_lost();
    s.stats(|s| s.lost, 1);
}

#[test]
fn a_renewal_of_a_hold_that_is_gone_is_a_loss() {
    // told again
    let s = threads().a().locks().renew().says(GONE).a().renews().lost(Taken).is_lost().renews().lost(Taken);
    s.called(RENEW, 1).stats(|s| s.lost, 1);
}

/// A renewal without an answer or with a senseless one changes nothing.
#[test]
fn a_renewal_without_a_sensible_answer_changes_nothing() {
    let s = threads().a().locks().pass(S).renew().says([DOWN, rank(0)]).a().renews().fails(Unavailable);
    s.a().told("planned: down").renews().fails(Unavailable).told("the answer makes no sense");
    s.a().valid(ms(28_698)).stats(|s| s.renewals, 0);
}
