//! How tasks give a hold up, and what they hear of that.

use super::super::scene::*;
use super::super::store::Op;
use super::super::support::{S, World, polled_once};
use super::is_by_tasks;
use crate::backend::Wake;
use crate::{Error, LostCause};

#[test]
fn a_guard_that_is_dropped_is_released_by_the_thread_for_tasks() {
    let s = tasks().a().locks().gets(1001).release().takes(S).a().drops().done().after(ms(0)).held(&[]);
    s.pass(S).asked([ACQUIRE.by_tasks(), RELEASE.of(1001).by_tasks()]).stats(|s| s.holds.count, 1);
}

#[test]
fn an_unlock_is_woken_once_by_the_servers_word() {
    tasks().a().locks().release().takes(S).a().unlocks().done().after(S).asked([ACQUIRE, RELEASE]);
}

#[test]
fn an_unlock_that_is_dropped_goes_on() {
    let s = tasks().a().locks().release().takes(ms(100)).release().says(DOWN).a().unlocks().drops().pass(S);
    s.asked([ACQUIRE, RELEASE.of(1001), RELEASE.of(1001)]);
}

#[test]
fn an_unlock_says_that_the_hold_was_lost() {
    tasks().a().locks().gets(1001).is_taken().unlocks().at_once().lost(Taken).stats(|s| s.lost, 1);
}

/// An unlock after the end of the lease says so and the loss is reported once. The server is told for good measure.
#[test]
fn an_unlock_after_the_lease_says_so_once() {
    let s = unwatched_tasks().a().locks().gets(1001).jump(31 * S).a().unlocks().at_once().lost(NotRenewed);
    s.stats(|s| s.lost, 1).stats(|s| s.holds.count, 1).called(RELEASE, 1);
}

/// An unlock whose repeat after a panic finds no hold was released. A panic has hidden the answer: others in the call may have
/// been carried out.
#[test]
fn an_unlock_repeated_after_a_panic_was_released() {
    let s = tasks().a().locks().release().panics(1).release().says(GONE);
    s.a().unlocks().done().after(ms(0)..=3 * S).stats(|s| s.lost, 0);
}

#[test]
fn an_unlock_that_is_refused_says_so_at_once() {
    tasks().a().locks().a().is_denied().unlocks().fails(Denied).after(ms(0)).is_back().pass(S).backlog(0);
}

/// An unlock without an answer says so after the outage limit and the release goes on.
#[test]
fn an_unlock_without_an_answer_goes_on_after_the_limit() {
    let s = tasks().a().locks().release().is_down().a().unlocks().fails(Unavailable).after(10 * S);
    s.a().told("planned: down").release().is_up().pass(2 * S).claims(0);
}

#[test]
fn what_a_task_gives_up_is_told_before_what_it_asks_for_then() {
    let s = tasks().a().locks().gets(1001).acquire().says(rank(0)).b().locks().by("blocks").takes(S).locks();
    s.forget_asked().a().drops().b().drops().a().tries().pass(S).asked([RELEASE, WITHDRAW, ACQUIRE]);
    s.a().gets(1003).by("blocks").gets(1002);
}

/// A release goes after an ask of the watchdog that is under way. A push has granted the lock while the watchdog asks. The server
/// must not carry the ask out after the release.
#[test]
fn a_release_goes_after_an_ask_of_the_watchdog() {
    let s = tasks().acquire().says(rank(0).times(2)).a().locks().acquire().takes(S).a().is_woken();
    s.a().is_pushed(9).gets(9).forget_asked().a().drops().asked_nothing().pass(S).asked(RELEASE.at(S));
}

#[test]
fn a_withdrawal_goes_after_a_heartbeat_that_is_under_way() {
    let s = tasks().acquire().says(rank(0)).a().locks().renew().takes(S).pass(2 * S).a().is_renewing();
    s.at(RENEW, [ns(1_666_666_666)]).a().drops().called(WITHDRAW, 0).pass(S);
    s.at_first(WITHDRAW, [ns(2_666_666_666)]);
}

/// Of one batch: a release panics, and a withdrawal and a request stand behind it. The thread goes on.
#[test]
fn what_a_panic_leaves_undone_is_the_watchdogs() {
    let s = tasks().a().locks().acquire().says(rank(0)).b().locks().by("blocks").takes(S).locks();
    s.release().panics(1).a().unlocks().b().drops().d().locks().pass(3 * S).a().done();
    s.by("blocks").gets(1002).d().gets(1003).called(RELEASE.about(A), 2).called(WITHDRAW.about(B), 1);
    s.called(ACQUIRE.about(D), 1).forget_asked().e().locks().gets(1004).drops();
    s.asked([ACQUIRE.by_tasks(), RELEASE.by_tasks()]);
}

#[test]
fn a_hold_that_expires_is_told_to_its_task_in_time() {
    let s = tasks().a().locks().gets(1001).renew().is_down().a().listens().pass(ms(29_698));
    s.a().lost(NotRenewed);
}

