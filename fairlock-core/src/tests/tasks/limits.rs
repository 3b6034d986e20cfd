//! How a wait of a task ends without the lock.

use std::task::Poll;

use super::super::store::{Op, busy, denied, down, granted, queued, was_granted};
use super::super::support::{OUTAGE, S, World, ms, polled_once};
use super::{is_by_tasks, numbers};
use crate::{Cancel, Error, TryLock};

#[test]
fn an_attempt_of_a_task_without_an_answer_is_an_error_after_a_repeat() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let (tried, took) = world.await_up_to(S, world.async_lock("down").try_lock());
    assert!(matches!(tried, Err(Error::Unavailable { .. })) && took < ms(60), "{took:?}");
    let asked = world.store.asked();
    let asks: Vec<_> = asked.iter().filter(|asked| asked.op == Op::Acquire).map(is_by_tasks).collect();
    assert_eq!(asks, [true, false], "the watchdog repeats it");
}

#[test]
fn a_refusal_ends_the_wait_of_a_task_at_once() {
    let world = World::new();
    world.store.plan().acquire.push_back(denied());
    let (locked, took) = world.await_up_to(S, world.async_lock("denied").lock());
    assert!(matches!(locked, Err(Error::Denied { .. })) && took == ms(0), "{took:?}");
}

#[test]
fn a_timed_wait_of_a_task_ends_by_the_clients_clock() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    let (tried, took) = world.await_up_to(S, world.async_lock("timed").try_lock_for(ms(80)));
    assert!(matches!(tried, Ok(TryLock::Busy)) && took == ms(80), "{took:?}");
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
    assert!(world.client.waiting().is_empty());
}

#[test]
fn a_grant_that_crosses_the_end_of_a_timed_wait_is_passed_on() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    world.store.plan().withdraw.push_back(was_granted(9));
    let (tried, _) = world.await_up_to(S, world.async_lock("crossing").try_lock_for(ms(80)));
    assert!(matches!(tried, Ok(TryLock::Busy)));
    world.settle();
    assert_eq!(numbers(&world.store.asked(), Op::Release), [9]);
    assert!(world.client.held().is_empty());
}

#[test]
fn a_timed_wait_whose_last_ask_had_no_answer_is_an_error() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let (tried, took) = world.await_up_to(2 * S, world.async_lock("down").try_lock_for(S));
    assert!(matches!(tried, Err(Error::Unavailable { .. })) && took == S, "{took:?}");
}

#[test]
fn a_timed_wait_asks_at_least_once_also_if_that_takes_longer() {
    let world = World::new();
    world.store.delay(Op::Acquire, 2 * S);
    let first = world.task(world.async_lock("slow").lock());
    world.settle();
    let (tried, took) = world.await_up_to(9 * S, world.async_lock("quick").try_lock_for(ms(80)));
    assert!(matches!(tried, Ok(TryLock::Granted(_))) && took == 2 * S, "{took:?}");
    drop(first.ended().unwrap());
}

#[test]
fn a_timed_wait_that_asks_anew_keeps_its_time() {
    let world = World::new();
    let mut task = world.task(world.async_lock("again").try_lock_for(40 * S));
    world.clock.advance(60 * S);
    world.store.plan().acquire.push_back(queued(0));
    assert!(world.before_the_answer(|| task.poll()).is_pending());
    world.settle();
    assert!(matches!(task.poll(), std::task::Poll::Ready(Ok(TryLock::Busy))));
}

#[test]
fn a_silent_server_ends_all_waits_of_tasks_within_the_outage_limit() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let tasks: Vec<_> = (0..200).map(|n| world.task(world.async_lock(&format!("{n}")).lock())).collect();
    world.settle();
    world.clock.advance(OUTAGE - ms(1));
    assert!(tasks.iter().all(|task| task.woken() == 0));
    world.clock.advance(ms(1));
    for task in tasks {
        assert!(matches!(task.ended(), Err(Error::Unavailable { .. })));
    }
}

