//! Attempts that the server may carry out long after their repeats were answered: for six seconds.

use super::scene::*;
use super::store::{Op, down, queued};
use super::support::{OUTAGE, S, World};
use crate::Client;

/// A request with an unanswered attempt is withdrawn once more when that can begin nothing any more. Before that another attempt
/// might still arrive.
#[test]
fn an_unanswered_attempt_is_withdrawn_after_its_end() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().unlocks().done().pass(5 * S);
    s.called(WITHDRAW, 0).pass(2 * S).called(WITHDRAW, 1).pass(60 * S).called(WITHDRAW, 1).called(RELEASE, 1);
}

#[test]
fn a_grant_that_only_a_late_attempt_was_given_is_released() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().unlocks().done().withdraw().says(got(6000));
    s.pass(7 * S).asked([ACQUIRE, ACQUIRE, RELEASE.of(5000), WITHDRAW, RELEASE.of(6000)]).backlog(0);
}

/// Else the withdrawal would release the hold before anybody has adopted it.
#[test]
fn a_hold_that_was_handed_over_is_not_released_by_a_withdrawal() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().hands_over().done();
    s.withdraw().says(got(5000)).pass(7 * S).called(WITHDRAW, 1).called(RELEASE, 0).backlog(0);
    // But what only the late attempt was given is.
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().hands_over().done();
    s.withdraw().says(got(6000)).pass(7 * S).called(WITHDRAW, 1).called(RELEASE, 1).backlog(0);
}

/// An attempt that was answered or refused leads to no withdrawal.
#[test]
fn an_answered_or_refused_attempt_is_not_withdrawn() {
    let s = late().a().locks().unlocks().done().acquire().says(DENIED).b().locks().fails(Denied);
    s.asked_first([ACQUIRE, RELEASE, ACQUIRE]).pass(60 * S).asked_nothing();
}

/// A request with an old unanswered attempt is withdrawn at once. It may have been granted the lock between the release and its
/// answer.
#[test]
fn an_old_unanswered_attempt_is_withdrawn_at_once() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().pass(7 * S).a().unlocks().done();
    s.called(WITHDRAW, 1).pass(60 * S).called(WITHDRAW, 1);
}

/// One attempt that ends busy is withdrawn later if its first try was not answered.
#[test]
fn one_attempt_that_ends_busy_may_be_withdrawn_later() {
    let s = late().acquire().says([DOWN, BUSY]).a().tries().is_busy().called(WITHDRAW, 0).pass(7 * S);
    s.called(WITHDRAW, 1);
}

/// At once, and after the attempt's end.
#[test]
fn a_request_that_left_the_queue_is_withdrawn_once_more() {
    let s = late().acquire().says([DOWN, rank(0)]).a().requests().pass(S).a().drops().called(WITHDRAW, 1);
    s.pass(6 * S).called(WITHDRAW, 2);
}

#[test]
fn a_lost_hold_is_withdrawn_once_more_though_its_guard_is_kept() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().renew().says(GONE).a().renews().lost(Taken);
    s.pass(7 * S).called(WITHDRAW, 1).a().drops().pass(60 * S).called(WITHDRAW, 1);
}

#[test]
fn an_unanswered_heartbeat_begins_nothing() {
    let s = late().acquire().says(rank(0)).a().requests().renew().says(DOWN).pass(ms(1667));
    s.called(RENEW, 1..=2).a().is_pushed(5000).waits().gets(5000).unlocks().done().pass(7 * S);
    s.called(WITHDRAW, 0);
}

#[test]
fn an_unanswered_renewal_of_a_hold_begins_nothing() {
    let s = late().a().locks().renew().says(DOWN).a().renews().fails(Unavailable).unlocks().done();
    s.pass(7 * S).called(WITHDRAW, 0);
}

/// An owner's next call does not wait where places are named by requests.
#[test]
fn an_owners_next_call_waits_for_no_withdrawal() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().unlocks().done();
    s.a().locks().gets(1001).after(ms(0)).pass(7 * S).called(WITHDRAW, 1).a().is_held();
}

/// An owner's next call waits for the withdrawal where places are named by owners. One attempt does not wait for that; and the
/// lock may be free.
#[test]
fn where_owners_name_places_the_next_call_waits() {
    let s = late_by_owner().acquire().says([DOWN, got(5000)]).a().locks().unlocks().done();
    s.a().tries().fails(Unavailable).after(ms(0)).tries_for(S).fails(Unavailable).after(S);
    s.a().locks().gets(1001).after(4 * S..=8 * S).unlocks().done();
    s.asked_first([ACQUIRE, ACQUIRE, RELEASE, WITHDRAW, ACQUIRE]);
}

/// A withdrawal that was not answered is made once more where places are named by owners. A late withdrawal would remove the
/// place of the owner's next request. A release names its hold.
#[test]
fn where_owners_name_places_a_withdrawal_is_made_again() {
    let s = late().acquire().says(rank(0)).a().requests().withdraw().says(DOWN).a().drops().pass(18 * S);
    s.called(WITHDRAW, 2).b().locks().release().says(DOWN.times(2)).b().drops().pass(18 * S);
    s.called(WITHDRAW, 2);
    let s = late_by_owner().acquire().says(rank(0)).a().requests().withdraw().says(DOWN).a().drops();
    s.pass(18 * S).called(WITHDRAW, 3).b().locks().release().says(DOWN.times(2)).b().drops().pass(18 * S);
    s.called(WITHDRAW, 3);
}

