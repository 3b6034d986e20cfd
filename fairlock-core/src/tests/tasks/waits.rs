//! How tasks wait for a lock.

use std::time::Duration;

use super::super::scene::*;
use super::super::store::{Op, queued};
use super::super::support::{S, World, polled_once};
use crate::Error;

#[test]
fn a_task_that_asks_for_a_free_lock_is_woken_once_and_has_it() {
    let s = tasks().a().locks().gets(1001).checks().is_held().valid(ms(29_698)).asked(ACQUIRE.by_tasks());
    s.held(&[A]);
}

/// So there is no re-entry.
#[test]
fn each_wait_of_a_task_is_an_owner_of_its_own() {
    tasks().a().locks().gets(1001).a2().locks().gets(1002).asked([ACQUIRE, ACQUIRE]).held(&[A, A]);
}

/// Ten places' times in the queue: heartbeats, wake-ups to ask again, and their answers.
#[test]
fn no_news_but_the_end_of_its_wait_wakes_a_task() {
    let s = tasks().acquire().says([rank(3), rank(2), rank(1)]).a().locks().pass(50 * S).a().is_woken();
    s.a().is_woken().called(RENEW, 21..=40).called(ACQUIRE, 3).a().pending().is_pushed(9).gets(9);
    s.pass(60 * S).a().checks();
}

#[test]
fn a_future_that_is_dropped_leaves_the_queue() {
    tasks().acquire().says(rank(0)).a().locks().drops().asked([ACQUIRE, WITHDRAW]).waiting(&[]);
}

/// A future that is dropped before its request was sent leaves no trace.
#[test]
fn a_future_dropped_before_it_was_sent_leaves_no_trace() {
    let s = tasks().acquire().takes(S).a().locks().b().locks().drops().waiting(&[A]).pass(2 * S);
    s.asked(ACQUIRE).a().gets(1001);
}

/// A future that is dropped while it is asked for is withdrawn after that. The withdrawal goes after the answer that may have
/// made a place, or granted the lock.
#[test]
fn a_future_dropped_during_its_ask_is_withdrawn_after() {
    let s = tasks().acquire().takes(S).withdraw().says(got(1001)).a().locks().drops().pass(2 * S);
    s.asked_first([ACQUIRE, WITHDRAW, RELEASE]).stats(|s| s.lost, 0);
}

/// A grant that no poll took is passed on when the future is dropped.
#[test]
fn a_grant_no_poll_took_is_passed_on_at_the_drop() {
    let s = tasks().a().locks().decided().held(&[A]).a().drops().asked([ACQUIRE, RELEASE]).held(&[]);
    s.stats(|s| s.lost, 0);
}

/// It does not get the hold that was lost. The server is told of the old one for good measure.
#[test]
fn a_task_that_comes_back_after_its_grant_has_ended_asks_anew() {
    let s = tasks().a().locks().pass(60 * S).held(&[]).stats(|s| s.lost, 1).asked([ACQUIRE, RENEW.times(3)]);
    s.a().polls_pending().polls().gets(1002).stats(|s| s.lost, 1).asked([RELEASE.of(1001), ACQUIRE]);
}

/// As when the process stood still: no thread has seen the end yet.
#[test]
fn a_grant_that_ended_just_before_its_poll_is_not_taken() {
    unwatched_tasks().a().locks().jump(31 * S).a().polls_pending().stats(|s| s.lost, 1).a().drops();
}

#[test]
fn a_hold_that_was_taken_is_renewed_for_as_long_as_it_lasts() {
    tasks().a().locks().pass(29 * S).a().polls().gets(1001).pass(300 * S).a().checks();
}

#[test]
fn a_wake_up_for_a_plain_lock_goes_on_when_a_task_leaves() {
    let s = tasks().a().plain().acquire().says(BUSY.times(2)).a().locks().b().on(A).plain().locks();
    s.a().drops().b().gets(1001);
}

/// The server tells only the first of a client's waiters when the holder's lease ends.
#[test]
fn a_task_that_leaves_has_another_one_recheck_in_its_place() {
    let s = tasks().acquire().says([rank(0).time(S), rank(1)]).a().locks().b().on(A).locks().a().drops();
    s.pass(ms(1665)).at(RENEW, [S]).b().drops();
}

