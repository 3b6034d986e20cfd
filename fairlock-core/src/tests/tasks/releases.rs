//! How tasks give a hold up, and what they hear of that.

use super::super::store::{Op, denied, down, queued};
use super::super::support::{OUTAGE, S, World, ms, polled_once};
use super::{is_by_tasks, numbers};
use crate::backend::{Released, Wake};
use crate::{AsyncGuard, Error, LostCause, TryLock};

/// An operator takes the hold.
fn take(world: &World, guard: &AsyncGuard) {
    let (lock, owner, token) = (guard.name(), guard.owner().as_str(), guard.token());
    world.store.wake(Wake::Taken { lock, owner, token });
}

#[test]
fn a_guard_that_is_dropped_is_released_by_the_thread_for_tasks() {
    let world = World::new();
    let guard = world.locked("dropped");
    world.store.delay(Op::Release, S); // the drop does not wait for it
    drop(guard);
    assert!(world.client.held().is_empty());
    world.clock.advance(S);
    let asked = world.store.asked();
    assert!(asked.len() == 2 && asked.iter().all(is_by_tasks), "{asked:?}");
    assert_eq!((numbers(&asked, Op::Release), world.client.stats().holds.count), (vec![1001], 1));
}

#[test]
fn an_unlock_is_woken_once_by_the_servers_word() {
    let world = World::new();
    let guard = world.locked("unlock");
    world.store.delay(Op::Release, S);
    let (unlocked, took) = world.await_up_to(2 * S, guard.unlock());
    unlocked.unwrap();
    assert_eq!((took, world.store.ops()), (S, vec![Op::Acquire, Op::Release]));
}

#[test]
fn an_unlock_that_is_not_polled_releases_too() {
    let world = World::new();
    drop(world.locked("unpolled").unlock());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
}

#[test]
fn an_unlock_that_is_dropped_goes_on() {
    let world = World::new();
    world.store.plan().release.push_back(down());
    let guard = world.locked("goes on");
    drop(world.task(guard.unlock()));
    world.clock.advance(S);
    assert_eq!(numbers(&world.store.asked(), Op::Release), [1001, 1001]);
}

