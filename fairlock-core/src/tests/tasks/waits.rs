//! How tasks wait for a lock.

use std::time::Duration;

use super::super::store::{Op, busy, queued, was_granted};
use super::super::support::{PLACE, S, World, ms, polled_once};
use super::{is_by_tasks, numbers};
use crate::backend::{Acquired, Renewal};
use crate::{Error, TryLock};

#[test]
fn a_task_that_asks_for_a_free_lock_is_woken_once_and_has_it() {
    let world = World::new();
    let guard = world.locked("free");
    assert_eq!((guard.name(), guard.token().get()), ("free", 1001));
    assert!(guard.check().is_ok() && !guard.is_lost() && guard.valid_for() > 29 * S);
    let asked = world.store.asked();
    assert!(asked.len() == 1 && is_by_tasks(&asked[0]), "{asked:?}");
    assert_eq!(world.client.held()[0].owner, *guard.owner());
}

#[test]
fn each_wait_of_a_task_is_an_owner_of_its_own() {
    let world = World::new();
    let lock = world.async_lock("owners");
    let [one, two] = [lock.lock(), lock.lock()].map(|wait| world.task(wait));
    world.settle();
    let [one, two] = [one, two].map(|task| task.ended().unwrap());
    assert!(one.owner() != two.owner() && one.request_id() != two.request_id());
    assert_eq!(world.store.times(Op::Acquire).len(), 2, "no re-entry");
}

#[test]
fn a_future_takes_no_place_before_it_is_polled() {
    let world = World::new();
    drop(world.async_lock("unpolled").lock());
    drop(world.async_lock("unpolled").try_lock());
    world.settle();
    assert!(world.store.ops().is_empty());
}

/// Ten places' times in line: heartbeats, wake-ups to ask again, and their answers.
#[test]
fn no_news_but_the_end_of_its_wait_wakes_a_task() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(3), queued(2), queued(1)]);
    let task = world.locking("line");
    world.clock.advance(10 * PLACE);
    for _ in 0..2 {
        world.recheck(&world.claim("line"));
        world.settle();
    }
    assert!(world.store.times(Op::Renew).len() > 20 && world.store.times(Op::Acquire).len() == 3);
    assert_eq!(task.woken(), 0);
    world.push(&world.claim("line"), 9);
    let guard = task.ended().unwrap();
    world.clock.advance(60 * S);
    assert_eq!((guard.token().get(), guard.check().is_ok()), (9, true), "it is renewed");
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
fn a_future_that_is_dropped_leaves_the_line() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    drop(world.locking("dropped"));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
    assert!(world.client.waiting().is_empty());
}

#[test]
fn a_future_that_is_dropped_before_its_request_was_sent_leaves_no_trace() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    let first = world.task(world.async_lock("sent").lock());
    world.settle();
    drop(world.task(world.async_lock("unsent").lock()));
    assert!(world.client.waiting().len() == 1);
    world.clock.advance(2 * S);
    assert_eq!(world.store.ops(), [Op::Acquire]);
    drop(first.ended().unwrap());
}

/// The withdrawal goes after the answer that may have made a place, or granted the lock.
#[test]
fn a_future_that_is_dropped_while_it_is_asked_for_is_withdrawn_after_that() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    world.store.plan().withdraw.push_back(was_granted(1001));
    let task = world.task(world.async_lock("crossing").lock());
    world.settle();
    drop(task);
    world.clock.advance(2 * S);
    assert_eq!(world.store.ops()[..3], [Op::Acquire, Op::Withdraw, Op::Release]);
    assert_eq!(world.client.stats().lost, 0);
}

#[test]
fn a_grant_that_no_poll_took_is_passed_on_when_the_future_is_dropped() {
    let world = World::new();
    let task = world.locking("untaken");
    assert_eq!((task.woken(), world.client.held().len()), (1, 1));
    drop(task);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
    assert!(world.client.held().is_empty() && world.client.stats().lost == 0);
}

/// The bound of a future that is forgotten, or of a task that is never polled again.
#[test]
fn a_grant_that_no_poll_takes_is_renewed_for_a_lease_and_then_lost_once() {
    let world = World::new();
    let (tells, told) = crossbeam_channel::unbounded();
    world.client.on_lost(move |lost| tells.send(lost.clone()).unwrap());
    std::mem::forget(world.locking("forgotten"));
    world.clock.advance(30 * S);
    assert_eq!(world.client.held().len(), 1, "it is renewed for as long as a task may need to run");
    world.clock.advance(30 * S);
    assert!(world.client.held().is_empty());
    world.clock.advance(300 * S);
    assert_eq!(world.client.stats().lost, 1);
    assert_eq!(told.recv_timeout(10 * S).unwrap().lock.as_str(), "forgotten");
    assert!(told.try_recv().is_err());
    assert!(world.store.times(Op::Renew).iter().all(|at| *at < 30 * S));
}

