//! The end of a client that tasks use.

use std::sync::Arc;

use super::super::store::{Op, denied, down, granted, queued, was_granted};
use super::super::support::{OUTAGE, S, World, ms, polled_once};
use super::is_by_tasks;
use crate::backend::Released;
use crate::chores::Duty;
use crate::errands::Errand;
use crate::{Error, LostCause};

#[test]
fn a_shutdown_ends_waits_and_holds_of_tasks_and_leaves_nothing() {
    let world = World::new();
    let guard = world.locked("held");
    world.store.plan().acquire.push_back(queued(0));
    let (waits, lost) = (world.locking("waits"), world.task(guard.lost()));
    let untaken = world.locking("untaken");
    let lock = world.async_lock("later");
    world.finish(&world.ends()).0.unwrap();
    assert!(matches!(waits.ended(), Err(Error::Shutdown { .. })));
    assert_eq!(lost.ended().cause, LostCause::Shutdown);
    let mut later = [Box::pin(lock.lock())];
    let polled = polled_once(later[0].as_mut());
    assert!(matches!(polled, std::task::Poll::Ready(Err(Error::Shutdown { .. }))));
    drop((untaken, guard));
    assert_eq!(world.store.times(Op::Release).len(), 2);
    assert_eq!(world.store.times(Op::Withdraw).len(), 1);
    assert!(world.shared.timers.is_gone() && !world.shared.ledger.registry.has(|claim| claim.is_waiting()));
}

/// A task whose grant was not taken looks again after the shutdown.
#[test]
fn a_grant_that_a_shutdown_has_taken_back_is_no_guard() {
    let world = World::new();
    let mut untaken = world.locking("untaken");
    world.finish(&world.ends()).0.unwrap();
    let std::task::Poll::Ready(Err(Error::Shutdown { .. })) = untaken.poll() else { panic!("it is lost") };
}

#[test]
fn what_tasks_want_when_the_client_ends_is_settled() {
    let world = World::new();
    let guard = world.locked("held");
    let waits = world.locking_in_line("waits");
    world.store.delay_about("blocks", S);
    let blocks = world.task(world.async_lock("blocks").lock());
    world.settle();
    let unlock = world.task(guard.unlock());
    drop(waits);
    let unsent = world.task(world.async_lock("unsent").lock());
    let (ended, took) = world.finish(&world.ends());
    ended.unwrap();
    assert_eq!(took, S, "it waits for the call that is under way");
    unlock.ended().unwrap();
    for task in [blocks, unsent] {
        assert!(matches!(task.ended(), Err(Error::Shutdown { .. })));
    }
    let told = |lock, op| world.store.calls_about(lock, op);
    assert_eq!([told("held", Op::Release), told("waits", Op::Withdraw)], [1; 2]);
    assert!(told("blocks", Op::Withdraw) > 0, "it may have been granted");
    assert_eq!((told("unsent", Op::Acquire), world.shared.errands.take_client().is_some()), (0, false));
}

#[test]
fn an_unlock_that_a_shutdown_could_not_tell_the_server_says_so() {
    let world = World::new();
    let guard = world.locked("untold");
    world.store.take_down(Op::Release);
    let unlock = world.task(guard.unlock());
    world.settle();
    let (ended, _) = world.finish(&world.ends_within(S));
    assert!(matches!(ended, Err(Error::Unsettled { count: 1, .. })), "{ended:?}");
    assert!(matches!(unlock.ended(), Err(Error::Shutdown { .. })));
}

#[test]
fn an_unlock_whose_release_is_refused_at_the_end_says_so() {
    let world = World::new();
    let guard = world.locked("refused");
    world.store.delay_about("blocks", S);
    let _blocks = world.task(world.async_lock("blocks").lock());
    world.settle();
    world.store.plan().release.push_back(denied());
    let unlock = world.task(guard.unlock());
    assert!(world.finish(&world.ends()).0.is_err());
    assert!(matches!(unlock.ended(), Err(Error::Denied { .. })));
}

#[test]
fn a_release_that_is_given_up_says_why() {
    let world = World::new();
    let guard = world.locked("given up");
    world.store.plan().release.push_back(down());
    let unlock = world.task(guard.unlock());
    world.store.plan().release.push_back(denied());
    world.clock.advance(S);
    assert!(matches!(unlock.ended(), Err(Error::Denied { .. })));
}

/// The thread for tasks ends the client, and waits for the server.
#[test]
fn a_task_that_drops_the_last_handle_asks_no_server() {
    let world = World::new();
    let guard = world.locked("last");
    let waits = world.locking_in_line("waits");
    let (store, clock, gone) = world.without_handles();
    store.delay(Op::Release, S);
    drop(guard);
    drop(waits);
    clock.advance(2 * S);
    let asked = store.asked();
    assert!(asked.iter().all(is_by_tasks) && asked.len() == 4, "{asked:?}");
    assert!(gone.upgrade().is_none(), "nothing keeps the client");
}

/// An attempt without an answer may still arrive.
#[test]
fn a_task_that_drops_the_last_handle_leaves_the_last_attempts_to_a_thread() {
    let world = World::with_late_attempts(30 * S);
    let lock = world.async_lock("left");
    world.store.plan().acquire.extend([down(), granted(5000)]);
    drop(world.locked("left"));
    world.settle();
    let (store, clock, _) = world.without_handles();
    assert_eq!(store.ops(), [Op::Acquire, Op::Acquire, Op::Release]);
    drop(lock);
    clock.advance(ms(0));
    let asked = store.asked();
    let by = asked.iter().map(|asked| (asked.op, asked.by.as_deref())).collect::<Vec<_>>();
    assert_eq!(by, [(Op::Withdraw, Some("fairlock-end"))]);
}

#[test]
fn the_thread_for_tasks_ends_with_the_client() {
    let world = World::new();
    let guard = world.locked("ends");
    let (_, clock, gone) = world.without_handles();
    clock.advance(60 * S);
    guard.check().unwrap();
    drop(guard);
    clock.advance(OUTAGE);
    assert!(gone.upgrade().is_none());
}

#[test]
fn a_grant_that_a_shutdown_finds_for_a_task_is_released() {
    let world = World::new();
    let waits = world.locking_in_line("found");
    world.store.plan().withdraw.push_back(was_granted(77));
    world.store.plan().release.push_back(Ok(Released::Released));
    world.finish(&world.ends()).0.unwrap();
    assert_eq!(super::numbers(&world.store.asked(), Op::Release), [77]);
    assert!(matches!(waits.ended(), Err(Error::Shutdown { .. })));
}

/// A task gives its guard up while the client ends, and is too late to be settled.
#[test]
fn an_errand_after_the_end_does_not_keep_the_client() {
    let world = World::new();
    let guard = world.locked("late");
    let (claim, shared) = (world.claim("late"), Arc::clone(&world.shared));
    world.finish(&world.ends()).0.unwrap();
    world.shared.errands.add(&claim, Errand::Tell(Duty::Release), shared);
    world.shared.errands.added(&world.shared.timers, world.clock.now());
    assert!(world.shared.errands.take_client().is_none());
    drop(guard);
}
