//! What callers left to be told to the server: repeated, passed on and given up.

use log::Level;

use super::logger::lines_about;
use super::scene::*;
use super::store::Op;
use super::support::World;

#[test]
fn a_grant_that_a_withdrawal_finds_is_released_by_its_token() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().says(got(77)).a().drops();
    s.asked([ACQUIRE, WITHDRAW, RELEASE.of(77)]).backlog(0);
}

#[test]
fn a_withdrawal_that_panics_is_repeated() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().panics(2).a().drops().pass(ms(500));
    s.called(WITHDRAW, 3).backlog(0);
}

/// A withdrawal that failed for a caller is repeated by the watchdog. The watchdog has tried it twice and pauses, when the next
/// call takes it over and is delayed.
#[test]
fn the_watchdog_repeats_a_callers_failed_withdrawal() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().says(DOWN.times(2)).a().drops();
    s.called(WITHDRAW, 2).pass(ms(10)).withdraw().takes(S).withdraw().says(DOWN).a().tries().pass(ms(500));
    s.called(WITHDRAW, 3).a().fails(Unavailable).pass(2 * S);
    s.asked([ACQUIRE, WITHDRAW.times(3), WITHDRAW.by_dog()]).backlog(0);
}

#[test]
fn a_release_goes_alone_between_the_withdrawals_around_it() {
    let s = threads().acquire().says([rank(0), rank(1), rank(2)]).a().requests().b().on(A).requests();
    s.c().on(A).requests().d().locks().withdraw().takes(S).a().drops(); // this one is under way
    s.release().says(DOWN).b().drops().d().drops().c().drops().forget_asked().pass(S);
    s.asked([WITHDRAW, RELEASE, WITHDRAW]);
}

/// A grant that a withdrawal finds is released at once while others pause. Another server keeps the lock whose release fails.
#[test]
fn a_found_grant_is_released_while_others_pause() {
    let s = threads().acquire().says(rank(0)).a().requests().b().locks().is_cut().drops().pass(ms(1001));
    s.withdraw().says(got(77)).forget_asked().a().drops().asked([WITHDRAW, RELEASE]);
}

/// A grant that a withdrawal has found is known when its message comes. A message about a grant that a withdrawal has found is no
/// stray grant.
#[test]
fn a_found_grant_is_known_when_its_message_comes() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().says(got(77)).a().drops();
    s.a().is_pushed(77).called(RELEASE, 1).stats(|s| s.wake_ups_ignored, 0);
}

/// A wake-up of a plain lock is for any waiter, and this one may have used it up.
#[test]
fn a_waiter_that_leaves_a_plain_lock_has_another_one_look() {
    let s = threads().acquire().says(BUSY.times(3)).a().plain().requests().b().on(A).plain().requests();
    s.a().drops().asked([ACQUIRE, ACQUIRE, WITHDRAW, ACQUIRE]);
}

#[test]
fn a_waiter_that_leaves_a_fair_lock_wakes_no_other() {
    let s = threads().acquire().says([rank(0), rank(1)]).a().requests().b().on(A).requests().a().drops();
    s.asked([ACQUIRE, ACQUIRE, WITHDRAW]);
}

/// A release of a plain lock in the background wakes no other waiter.
#[test]
fn a_plain_release_in_the_background_wakes_nobody() {
    let s = threads().a().plain().locks().acquire().says(BUSY).b().on(A).plain().requests();
    s.release().says(DOWN).a().drops().asked([ACQUIRE, ACQUIRE, RELEASE, RELEASE]);
}

/// A first attempt that is answered does not end the pause of those that failed. Another server keeps the lock whose release
/// fails: that one pauses.
#[test]
fn an_answered_first_attempt_ends_no_pause() {
    let s = threads().acquire().says(rank(0)).a().requests().b().locks().is_cut().drops();
    s.called(RELEASE.about(B), 2..=9).pass(ms(1001)).called(RELEASE.about(B), 4..=9).forget_asked();
    s.a().drops().called(WITHDRAW.about(A), 1).called(RELEASE.about(B), 0);
}

/// Repeats that are answered end the pause for all that fail later. The caller's attempt, the watchdog's, and its repeat, which
/// is the first and at once again.
#[test]
fn answered_repeats_end_the_pause_of_all() {
    let s = threads().acquire().says([rank(0), rank(1)]).a().requests().b().on(A).requests().c().locks();
    s.a().is_cut().drops().b().drops().pass(2 * S).a().is_back().pass(S).backlog(0).forget_asked();
    s.release().says(DOWN.times(2)).c().drops().asked(RELEASE.times(3));
}

