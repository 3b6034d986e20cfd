//! A call of an owner whose earlier hold the server has not been told of: it settles that first.

use super::scene::*;

#[test]
fn the_next_call_releases_the_earlier_hold_and_asks_then() {
    let s = unwatched().a().locks().release().says(DOWN).a().drops().asked([ACQUIRE, RELEASE]);
    s.a().tries().gets(1002).after(ms(0)).asked([RELEASE, ACQUIRE]).backlog(0);
}

/// A call after a release that was not answered does not wait for a slow renewal. The watchdog waits for answers about another
/// lock.
#[test]
fn a_call_that_settles_waits_for_no_slow_renewal() {
    let s = threads().a().locks().b().locks().renew().takes(8 * S).pass(12 * S).release().says(DOWN);
    s.b().drops().tries().gets(1003).after(ms(0));
}

#[test]
fn one_attempt_makes_one_attempt_to_settle() {
    let s = unwatched().a().locks().release().is_down().a().drops().asked([ACQUIRE, RELEASE]);
    s.a().tries().fails(Unavailable).after(ms(0)).asked(RELEASE);
}

/// The first repeat is at once.
#[test]
fn a_caller_with_time_settles_with_growing_pauses() {
    let s = unwatched().a().locks().release().says(DOWN.times(4)).a().drops().asked([ACQUIRE, RELEASE]);
    s.a().locks().gets(1002).after(ms(75)..=ms(150)).called(RELEASE, 4).at_first(RELEASE, [ms(0), ms(0)]);
}

#[test]
fn a_caller_without_a_limit_gives_up_after_the_outage_limit() {
    let s = unwatched().a().locks().release().is_down().a().drops().asked([ACQUIRE, RELEASE]);
    s.a().locks().fails(Unavailable).after(10 * S).told("planned: down").called(RELEASE, 10..=30);
}

#[test]
fn a_timed_wait_ends_on_time_with_the_error_of_its_last_attempt() {
    let s = unwatched().a().locks().release().is_down().a().drops();
    s.a().tries_for(2 * S).fails(Unavailable).after(2 * S);
}

#[test]
fn a_refused_release_settles_as_well() {
    let s = unwatched().a().locks().release().says([DOWN, DENIED]).a().drops();
    s.a().locks().gets(1002).after(ms(0));
}

/// A cancelled caller does not wait for the end of an earlier hold.
#[test]
fn a_cancelled_caller_waits_for_no_earlier_hold() {
    let s = unwatched().a().cancellable().locks().release().is_down().a().drops().locks().is_cancelled();
    s.a().fails(Cancelled).after(ms(0)..=ms(59));
}

/// Another thread of the owner is releasing, and has no answer yet: the lock may be busy or not.
#[test]
fn a_timed_wait_for_a_release_that_is_under_way_ends_on_time() {
    let s = unwatched().a().locks().release().takes(15 * S).a().unlocks();
    s.a2().tries_for(2 * S).is_busy().after(2 * S).a().done().after(15 * S);
}

/// A wait for a release that is under way is an error after the outage limit.
#[test]
fn a_wait_for_a_release_ends_at_the_outage_limit() {
    let s = unwatched().a().locks().release().takes(15 * S).a().unlocks();
    s.a2().locks().fails(Unavailable).after(10 * S).told("an earlier release or withdrawal of this owner");
    s.a().done().after(15 * S);
}

#[test]
fn a_call_goes_on_as_soon_as_the_release_under_way_is_answered() {
    let s = unwatched().a().locks().release().takes(S).a().unlocks().a2().locks().gets(1002).after(S);
    s.a().done().after(S);
}

/// As after an ask, which the server would carry out after the withdrawal.
#[test]
fn a_withdrawal_by_the_next_call_comes_after_the_heartbeat() {
    let s = threads().acquire().says(rank(0)).renew().takes(ms(300));
    s.a().tries_for(ms(1700)).is_busy().after(ms(1750)).asked([ACQUIRE, RENEW]);
    s.a().tries().gets(1001).after(ms(216)..=ms(217)).asked_first(WITHDRAW);
}

#[test]
fn a_call_does_not_wait_for_a_heartbeat_beyond_its_own_time() {
    let s = threads().acquire().says(rank(0)).renew().takes(8 * S);
    s.a().tries_for(ms(1700)).is_busy().after(ms(1750)).tries_for(S).is_busy().after(S);
    s.asked([ACQUIRE, RENEW]).pass(10 * S).asked_first(WITHDRAW);
}