#[test]
fn a_request_whose_turn_does_not_come_fails_after_the_outage_limit() {
    let world = World::new();
    world.store.delay(Op::Acquire, 30 * S);
    let _first = world.task(world.async_lock("stuck").lock());
    world.settle();
    let (locked, took) = world.await_up_to(20 * S, world.async_lock("behind").lock());
    let Err(Error::Unavailable { source, .. }) = locked else { panic!("{locked:?}") };
    assert_eq!((took, source.message()), (OUTAGE, "the request had to wait too long to be sent"));
    world.clock.advance(60 * S);
    assert_eq!(world.store.calls_about("behind", Op::Acquire), 0);
    assert_eq!(world.store.calls_about("behind", Op::Withdraw), 0, "the server knows nothing of it");
}

#[test]
fn after_a_call_without_an_answer_the_watchdog_asks_for_what_waits_behind_it() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    world.store.plan().acquire.push_back(down());
    let first = world.task(world.async_lock("first").lock());
    world.settle();
    let behind = [(); 3].map(|()| world.task(world.async_lock("behind").lock()));
    world.clock.advance(2 * S);
    for task in behind {
        drop(task.ended().unwrap());
    }
    drop(first.ended().unwrap());
    let mut asked = world.store.asked();
    asked.retain(|asked| asked.op == Op::Acquire);
    assert_eq!(asked.iter().filter(|asked| is_by_tasks(asked)).count(), 1, "{asked:?}");
}

#[test]
fn tasks_are_granted_a_lock_once_the_server_is_back() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let tasks = [(); 100].map(|()| world.task(world.async_lock("back").lock()));
    world.clock.advance(5 * S);
    world.store.bring_up(Op::Acquire);
    world.clock.advance(S);
    for task in tasks {
        drop(task.ended().unwrap());
    }
}

#[test]
fn a_cancel_ends_the_wait_of_a_task_and_later_ones_do_not_begin() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    let cancel = Cancel::new();
    let lock = world.client.fair_lock("cancelled").unwrap().cancelled_by(&cancel).to_async();
    let task = world.task(lock.lock());
    world.settle();
    cancel.cancel();
    assert!(matches!(task.ended(), Err(Error::Cancelled { .. })));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
    let polled = polled_once(lock.lock());
    assert!(matches!(polled, std::task::Poll::Ready(Err(Error::Cancelled { .. }))));
    assert!(world.store.ops().is_empty());
}

#[test]
fn an_ask_that_panics_on_the_thread_for_tasks_is_repeated_by_the_watchdog() {
    let world = World::new();
    world.store.panic_next(Op::Acquire, 1);
    let tasks = [(); 3].map(|()| world.task(world.async_lock("panics").lock()));
    world.clock.advance(S);
    for task in tasks {
        drop(task.ended().unwrap());
    }
    world.store.plan().acquire.push_back(granted(7));
    assert_eq!(world.locked("after").token().get(), 7, "the thread goes on");
}

#[test]
fn waits_of_tasks_that_end_without_the_lock_are_counted_and_dropped_ones_are_not() {
    let world = World::new();
    let cancel = Cancel::new();
    world.store.plan().acquire.extend([busy(), queued(0), denied(), queued(0)]);
    let lock = world.async_lock("counted");
    assert!(matches!(world.await_up_to(S, lock.try_lock()).0, Ok(TryLock::Busy)));
    assert!(matches!(world.await_up_to(S, lock.try_lock_for(ms(80))).0, Ok(TryLock::Busy)));
    assert!(world.await_up_to(S, lock.lock()).0.is_err());
    drop(world.locking("counted"));
    world.settle();
    cancel.cancel();
    let mut cancelled = world.client.fair_lock("counted").unwrap().cancelled_by(&cancel).to_async().lock();
    let at_once = polled_once(&mut cancelled);
    assert!(matches!(at_once, Poll::Ready(Err(Error::Cancelled { .. }))));
    world.store.take_down(Op::Acquire);
    assert!(world.await_up_to(S, lock.try_lock()).0.is_err());
    let stats = world.client.stats();
    let counted = stats.not_granted.fair;
    assert_eq!((counted.busy, counted.timed_out, counted.refused), (1, 1, 1));
    assert_eq!((counted.cancelled, counted.unavailable, stats.not_granted.total().total()), (1, 1, 5));
    assert!(stats.failed_waits.longest >= ms(80), "{:?}", stats.failed_waits);
}
