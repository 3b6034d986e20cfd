//! How a lock is kept taken while the server does not answer, refuses, or says that the hold was over; and what never follows.

use super::scene::*;

/// A lock is kept by one call for what is left and nothing follows. No renewal, and no release at the end.
#[test]
fn a_lock_is_kept_by_one_call_and_nothing_follows() {
    let s = threads().a().locks().pass(4 * S).a().keeps(600 * S).done().after(ms(0));
    s.asked([ACQUIRE, KEEP.of(596_000)]).held(&[]).pass(60 * S).x().shuts_down().done().asked_nothing();
    s.stats(|s| s.holds.count, 1).stats(|s| s.holds.longest.as_secs(), 4).stats(|s| s.lost, 0);
}

#[test]
fn a_time_that_is_over_is_an_unlock() {
    threads().a().locks().pass(4 * S).a().keeps(4 * S).done().asked([ACQUIRE, RELEASE]);
}

/// The longest time is a century.
#[test]
fn neither_a_fixed_lease_nor_a_longest_hold_bounds_the_time() {
    threads().a().fixed(30 * S).locks().keeps(600 * S).done().asked([ACQUIRE, KEEP.of(600_000)]);
    threads().a().capped(30 * S).locks().keeps(600 * S).done().asked([ACQUIRE, KEEP.of(600_000)]);
    threads().a().locks().keeps(EVER).done().asked([ACQUIRE, KEEP.of(3_153_600_000_000)]);
}

#[test]
fn only_the_last_guard_of_an_owner_can_keep_it() {
    let s = threads().a().locks().a2().locks().keeps(600 * S).fails(Misuse).told("more than once");
    s.a().holds(1).is_held().keeps(600 * S).done().asked([ACQUIRE, KEEP]);
}

#[test]
fn a_hold_that_was_taken_is_lost() {
    threads().a().locks().keep().says(GONE).a().keeps(600 * S).lost(Taken).stats(|s| s.lost, 1);
    let s = threads().a().locks().keep().says([DOWN, GONE]).a().keeps(600 * S).lost(Taken);
    s.stats(|s| s.lost, 1);
}

#[test]
fn a_hold_that_is_lost_is_not_kept() {
    threads().a().fixed(S).locks().pass(2 * S).a().keeps(600 * S).lost(LeaseOver).called(KEEP, 0);
}

/// It was kept, and its time went by before an answer came. The server may not have been told at first.
#[test]
fn a_repeat_that_finds_nothing_after_the_end_has_kept_it() {
    let s = threads().a().locks().keep().says([DOWN.times(2), GONE]).keep().takes(S).a().keeps(S).done();
    s.asked([ACQUIRE, KEEP.of(1000), KEEP.of(1), KEEP.of(1)]).stats(|s| s.lost, 0);
}

/// Without an answer the hold is not released and the error says what may be. Its owner asks anew.
#[test]
fn without_an_answer_the_kept_hold_is_not_released() {
    let s = threads().a().locks().keep().is_down();
    s.a().keeps(600 * S).fails(Unavailable).after(9 * S..=10 * S).told("planned: down");
    s.a().told("the lock may be kept for").pass(60 * S).called(RELEASE, 0).called(RENEW, 0).a().locks();
}

/// The hold was granted by a right, which may come back.
#[test]
fn a_lock_that_may_not_be_kept_is_asked_for_again() {
    let s = threads().a().locks().keep().says(DENIED.times(3)).a().keeps(600 * S).done().called(KEEP, 4);
    s.b().locks().is_denied().keeps(600 * S).fails(Denied).after(9 * S..=10 * S);
    s.b().told("planned: denied").told("the lock is free when its lease ends");
}

/// The renewal names the former request.
#[test]
fn a_renewal_under_way_that_finds_nothing_is_no_loss() {
    let s = threads().a().locks().renew().takes(2 * S).renew().says(GONE).pass(ms(9698));
    s.at(RENEW, [ms(9698)]).a().keeps(600 * S).done().pass(30 * S).stats(|s| s.lost, 0);
}

/// An attempt without an answer is repeated with its number and for what is left then.
#[test]
fn a_repeat_keeps_for_what_is_left_under_the_same_number() {
    let s = threads();
    s.a().locks().asked(ACQUIRE).keep().says(DOWN.times(3)).a().keeps(600 * S).done().after(ms(75)..=ms(150));
    s.called(KEEP, 4);
    let asked: Vec<u64> = s.store.asked().into_iter().map(|asked| asked.number).collect();
    assert!(asked.is_sorted_by(|one, other| one >= other), "{asked:?}");
    assert!(asked[0] == 600_000 && (599_850..=599_925).contains(&asked[3]), "{asked:?}");
    let mut keepers = std::mem::take(&mut s.store.plan().keepers);
    keepers.dedup();
    assert_eq!(keepers.len(), 1);
}
