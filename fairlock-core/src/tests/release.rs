//! How a hold is given back while the server does not answer, refuses, or says that the hold was over.

use super::scene::*;

/// An unlock is repeated with growing pauses until it is answered. The first repeat is at once.
#[test]
fn an_unlock_is_repeated_with_growing_pauses() {
    let s = threads().a().locks().release().says(DOWN.times(3)).a().unlocks().done().after(ms(75)..=ms(150));
    s.at(RELEASE, [ms(0)..=ms(0), ms(0)..=ms(0), ms(25)..=ms(50), ms(75)..=ms(150)]);
    s.stats(|s| s.holds.count, 1).stats(|s| s.lost, 0);
}

#[test]
fn an_unlock_whose_first_answer_is_not_held_has_lost_the_hold() {
    both(|s| {
        s.a().locks().release().says(GONE).a().unlocks().lost(Taken).after(ms(0)).stats(|s| s.lost, 1);
        s.asked([ACQUIRE, RELEASE]);
    });
}

/// An unlock whose later answer is not held has released the hold. The attempt that was not answered was carried out, when the
/// hold was certain.
#[test]
fn an_unlock_whose_later_answer_is_not_held_has_released() {
    both(|s| s.a().locks().release().says([DOWN, GONE]).a().unlocks().done().stats(|s| s.lost, 0));
    both(|s| s.a().locks().release().says([DOWN.times(2), GONE]).a().unlocks().done().stats(|s| s.lost, 0));
}

/// It was certain when it was given up, and the server may have waited for the end of the lease.
#[test]
fn an_unlock_whose_lease_ends_while_it_is_told_has_lost_nothing() {
    let s = threads().a().fixed(3 * S).locks().pass(2 * S).release().takes(2 * S).release().says(GONE);
    s.a()
        .unlocks()
        .done()
        .after(2 * S)
        .stats(|s| s.lost, 0)
        .stats(|s| s.holds.count, 1)
        .backlog(0)
        .log(0, "");
    let s = threads().a().capped(3 * S).locks().pass(2 * S).release().takes(2 * S).release().says(GONE);
    s.a().unlocks().done().stats(|s| s.lost, 0);
    let s = threads().a().fixed(3 * S).locks().pass(2 * S).release().takes(2 * S).release().says(GONE);
    s.a().drops().done().after(2 * S).stats(|s| s.lost, 0).log(0, "");
    let s = threads().a().fixed(3 * S).as_task().locks().gets(1001).pass(2 * S).release().takes(2 * S);
    s.release().says(GONE).a().unlocks().pass(2 * S).a().done().stats(|s| s.lost, 0);
    s.stats(|s| s.holds.count, 1).backlog(0).log(0, "");
    let s = threads().a().fixed(3 * S).as_task().locks().gets(1001).pass(2 * S).release().takes(2 * S);
    s.release().says(GONE).a().drops().pass(3 * S).stats(|s| s.lost, 0).log(0, "");
}

#[test]
fn an_unlock_after_the_lease_or_of_a_taken_hold_tells_a_loss() {
    let s = threads().a().fixed(3 * S).locks().pass(2 * S).release().takes(ms(500)).release().says(GONE);
    s.a().unlocks().lost(Taken).stats(|s| s.lost, 1);
    threads().a().fixed(3 * S).locks().pass(3 * S).a().unlocks().lost(LeaseOver).stats(|s| s.lost, 1);
    let s = threads().a().fixed(3 * S).as_task().locks().gets(1001).pass(2 * S).release().takes(ms(500));
    s.release().says(GONE).a().unlocks().pass(S).a().lost(Taken).stats(|s| s.lost, 1);
    let s = threads().a().fixed(3 * S).as_task().locks().gets(1001).pass(3 * S);
    s.a().unlocks().at_once().lost(LeaseOver).stats(|s| s.lost, 1);
}

/// The message says so.
#[test]
fn a_hold_that_is_taken_by_force_while_it_is_released_is_lost() {
    let s = threads().a().fixed(3 * S).locks().pass(2 * S).release().takes(2 * S).release().says(GONE);
    s.a().unlocks().is_taken_with(1001).pass(2 * S).a().lost(Taken).stats(|s| s.lost, 1);
    s.log(1, "was lost by");
    let s = threads().a().fixed(3 * S).as_task().locks().gets(1001).pass(2 * S).release().takes(2 * S);
    s.release().says(GONE).a().unlocks().is_taken_with(1001).pass(2 * S).a().lost(Taken).stats(|s| s.lost, 1);
    s.log(1, "was lost by");
}