#[test]
fn an_unlock_says_that_the_hold_was_lost() {
    let world = World::new();
    world.store.plan().release.push_back(Ok(Released::NotHeld));
    let (unlocked, _) = world.await_up_to(S, world.locked("not held").unlock());
    assert!(matches!(unlocked, Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
    let guard = world.locked("taken");
    take(&world, &guard);
    let polled = polled_once(guard.unlock());
    let std::task::Poll::Ready(Err(Error::Lost(lost))) = polled else { panic!("it is known: {polled:?}") };
    assert_eq!((lost.cause, world.client.stats().lost), (LostCause::Taken, 2));
}

#[test]
fn an_unlock_after_the_end_of_the_lease_says_so_and_the_loss_is_reported_once() {
    let world = World::without_watchdog();
    let guard = world.locked("expired");
    world.clock.jump(31 * S);
    let polled = polled_once(guard.unlock());
    assert!(matches!(polled, std::task::Poll::Ready(Err(Error::Lost(_)))));
    world.settle();
    assert_eq!((world.client.stats().lost, world.client.stats().holds.count), (1, 1));
    assert_eq!(world.store.times(Op::Release).len(), 1, "for good measure");
}

/// The one without an answer may have released it, when it was valid.
#[test]
fn an_unlock_whose_repeat_finds_no_hold_was_released() {
    let world = World::new();
    world.store.plan().release.extend([down(), Ok(Released::NotHeld)]);
    world.await_up_to(S, world.locked("repeat").unlock()).0.unwrap();
    assert_eq!(world.client.stats().lost, 0);
}

/// The same where a panic has hidden the answer: others in the call may have been carried out.
#[test]
fn an_unlock_whose_repeat_after_a_panic_finds_no_hold_was_released() {
    let world = World::new();
    let guard = world.locked("repeat");
    world.store.panic_next(Op::Release, 1);
    world.store.plan().release.push_back(Ok(Released::NotHeld));
    world.await_up_to(3 * S, guard.unlock()).0.unwrap();
    assert_eq!(world.client.stats().lost, 0);
}

#[test]
fn an_unlock_that_is_refused_says_so_at_once() {
    let world = World::new();
    world.store.plan().release.push_back(denied());
    let (unlocked, took) = world.await_up_to(S, world.locked("denied").unlock());
    assert!(matches!(unlocked, Err(Error::Denied { .. })) && took == ms(0), "{took:?}");
}

#[test]
fn an_unlock_without_an_answer_says_so_after_the_outage_limit_and_the_release_goes_on() {
    let world = World::new();
    let guard = world.locked("silent");
    world.store.take_down(Op::Release);
    let (unlocked, took) = world.await_up_to(2 * OUTAGE, guard.unlock());
    let Err(Error::Unavailable { source, .. }) = unlocked else { panic!("{unlocked:?}") };
    assert_eq!((took, source.message()), (OUTAGE, "planned: down"));
    world.store.bring_up(Op::Release);
    world.clock.advance(2 * S);
    assert!(!world.shared.ledger.registry.has(|_| true), "it is released");
}

/// The thread for tasks stands still in a call: no attempt has failed, and none was made.
#[test]
fn an_unlock_whose_turn_does_not_come_says_so_after_the_outage_limit() {
    let world = World::with(2 * S, crate::watchdog::THREADS.dog);
    let guard = world.locked("behind");
    world.store.delay_about("stuck", 20 * S);
    let _stuck = world.task(world.async_lock("stuck").lock());
    world.clock.advance(3 * S); // the watchdog has nothing else to look for before the next renewal
    let (unlocked, took) = world.await_up_to(9 * S, guard.unlock());
    let Err(Error::Unavailable { source, .. }) = unlocked else { panic!("{unlocked:?}") };
    assert_eq!((took, source.message()), (2 * S, "no answer to the release"));
    world.clock.advance(20 * S);
    assert_eq!(world.store.calls_about("behind", Op::Release), 1);
}

#[test]
fn many_unlocks_and_waits_at_once_end_within_the_outage_limit_of_a_silent_server() {
    let world = World::new();
    let guards: Vec<_> = (0..150).map(|n| world.locked(&format!("held:{n}"))).collect();
    world.store.take_down(Op::Release);
    world.store.take_down(Op::Acquire);
    let unlocks: Vec<_> = guards.into_iter().map(|guard| world.task(guard.unlock())).collect();
    let waits: Vec<_> = (0..150).map(|_| world.task(world.async_lock("waits").lock())).collect();
    world.clock.advance(OUTAGE + ms(60));
    let is_unavailable = |ended| matches!(ended, Err(Error::Unavailable { .. }));
    assert!(unlocks.into_iter().all(|unlock| is_unavailable(unlock.ended())));
    assert!(waits.into_iter().all(|wait| is_unavailable(wait.ended().map(drop))));
    world.store.bring_up(Op::Release);
    world.clock.advance(2 * S);
    assert_eq!(world.shared.chores.len(), 0);
}

#[test]
fn what_a_task_gives_up_is_told_before_what_it_asks_for_then() {
    let world = World::new();
    let guard = world.locked("first");
    let waits = world.locking_in_line("second");
    world.store.asked();
    drop((guard, waits));
    let tries = world.task(world.async_lock("first").try_lock());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Release, Op::Withdraw, Op::Acquire]);
    assert!(matches!(tries.ended(), Ok(TryLock::Granted(_))));
}

/// More than go in one call, and wanted in another order.
#[test]
fn no_request_goes_before_the_last_of_many_releases() {
    let world = World::new();
    let guards: Vec<_> = (0..150).map(|n| world.locked(&format!("held:{n}"))).collect();
    world.store.asked();
    world.store.delay_about("blocks", S);
    let _blocks = world.task(world.async_lock("blocks").lock());
    world.settle();
    let waits = world.task(world.async_lock("waits").lock());
    drop(guards);
    world.clock.advance(S);
    let ops = world.store.ops();
    assert_eq!((ops.len(), ops.last(), ops[0]), (152, Some(&Op::Acquire), Op::Acquire));
    drop(waits.ended().unwrap());
}