/// A withdrawal is repeated until lease and place are over at the server.
#[test]
fn a_withdrawal_is_repeated_until_lease_and_place_are_over() {
    let s = threads().acquire().says(rank(0)).by("backlog:repeated").requests().withdraw().is_down();
    s.by("backlog:repeated").drops().pass(34 * S).called(WITHDRAW, 40..=140);
    s.at_first(WITHDRAW, [ms(0), ms(0)]); // the first repeat is at once
    s.backlog(1).pass(2 * S).backlog(0).forget_asked().pass(60 * S).called(WITHDRAW, 0);
    let said = lines_about("for lock `backlog:repeated`");
    let text = "fairlock::release: 1 releases or withdrawals given up; the first is Withdraw for lock `backlog:repeated`";
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == Level::Debug && said[0].1.starts_with(text), "the outage has its lines: {said:?}");
}

/// A right is missing for a second, as between the two steps of a change. A refusal is no outage.
#[test]
fn what_is_refused_is_repeated_until_it_is_carried_out() {
    let s = threads().acquire().says(rank(0)).by("backlog:refused").requests().a().locks().b().locks();
    let s = s.by("backlog:refused").is_denied().a().is_denied().by("backlog:refused").drops().a().drops();
    s.b()
        .is_denied()
        .unlocks()
        .fails(Denied)
        .after(ms(0))
        .pass(S)
        .backlog(3)
        .stats(|s| s.outage.is_some().into(), 0);
    s.by("backlog:refused").is_back().a().is_back().b().is_back().pass(S).backlog(0).forget_asked();
    s.a().locks().gets(1003).b().locks().gets(1004);
    let said = lines_about(
        "refused, and repeated; the first is Withdraw for lock `backlog:refused`: planned: denied",
    );
    assert!(matches!(&said[..], [(Level::Warn, _)]), "{said:?}");
}

/// It is repeated each second at most, until lease and place are over at the server.
#[test]
fn what_is_refused_for_good_is_repeated_until_it_is_over() {
    let s = tasks().a().locks().a().is_denied().drops().pass(34 * S).called(RELEASE, 30..=140).backlog(1);
    s.pass(2 * S).backlog(0).claims(0).forget_asked().pass(60 * S).asked_nothing();
}

/// A withdrawal that is refused as its request was is not worth a line. The caller has heard of it, and nothing is left at the
/// server.
#[test]
fn a_withdrawal_refused_as_its_request_writes_no_line() {
    let s = threads().acquire().says(error(BackendErrorKind::Mismatch));
    s.withdraw().says(error(BackendErrorKind::Mismatch)).by("backlog:mismatch").locks().fails(Mismatch);
    s.called(WITHDRAW, 1);
    assert!(
        lines_about("refused, and repeated; the first is Withdraw for lock `backlog:mismatch`").is_empty()
    );
}

/// The first withdrawal is under way when the others come.
#[test]
fn cleanups_that_are_refused_together_are_one_line() {
    let s = threads().acquire().says([rank(0), rank(1), rank(2)]).by("backlog:together").requests();
    s.b().on("backlog:together").requests().c().on("backlog:together").requests().withdraw().takes(S);
    s.by("backlog:together").drops().withdraw().says([DONE, DENIED.times(2)]).b().drops().c().drops();
    s.pass(2 * S);
    let said = lines_about("for lock `backlog:together`: planned");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].1.contains(": 2 releases or withdrawals refused"), "{said:?}");
}

/// The last handle goes, so there is no other attempt.
#[test]
fn a_request_that_is_the_last_handle_is_withdrawn() {
    let world = World::without_watchdog();
    let request = world.in_queue("last");
    world.settle(); // a thread that looks for the first time owns the client
    let (store, ..) = world.without_handles();
    assert_eq!(store.ops(), [Op::Acquire]);
    drop(request);
    assert_eq!(store.ops(), [Op::Withdraw]);
}

/// The server answers again, but they are in a pause after those that failed.
#[test]
fn a_client_that_is_dropped_tries_what_has_failed_once_more() {
    let s = threads();
    s.acquire().says(rank(0)).withdraw().is_down().release().is_down().a().requests().drops();
    s.b().locks().drops().pass(20 * S).backlog(2).withdraw().is_up().release().is_up().forget_asked();
    let (store, ..) = s.without_handles();
    assert_eq!([Op::Release, Op::Withdraw].map(|op| store.times(op).len()), [1, 1]);
}

/// The server does not answer, so that the client still knows of its other hold.
#[test]
fn a_client_that_is_gone_with_leaked_holds_says_so() {
    let s = unwatched();
    s.by("backlog:leaked").locks().leaks().b().locks().release().is_down();
    s.without_handles();
    let said = lines_about("holds lock `backlog:leaked`");
    let text = "its 1 leaked holds are not renewed any more";
    assert!(said.len() == 1 && said[0].1.contains(text), "{said:?}");
    unwatched().by("backlog:given-back").locks().unlocks().done();
    assert!(lines_about("holds lock `backlog:given-back`").is_empty());
}