/// An unlock whose turn does not come says so after the outage limit. The thread that tells stands still in a call: no attempt has
/// failed, and none was made. The watchdog has nothing else to look for before the next renewal.
#[test]
fn an_unlock_that_is_not_sent_says_so_at_the_outage_limit() {
    let s = Scene::of(World::with(2 * S, crate::watchdog::THREADS.dog));
    s.a().as_task().locks().gets(1001).acquire().says(rank(0)).b().as_task().locks();
    s.withdraw().takes(20 * S).b().drops().pass(3 * S);
    s.a().unlocks().fails(Unavailable).after(2 * S).told("no answer to the release").pass(20 * S);
    s.called(RELEASE.about(A), 1);
}

/// Many unlocks and waits at once end within the outage limit of a silent server.
#[test]
fn many_unlocks_and_waits_end_within_the_outage_limit() {
    let s = tasks();
    let holders = || (0..150).map(|n| s.by(&format!("holder {n}")));
    let waiter = |n: usize| s.by(&format!("waiter {n}"));
    holders().for_each(|holder| _ = holder.locks().gets(1001..=1150));
    s.release().is_down().acquire().is_down();
    holders().enumerate().for_each(|(n, holder)| _ = (holder.unlocks(), waiter(n).on("waits").locks()));
    s.pass(ms(10_060));
    holders()
        .enumerate()
        .for_each(|(n, holder)| _ = (holder.fails(Unavailable), waiter(n).fails(Unavailable)));
    s.release().is_up().pass(2 * S).backlog(0);
}

/// More than go in one call, and wanted in another order.
#[test]
fn no_request_goes_before_the_last_of_many_releases() {
    let s = tasks();
    let each = |does: fn(By) -> By| (0..150).for_each(|n| _ = does(s.by(&format!("holder {n}"))));
    each(|holder| holder.locks().gets(1001..=1150));
    s.forget_asked().by("blocks").takes(S).locks().w().locks();
    each(|holder| holder.drops());
    s.pass(S).asked([ACQUIRE, RELEASE.times(150), ACQUIRE]).w().gets(1152).by("blocks").gets(1151);
}

/// After a release without an answer the rest of its batch is the watchdog's. Each of the three would wait for a time-out.
#[test]
fn the_rest_of_an_unanswered_batch_is_the_watchdogs() {
    let s = tasks();
    s.a().locks().acquire().says([rank(0), rank(0)]).b().locks().by("blocks").locks();
    s.withdraw().takes(S).by("blocks").drops().release().is_down();
    s.a().drops().b().drops().d().locks().forget_asked().pass(S);
    let asked = s.store.asked();
    let ops =
        |by_tasks| asked.iter().filter(move |asked| is_by_tasks(asked) == by_tasks).map(|asked| asked.op);
    assert_eq!(ops(true).collect::<Vec<_>>(), [Op::Release], "{asked:?}");
    assert!([Op::Withdraw, Op::Acquire].iter().all(|op| ops(false).any(|other| other == *op)), "{asked:?}");
    s.d().gets(1002);
}

/// Its ask is still under way on another thread, and the thread that would withdraw it leaves all to the watchdog.
#[test]
fn a_withdrawal_goes_after_the_ask_of_another_thread() {
    let s = tasks();
    s.a().locks().acquire().says(rank(0)).by("blocks").locks();
    s.b().takes(2 * S).locks().withdraw().takes(S).by("blocks").drops();
    s.release().says(DOWN).a().drops().b().drops().forget_asked().pass(S);
    s.asked([RELEASE.by_tasks(), RELEASE.by_dog()]);
    s.pass(S).asked_first(WITHDRAW.at(2 * S));
}

#[test]
fn an_unlock_that_is_not_polled_releases_too() {
    let world = World::new();
    drop(world.locked("unpolled").unlock());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
}

#[test]
fn any_number_of_futures_hear_of_a_loss_and_none_of_a_release() {
    let world = World::new();
    let guard = world.locked("heard");
    let waits = [(); 3].map(|()| world.task(guard.lost()));
    drop(world.task(guard.lost()));
    let (lock, owner, token) = (guard.name(), guard.owner().as_str(), guard.token());
    world.store.wake(Wake::Taken { lock, owner, token });
    world.settle();
    for wait in waits {
        let lost = wait.ended();
        assert_eq!((lost.token, lost.cause), (guard.token(), LostCause::Taken));
    }
    let polled = polled_once(guard.lost());
    assert!(polled.is_ready(), "it is lost already");
    assert!(guard.is_lost() && matches!(guard.check(), Err(Error::Lost(_))));

    let guard = world.locked("released");
    let mut waits = world.task(guard.lost());
    let unlock = world.task(guard.unlock());
    world.settle();
    unlock.ended().unwrap();
    assert!(waits.woken() == 0 && waits.poll().is_pending());
}

#[test]
fn a_hold_goes_on_with_a_guard_that_blocks() {
    let world = World::new();
    let guard = world.locked("blocking");
    let token = guard.token();
    let blocking = guard.into_blocking();
    world.clock.advance(60 * S);
    assert_eq!((blocking.token(), blocking.is_lost()), (token, false));
    world.store.asked();
    world.run(move || blocking.unlock()).0.unwrap();
    let asked = world.store.asked();
    assert!(asked.len() == 1 && asked[0].op == Op::Release && !is_by_tasks(&asked[0]), "{asked:?}");
}