/// A push has granted the lock while the watchdog asks. The server must not carry the ask out after the release.
#[test]
fn a_release_goes_after_an_ask_of_the_watchdog_that_is_under_way() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0)]);
    let task = world.locking("crossing");
    let claim = world.claim("crossing");
    world.store.delay(Op::Acquire, S);
    world.recheck(&claim);
    world.settle();
    world.push(&claim, 9);
    let guard = task.ended().unwrap();
    world.store.asked();
    drop(guard);
    world.settle();
    assert!(world.store.ops().is_empty());
    world.clock.advance(S);
    let asked = world.store.asked();
    assert!(asked.len() == 1 && asked[0].op == Op::Release && asked[0].at >= S, "{asked:?}");
}

/// The heartbeat may put the place back.
#[test]
fn a_withdrawal_goes_after_a_heartbeat_that_is_under_way() {
    let world = World::new();
    let task = world.locking_in_line("heartbeat");
    world.store.delay(Op::Renew, S);
    world.clock.advance(2 * S);
    assert!(world.claim("heartbeat").is_renewing());
    drop(task);
    world.settle();
    assert!(world.store.times(Op::Withdraw).is_empty());
    let began = world.store.times(Op::Renew)[0];
    world.clock.advance(S);
    assert_eq!(world.store.times(Op::Withdraw)[0], began + S);
}

/// Of one batch: a release panics, and a withdrawal and a request stand behind it.
#[test]
fn what_a_panic_leaves_undone_is_the_watchdogs() {
    let world = World::new();
    let guard = world.locked("held");
    let waits = world.locking_in_line("waits");
    world.store.delay_about("blocks", S);
    let blocks = world.task(world.async_lock("blocks").lock());
    world.settle();
    world.store.panic_next(Op::Release, 1);
    let unlock = world.task(guard.unlock());
    drop(waits);
    let asks = world.task(world.async_lock("asks").lock());
    world.clock.advance(3 * S);
    unlock.ended().unwrap();
    drop((blocks.ended().unwrap(), asks.ended().unwrap()));
    let told = |lock, op| world.store.calls_about(lock, op);
    assert_eq!(
        [told("held", Op::Release), told("waits", Op::Withdraw), told("asks", Op::Acquire)],
        [2, 1, 1]
    );
    drop(world.locked("after"));
    world.settle();
    let asked = world.store.asked();
    assert!(is_by_tasks(asked.last().unwrap()), "the thread goes on");
}

/// Each of the three would wait for a time-out.
#[test]
fn after_a_release_without_an_answer_the_rest_of_its_batch_is_the_watchdogs() {
    let world = World::new();
    let guard = world.locked("held");
    let waits = world.locking_in_line("waits");
    world.store.delay_about("blocks", S);
    let _blocks = world.task(world.async_lock("blocks").lock());
    world.settle();
    world.store.take_down(Op::Release);
    drop((guard, waits));
    let _asks = world.task(world.async_lock("asks").lock());
    world.store.asked();
    world.clock.advance(S);
    let asked = world.store.asked();
    let ops =
        |by_tasks| asked.iter().filter(move |asked| is_by_tasks(asked) == by_tasks).map(|asked| asked.op);
    assert_eq!(ops(true).collect::<Vec<_>>(), [Op::Release], "{asked:?}");
    assert!([Op::Withdraw, Op::Acquire].iter().all(|op| ops(false).any(|other| other == *op)), "{asked:?}");
}

#[test]
fn any_number_of_futures_hear_of_a_loss_and_none_of_a_release() {
    let world = World::new();
    let guard = world.locked("heard");
    let waits = [(); 3].map(|()| world.task(guard.lost()));
    drop(world.task(guard.lost()));
    take(&world, &guard);
    for wait in waits {
        let lost = wait.ended();
        assert_eq!((lost.token, lost.cause), (guard.token(), LostCause::Taken));
    }
    let polled = polled_once(guard.lost());
    assert!(polled.is_ready(), "it is lost already");
    assert!(guard.is_lost() && matches!(guard.check(), Err(Error::Lost(_))));

    let guard = world.locked("released");
    let mut waits = world.task(guard.lost());
    world.await_up_to(S, guard.unlock()).0.unwrap();
    assert!(waits.woken() == 0 && waits.poll().is_pending());
}

#[test]
fn a_hold_that_expires_is_told_to_its_task_in_time() {
    let world = World::new();
    let guard = world.locked("expires");
    world.store.take_down(Op::Renew);
    let waits = world.task(guard.lost());
    world.clock.advance(guard.valid_for());
    assert_eq!(waits.ended().cause, LostCause::NotRenewed);
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