/// The heartbeat tells of the grant, as its message was lost.
#[test]
fn a_grant_that_a_heartbeat_finds_wakes_the_task() {
    tasks().acquire().says(rank(0)).a().locks().renew().says(got(9)).pass(ms(1667)).a().gets(9);
}

/// A push before the answer to the first attempt wakes the task with that answer. It overtakes the answer that says "in the queue".
#[test]
fn a_push_before_the_first_answer_wakes_with_that_answer() {
    let s = tasks().acquire().takes(S).acquire().says(rank(0)).a().locks().is_pushed(9).pending().pass(S);
    s.a().gets(9);
}

/// A grant that no poll takes is renewed for a lease and then lost once. The bound of a future that is forgotten, or of a task
/// that is never polled again. It is renewed for as long as a task may need to run.
#[test]
fn a_grant_that_no_poll_takes_is_lost_after_a_lease() {
    let s = tasks();
    let (tells, told) = crossbeam_channel::unbounded();
    s.client.on_lost(move |lost| tells.send(lost.clone()).unwrap());
    s.a().locks().pass(30 * S).held(&[A]).pass(30 * S).held(&[]).pass(300 * S).stats(|s| s.lost, 1);
    assert_eq!(told.recv_timeout(10 * S).unwrap().lock.as_str(), "a");
    assert!(told.try_recv().is_err());
    assert!(s.store.times(Op::Renew).iter().all(|at| *at < 30 * S));
    s.a().drops();
}

#[test]
fn a_future_takes_no_place_before_it_is_polled() {
    let world = World::new();
    drop(world.async_lock("unpolled").lock());
    drop(world.async_lock("unpolled").try_lock());
    world.settle();
    assert!(world.store.ops().is_empty());
}

#[test]
fn a_task_knows_its_rank() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(3)]);
    let mut locking = Box::pin(world.async_lock("rank").lock());
    assert_eq!(locking.rank(), None);
    assert!(polled_once(locking.as_mut()).is_pending());
    world.settle();
    assert_eq!(locking.rank(), Some(3));
}

#[test]
fn a_future_that_was_ready_is_used_up() {
    let world = World::new();
    let mut task = world.locking("ready");
    assert!(task.poll().is_ready());
    assert!(matches!(task.poll(), std::task::Poll::Ready(Err(Error::Misuse { .. }))));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release], "it asks for nothing");
}

#[test]
fn the_kinds_and_the_terms_of_a_handle_are_kept() {
    let world = World::new();
    world.store.plan().keeps_shared = true;
    let prices = world.client.rw_lock("prices").unwrap();
    let mails = world.client.semaphore("mails", 5).unwrap().to_async();
    let fixed = world.client.fair_lock("fixed").unwrap().fixed_lease(3 * S);
    let locks = [
        (prices.reader().to_async(), 1),
        (prices.writer().to_async(), u32::MAX),
        (mails.many(3).unwrap(), 3),
        (world.client.plain_lock("plain").unwrap().to_async(), 1),
        (fixed.owned_by(&world.client.new_owner()).unwrap().to_async(), 1),
    ];
    assert!(matches!(mails.many(0), Err(Error::InvalidConfig { .. })));
    let mut guards = Vec::new();
    for (lock, units) in locks {
        let task = world.task(lock.lock());
        world.settle();
        guards.push(task.ended().unwrap());
        let held = world.client.held().into_iter().find(|held| held.owner == *guards.last().unwrap().owner());
        assert_eq!(held.map(|held| (held.kind, held.units)), Some((lock.kind(), units)));
    }
    world.clock.advance(60 * S);
    let lost: Vec<_> = guards.iter().map(|guard| guard.is_lost()).collect();
    assert_eq!(lost, [false, false, false, false, true]);
}

#[test]
fn terms_out_of_range_are_refused_by_the_first_poll() {
    let world = World::new();
    let lock = world.client.fair_lock("terms").unwrap().max_hold(Duration::ZERO).to_async();
    let polled = polled_once(lock.lock());
    assert!(matches!(polled, std::task::Poll::Ready(Err(Error::InvalidConfig { .. }))));
}