/// An unlock gives up at the outage limit and is repeated in the background. It does not begin a pause that would end after the
/// limit, and no pause is longer than a second.
#[test]
fn an_unlock_gives_up_at_the_outage_limit() {
    let s = threads().a().locks().release().is_down();
    s.a().unlocks().fails(Unavailable).after(9 * S..=10 * S).told("planned: down").called(RELEASE, 10..=40);
    s.forget_asked().release().is_up().pass(2 * S).called(RELEASE, 1..=9).backlog(0).forget_asked();
    s.a().locks().gets(1002).asked(ACQUIRE); // nothing of the earlier hold is left
}

/// The watchdog tells the server once more.
#[test]
fn an_unlock_that_is_refused_is_an_error_at_once() {
    let s = unwatched().a().locks().release().says(DENIED).a().unlocks().fails(Denied).after(ms(0));
    s.asked([ACQUIRE, RELEASE]).backlog(1);
}

/// A dropped guard tries once and leaves the rest to the watchdog.
#[test]
fn a_dropped_guard_tries_once() {
    let s = unwatched().a().locks().release().says(DOWN).a().drops().done().after(ms(0));
    s.asked([ACQUIRE, RELEASE]).backlog(1);
    let s = threads().a().locks().release().says(DOWN).a().drops();
    s.asked([ACQUIRE, RELEASE, RELEASE.by_dog()]);
}

/// An unlock waits for a renewal that is under way but not for long. One call renews all holds that are due, so others may delay
/// it. The server is told first.
#[test]
fn an_unlock_waits_for_a_renewal_but_not_for_long() {
    let s = threads().a().locks().renew().takes(ms(300)).pass(ms(9698)).at(RENEW, [ms(9698)]);
    s.a().unlocks().done().after(ms(300)).at(RELEASE, [ms(9698)]);
    let s = threads().a().locks().renew().takes(2 * S).pass(ms(9698)).at(RENEW, [ms(9698)]);
    s.a().unlocks().done().after(ms(500)).at(RELEASE, [ms(9698)]);
}

#[test]
fn a_drop_waits_for_no_renewal() {
    let s = threads().a().locks().renew().takes(S).pass(ms(9698)).at(RENEW, [ms(9698)]);
    s.a().drops().done().after(ms(0));
}

#[test]
fn an_unlock_that_fails_waits_for_a_renewal_as_well() {
    let s = threads().a().locks().renew().takes(ms(300)).pass(ms(9698)).release().says(DENIED);
    s.a().unlocks().fails(Denied).after(ms(300));
}

/// A push has granted the lock while the watchdog was asking: the ask must not be carried out after the release.
#[test]
fn a_release_goes_after_an_ask_that_is_under_way() {
    let s = threads().acquire().says(rank(0).times(2)).a().requests().acquire().takes(ms(300)).a().is_woken();
    s.a().is_asking().is_pushed(9).waits().gets(9).unlocks().done().after(ms(300)).at(RELEASE, [ms(300)]);
}

/// The last guard of a lost hold has it released and no other has.
#[test]
fn the_last_guard_of_a_lost_hold_has_it_released() {
    let s = threads().a().locks().a2().locks().a().loses(Taken).unlocks().lost(Taken).called(RELEASE, 0);
    s.a2().unlocks().lost(Taken).called(RELEASE, 1);
}

#[test]
fn an_unlock_after_the_end_of_the_lease_reports_the_loss() {
    let s = unwatched().a().locks().jump(30 * S).a().unlocks().lost(NotRenewed).after(ms(0));
    s.stats(|s| s.lost, 1).backlog(1);
}

/// A hold that is lost while it is released is counted once and known until then. Its owner's next request waits for the server
/// to know.
#[test]
fn a_hold_lost_while_it_is_released_is_counted_once() {
    let s = unwatched().a().locks().release().takes(S).a().unlocks().loses(Taken).claims(1).a().done();
    s.claims(0).stats(|s| s.holds.count, 1).stats(|s| s.lost, 1);
}