#[test]
fn a_task_that_comes_back_after_its_grant_has_ended_asks_anew() {
    let world = World::new();
    let mut task = world.locking("back");
    world.clock.advance(60 * S);
    assert_eq!((world.client.held().len(), world.client.stats().lost), (0, 1));
    assert!(world.before_the_answer(|| task.poll()).is_pending(), "not the hold that was lost");
    world.settle();
    let std::task::Poll::Ready(Ok(guard)) = task.poll() else { panic!("it is granted anew") };
    assert_eq!((guard.token().get(), world.client.stats().lost), (1002, 1));
    let asked = world.store.asked();
    assert_eq!(numbers(&asked, Op::Release), [1001], "the server is told of the old one for good measure");
}

/// As when the process stood still: no thread has seen the end yet.
#[test]
fn a_grant_that_ended_just_before_its_poll_is_not_taken() {
    let world = World::without_watchdog();
    let mut task = world.locking("late");
    world.clock.jump(31 * S);
    assert!(world.before_the_answer(|| task.poll()).is_pending() && world.client.stats().lost == 1);
}

#[test]
fn a_hold_that_was_taken_is_renewed_for_as_long_as_it_lasts() {
    let world = World::new();
    let mut task = world.locking("taken");
    world.clock.advance(29 * S);
    let std::task::Poll::Ready(Ok(guard)) = task.poll() else { panic!("it was granted") };
    world.clock.advance(300 * S);
    guard.check().unwrap();
}

#[test]
fn an_attempt_of_a_task_is_busy_or_has_the_lock() {
    let world = World::new();
    world.store.plan().acquire.push_back(busy());
    let tries = [(); 2].map(|()| {
        let task = world.task(world.async_lock("tried").try_lock());
        world.settle();
        task.ended().unwrap()
    });
    assert!(matches!(tries, [TryLock::Busy, TryLock::Granted(_)]));
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire]);
}

/// Its grant ended before it was polled, and its time is over by then: one more attempt is made.
/// The thread for tasks stands still in a call.
/// Each of 64 in turn could wait for a time-out.
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
fn a_wake_up_for_a_plain_lock_goes_on_when_a_task_leaves() {
    let world = World::new();
    world.store.plan().acquire.extend([busy(), busy()]);
    let [first, second] = [(); 2].map(|()| {
        let task = world.task(world.client.plain_lock("plain").unwrap().to_async().lock());
        world.settle();
        task
    });
    drop(first);
    world.settle();
    drop(second.ended().unwrap());
}

/// The server tells only the first of a client's waiters when the holder's lease ends.
#[test]
fn a_task_that_leaves_has_another_one_recheck_in_its_place() {
    let world = World::new();
    let first = Ok(Acquired::Queued { rank: 0, recheck_in: S, ticket: 1, latest: 1 });
    world.store.plan().acquire.extend([first, queued(1)]);
    let [first, _second] = [(); 2].map(|()| world.locking("recheck"));
    drop(first);
    world.clock.advance(PLACE / 3 - ms(1));
    assert_eq!(world.store.times(Op::Renew), [S]);
}

#[test]
fn the_kinds_and_the_terms_of_a_handle_are_kept() {
    let world = World::new();
    world.store.plan().keeps_shared = true;
    let prices = world.client.rw_lock("prices").unwrap();
    let mails = world.client.semaphore("mails", 5).unwrap();
    let fixed = world.client.fair_lock("fixed").unwrap().fixed_lease(3 * S);
    let locks = [
        (prices.reader().to_async(), 1),
        (prices.writer().to_async(), u32::MAX),
        (mails.to_async(3).unwrap(), 3),
        (world.client.plain_lock("plain").unwrap().to_async(), 1),
        (fixed.owned_by(&world.client.new_owner()).unwrap().to_async(), 1),
    ];
    assert!(matches!(mails.to_async(0), Err(Error::InvalidConfig { .. })));
    let mut guards = Vec::new();
    for (lock, takes) in locks {
        let task = world.task(lock.lock());
        world.settle();
        guards.push(task.ended().unwrap());
        let held = world.client.held().into_iter().find(|held| held.owner == *guards.last().unwrap().owner());
        assert_eq!(held.map(|held| (held.kind, held.takes)), Some((lock.kind(), takes)));
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

/// The heartbeat tells of the grant, as its message was lost.
#[test]
fn a_grant_that_a_heartbeat_finds_wakes_the_task() {
    let world = World::new();
    let task = world.locking_in_line("heartbeat");
    let lease = super::super::store::LEASE;
    world.store.plan().renew.push_back(Ok(Renewal::Granted { token: crate::FencingToken::new(9), lease }));
    world.clock.advance(PLACE / 3);
    assert_eq!(task.ended().unwrap().token().get(), 9);
}

/// It overtakes the answer that says "in line".
#[test]
fn a_push_before_the_answer_to_the_first_attempt_wakes_the_task_with_that_answer() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    world.store.plan().acquire.push_back(Ok(Acquired::Queued {
        rank: 0,
        recheck_in: Duration::MAX,
        ticket: 1,
        latest: 1,
    }));
    let task = world.task(world.async_lock("early").lock());
    world.settle();
    world.push(&world.claim("early"), 9);
    assert_eq!(task.woken(), 0);
    world.clock.advance(S);
    assert_eq!(task.ended().unwrap().token().get(), 9);
}