/// An owner's next call waits for an unanswered withdrawal where places are named by owners. It would remove the place of the
/// owner's next request.
#[test]
fn an_owners_next_call_waits_for_an_unanswered_withdrawal() {
    let s = late().acquire().says(rank(0)).withdraw().says(DOWN).a().tries_for(S).is_busy();
    s.a().locks().gets(1001).after(ms(0)..=5 * S);
    let s = late_by_owner().acquire().says(rank(0)).withdraw().says(DOWN).a().tries_for(S).is_busy();
    s.a().locks().gets(1001).after(ms(5001)..=9 * S);
}

/// A withdrawal is repeated for as long as what a late attempt began may last. The server may have granted the lock at the very
/// end of the attempt, for a lease.
#[test]
fn a_withdrawal_is_repeated_while_a_late_grant_may_last() {
    let s = late().acquire().says(DOWN.times(2)).withdraw().is_down().a().tries().fails(Unavailable);
    s.pass(36 * S).called(WITHDRAW, 9..=99).forget_asked().pass(4 * S).called(WITHDRAW, 1..=99).pass(2 * S);
    s.forget_asked().pass(60 * S).called(WITHDRAW, 0);
}

#[test]
fn a_shutdown_withdraws_at_once_what_may_still_arrive() {
    let s = late().acquire().says([DOWN, got(5000)]).a().locks().unlocks().done();
    s.x().shuts_down().done().after(ms(0)..=ms(999)).called(WITHDRAW, 1);
}

/// A claim has ended, and its owner's next call comes before the late withdrawal has replaced the claim. The withdrawal would remove
/// the place of that call, so it comes after the end of the call. Where that call has ended as well, it is made at its time.
#[test]
fn a_late_withdrawal_takes_no_place_of_the_next_call() {
    for next_has_ended in [false, true] {
        let world = World::with_late_attempts(6 * S);
        world.store.plan().keeps_place_by_owner = true;
        world.store.plan().acquire.extend([down(), queued(0), queued(0)]);
        let lock = world.lock("a");
        let _former = lock.request().unwrap();
        world.clock.advance(S);
        let former = world.claim("a");
        former.retire();
        let next = lock.request().unwrap();
        if next_has_ended {
            world.claim("a").retire();
        }
        world.shared.ledger.forget(&former);
        world.clock.advance(8 * S);
        assert_eq!(world.store.calls_about("a", Op::Withdraw), usize::from(next_has_ended));
        drop(next);
        world.clock.advance(S);
        assert_eq!(world.store.calls_about("a", Op::Withdraw), if next_has_ended { 1 } else { 2 });
    }
}

/// A client learns from its backend for how long an attempt may be late.
#[test]
fn a_backend_says_for_how_long_an_attempt_may_be_late() {
    let world = World::new();
    world.store.plan().attempt_ttl = Some(6 * S);
    let client = Client::builder(world.store.clone()).clock(world.clock.clone()).build().unwrap();
    let s = Scene::of_client(world, client);
    s.acquire().says([DOWN, got(5000)]).a().locks().unlocks().done().pass(7 * S).called(WITHDRAW, 1);
}

/// An owner's next call waits for a withdrawal that comes after the outage limit.
#[test]
fn an_owner_waits_longer_than_the_outage_limit() {
    let s = Scene::of(World::with_late_attempts(OUTAGE + 5 * S));
    s.store.plan().keeps_place_by_owner = true;
    s.acquire().says([DOWN, got(5000)]).a().locks().unlocks().done();
    s.a().locks().gets(1001).after(13 * S..=17 * S).unlocks().done();
}

/// A holder that hears of another grant of its request has it withdrawn. An answer or a heartbeat is under way while a push
/// grants the lock with token 9. The hold was over when that attempt was carried out, so a release of it leaves what the attempt
/// was given.
#[test]
fn another_grant_of_the_same_request_is_withdrawn() {
    for (asked, times) in [(got(9), 0), (got(10), 1), (rank(0).latest(8), 0), (rank(0).latest(9), 1)] {
        let asks: fn(Scene, Says) -> By =
            |s, says| s.acquire().says(says).acquire().takes(ms(300)).a().is_woken().is_asking();
        let beats: fn(Scene, Says) -> By =
            |s, says| s.renew().says(says).renew().takes(ms(300)).pass(ms(1667)).a().is_renewing();
        for crossed in [asks, beats] {
            let s = crossed(late().acquire().says(rank(0)).a().requests().scene(), asked);
            s.is_pushed(9).waits().gets(9).unlocks().done().pass(60 * S).called(WITHDRAW, times);
        }
    }
}

/// A client that is dropped withdraws at once what may still arrive. A round of the watchdog may own the client.
#[test]
fn a_dropped_client_withdraws_what_may_still_arrive() {
    let s = late();
    s.acquire().says([DOWN, got(5000)]).a().locks().unlocks().done();
    let (store, ..) = s.without_handles();
    assert_eq!(store.times(Op::Withdraw).len(), 1);
}
