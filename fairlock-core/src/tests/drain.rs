//! An orderly end: no more grants, waits end, holders finish.

use std::task::Poll;
use std::time::Duration;

use crossbeam_channel::bounded;
use log::Level;

use super::logger::lines_about;
use super::store::{LEASE, Op, down, queued, was_granted};
use super::support::{OUTAGE, Running, S, World, ms, polled_once};
use crate::backend::Wake;
use crate::{AsyncGuard, AsyncLock, Error, HeldLock, Locking, LostCause, Result, TryLock};

type Drained = Result<Vec<HeldLock>>;

fn drain(world: &World, at_most: Duration) -> Running<Drained> {
    let client = world.client.clone();
    world.begin(move || client.drain(at_most))
}

/// The drain ends in order, after this time.
fn assert_in_order(world: &World, drains: &Running<Drained>, took: Duration) {
    let (drained, took_so_long) = world.finish(drains);
    assert_eq!((drained.unwrap(), took_so_long), (vec![], took));
    assert_eq!(world.client.stats().lost, 0);
    assert!(world.client.held().is_empty() && world.client.waiting().is_empty());
    assert!(world.shared.timers.is_gone() && world.shared.chores.len() == 0);
}

fn assert_shut_down<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Shutdown { lock: Some(_) })));
}

#[test]
fn a_holder_finishes_and_nothing_is_lost() {
    let world = World::new();
    world.client.on_lost(|lost| panic!("{lost}"));
    let guard = world.lock("drain:finishes").lock().unwrap();
    let drains = drain(&world, 20 * S);
    world.clock.advance(ms(300));
    guard.check().unwrap();
    assert_eq!(world.store.ops(), [Op::Acquire]);
    let unlocks = world.begin(move || guard.unlock());
    world.finish(&unlocks).0.unwrap();
    assert_in_order(&world, &drains, ms(300));
    assert_eq!(world.store.ops(), [Op::Release]);
    assert!(lines_about("drain:finishes").iter().all(|(level, _)| *level > Level::Warn));
    assert!(lines_about(world.label()).iter().all(|(level, _)| *level > Level::Warn));
}

#[test]
fn a_client_that_holds_nothing_is_drained_at_once() {
    let world = World::new();
    assert_in_order(&world, &drain(&world, Duration::MAX), ms(0));
    assert_eq!(world.store.ops(), []);
}

#[test]
fn a_hold_is_renewed_for_as_long_as_the_drain_lasts() {
    let world = World::new();
    let guard = world.lock("renewed").lock().unwrap();
    let drains = drain(&world, Duration::MAX);
    world.clock.advance(3 * LEASE);
    guard.check().unwrap();
    drop(guard);
    assert_in_order(&world, &drains, 3 * LEASE);
}

#[test]
fn a_hold_that_lasts_too_long_is_cut_off_and_named() {
    let world = World::new();
    let (long, short) = (world.lock("drain:long").lock().unwrap(), world.lock("drain:short").lock().unwrap());
    let drains = drain(&world, ms(400));
    world.clock.advance(ms(100));
    drop(short);
    let (drained, took) = world.finish(&drains);
    let cut_off = drained.unwrap();
    let [held] = &cut_off[..] else { panic!("{cut_off:?}") };
    assert_eq!((held.lock.as_str(), held.token, held.held_for), ("drain:long", long.token(), ms(400)));
    assert_eq!(took, ms(400));
    assert_eq!(long.lost().try_recv().unwrap().cause, LostCause::Shutdown);
    assert_eq!(world.client.stats().lost, 1);
    let warned = lines_about("lock `drain:long`");
    assert_eq!(warned.iter().filter(|(level, _)| *level == Level::Warn).count(), 1, "{warned:?}");
}

#[test]
fn waits_and_requests_end_at_once_and_leave_the_line() {
    let world = World::new();
    let guard = world.lock("held").lock().unwrap();
    world.store.plan().acquire.extend([queued(0), queued(1), queued(2)]);
    let [forever, timed] = [world.lock("held"), world.lock("held")];
    let waits = world.begin(move || forever.lock().map(|_| ()));
    let waits_for = world.begin(move || timed.try_lock_for(60 * S).map(|_| ()));
    let request = world.lock("held").request().unwrap();
    let drains = drain(&world, 20 * S);
    for ended in [world.finish(&waits), world.finish(&waits_for)] {
        assert_shut_down(ended.0);
    }
    assert!(request.decided().try_recv().is_ok());
    assert_shut_down(request.wait());
    assert_eq!(world.store.times(Op::Withdraw), [ms(0); 3]);
    assert!(world.client.waiting().is_empty());
    let at = world.clock.now() - world.start;
    drop(guard);
    assert_in_order(&world, &drains, at);
}

#[test]
fn nothing_new_begins_and_a_holder_may_enter_again_what_it_has() {
    let world = World::new();
    let (lock, owner) = (world.client.fair_lock("mine").unwrap(), world.client.new_owner());
    let mine = lock.owned_by(&owner).unwrap();
    let mut guard = mine.lock().unwrap();
    let drains = drain(&world, 20 * S);
    let again = mine.lock().unwrap();
    assert_eq!(again.token(), guard.token());
    drop(again);
    let TryLock::Granted(again) = mine.try_lock().unwrap() else { panic!("it is the holder's") };
    drop(again);
    drop(mine.request().unwrap());
    guard.bump().unwrap();
    assert!(!guard.is_lost());
    // Other locks of the holder, and other owners.
    let other = world.client.fair_lock("other").unwrap().owned_by(&owner).unwrap();
    assert_shut_down(other.lock());
    assert_shut_down(other.try_lock());
    assert_shut_down(other.request());
    assert_shut_down(lock.try_lock_for(S));
    assert_shut_down(world.client.lock_all(&["mine", "other"]));
    assert_eq!(world.store.calls_about("other", Op::Acquire), 0);
    assert_eq!(world.store.times(Op::Release), []);
    drop(guard);
    assert_shut_down(mine.lock());
    assert_in_order(&world, &drains, ms(0));
}

#[test]
fn a_caller_of_lock_all_that_waits_gives_back_what_it_has() {
    let world = World::new();
    world.store.delay_about("all:2", 2 * S);
    let client = world.client.clone();
    let takes = world.begin(move || client.lock_all(&["all:1", "all:2"]).map(|_| ()));
    assert_eq!(world.client.held().len(), 1);
    let drains = drain(&world, 20 * S);
    assert_in_order(&world, &drains, 2 * S);
    assert_shut_down(world.finish(&takes).0);
    assert_eq!(world.store.calls_about("all:1", Op::Release), 1);
    assert!(
        world.store.calls_about("all:2", Op::Withdraw) >= 1,
        "maybe once more, since the answer tells of a grant"
    );
}

#[test]
fn a_bump_that_waits_for_its_turn_ends_as_other_waits_do() {
    let world = World::new();
    let mut guard = world.lock("bump").lock().unwrap();
    world.store.plan().acquire.push_back(queued(0));
    let bumps = world.begin(move || guard.bump());
    assert_in_order(&world, &drain(&world, 20 * S), ms(0));
    assert_shut_down(world.finish(&bumps).0);
}

#[test]
fn a_request_that_was_granted_is_a_hold_until_its_guard_is_given_back() {
    let world = World::new();
    let (taken, dropped) = (world.lock("taken").request().unwrap(), world.lock("dropped").request().unwrap());
    let drains = drain(&world, 20 * S);
    world.clock.advance(S);
    drop(dropped);
    let guard = taken.wait().unwrap();
    world.clock.advance(S);
    drop(guard);
    assert_in_order(&world, &drains, 2 * S);
}

#[test]
fn a_leaked_hold_counts_until_it_is_unlocked() {
    let world = World::new();
    let lock = world.lock("leaked");
    lock.lock().unwrap().leak();
    let drains = drain(&world, 20 * S);
    world.clock.advance(S);
    lock.unlock().unwrap();
    assert_in_order(&world, &drains, S);
}

#[test]
fn a_hold_that_is_lost_meanwhile_is_not_waited_for() {
    let world = World::new();
    let guard = world.lock("taken").lock().unwrap();
    let drains = drain(&world, 20 * S);
    let (claim, token) = (world.claim("taken"), guard.token());
    world.store.wake(Wake::Taken { lock: "taken", owner: claim.owner.as_str(), token });
    assert_eq!(world.finish(&drains).0.unwrap(), vec![]);
    assert!(matches!(guard.unlock(), Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
}

/// The loss itself may end the drain, which then ends the callbacks.
#[test]
fn the_callbacks_hear_of_a_loss_that_ends_the_drain() {
    for round in 0..200 {
        let world = World::new();
        let (told, hears) = bounded(1);
        world.client.on_lost(move |lost| told.send(lost.cause).unwrap());
        let _guard = world.lock("told").lock().unwrap();
        let drains = drain(&world, 20 * S);
        world.shared.ledger.lose(&world.claim("told"), LostCause::Taken);
        world.finish(&drains).0.unwrap();
        assert_eq!(hears.try_recv(), Ok(LostCause::Taken), "round {round}");
    }
}

#[test]
fn a_second_drain_waits_as_well_and_returns_the_same() {
    let world = World::new();
    let _guard = world.lock("second").lock().unwrap();
    let (first, second) = (drain(&world, 20 * S), drain(&world, 2 * S));
    world.store.delay(Op::Release, S);
    let (ended, took) = world.finish(&second);
    assert_eq!((ended.unwrap().len(), took), (1, 3 * S));
    let (ended, took) = world.finish(&first);
    assert_eq!((ended.unwrap().len(), took), (1, 3 * S), "it returns when the client has ended");
    assert_eq!(world.client.drain(S).unwrap().len(), 1);
}

#[test]
fn a_shutdown_ends_the_wait() {
    let world = World::new();
    let guard = world.lock("ends").lock().unwrap();
    let drains = drain(&world, Duration::MAX);
    world.clock.advance(S);
    world.finish(&world.ends()).0.unwrap();
    let (ended, took) = world.finish(&drains);
    assert_eq!((ended.unwrap().len(), took), (1, S));
    assert!(guard.is_lost());
}

#[test]
fn a_drain_does_not_wait_longer_than_the_outage_limit_for_the_shutdown_of_another_thread() {
    let world = World::new();
    let _guard = world.lock("silent").lock().unwrap();
    world.store.take_down(Op::Release);
    let shuts_down = world.ends_within(60 * S);
    let (drained, took) = world.finish(&drain(&world, S));
    assert!(matches!(drained, Err(Error::Shutdown { lock: None })), "{drained:?}");
    assert_eq!(took, OUTAGE);
    assert!(world.finish(&shuts_down).0.is_err());
}

/// It could make the place anew after the withdrawal.
#[test]
fn a_request_is_withdrawn_after_the_ask_that_is_under_way() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    let waits = world.locks("asks");
    world.store.plan().withdraw.push_back(was_granted(77));
    assert_in_order(&world, &drain(&world, 20 * S), S);
    assert_shut_down(world.finish(&waits).0);
    let asked = world.store.asked();
    let ops: Vec<_> = asked.iter().map(|asked| (asked.op, asked.at)).take(3).collect();
    assert_eq!(ops, [(Op::Acquire, ms(0)), (Op::Withdraw, S), (Op::Release, S)]);
    assert_eq!(asked[2].number, 77, "the grant that came too late");
}

#[test]
fn a_request_does_not_wait_for_the_asks_of_others() {
    let world = World::new();
    let locks: Vec<_> = (0..10).map(|n| world.lock(&format!("quiet:{n}"))).collect();
    world.store.plan().acquire.extend((0..10).map(|_| queued(0)));
    let requests: Vec<_> = locks.iter().map(|lock| lock.request().unwrap()).collect();
    world.store.delay(Op::Acquire, S);
    let waits = world.locks("asks");
    assert_in_order(&world, &drain(&world, 20 * S), S);
    let at_once = world.store.times(Op::Withdraw).iter().filter(|at| **at == ms(0)).count();
    assert_eq!(at_once, requests.len());
    assert_shut_down(world.finish(&waits).0);
}

#[test]
fn an_ask_that_takes_longer_than_the_drain_is_left_to_the_shutdown() {
    let world = World::new();
    world.store.delay(Op::Acquire, 3 * S);
    let waits = world.locks("slow");
    assert_in_order(&world, &drain(&world, S), 3 * S);
    assert_eq!(world.store.times(Op::Withdraw), [3 * S]);
    assert_shut_down(world.finish(&waits).0);
}

#[test]
fn an_ask_under_way_and_a_shutdown_that_ends_the_drain_leave_nothing() {
    let world = World::new();
    world.store.delay(Op::Acquire, 3 * S);
    let waits = world.locks("slow");
    let drains = drain(&world, 20 * S);
    let (ended, took) = world.finish(&world.ends());
    ended.unwrap();
    assert_eq!((took, world.store.times(Op::Withdraw)), (3 * S, vec![3 * S]));
    assert_in_order(&world, &drains, 3 * S);
    assert_shut_down(world.finish(&waits).0);
}

#[test]
fn a_caller_that_waits_for_the_end_of_an_earlier_hold_learns_of_it_at_once() {
    let world = World::new();
    let lock = world.lock("earlier");
    let guard = lock.lock().unwrap();
    world.store.take_down(Op::Release);
    drop(guard);
    let waits = world.begin(move || lock.lock().map(|_| ()));
    let drains = drain(&world, 20 * S);
    let (ended, took) = world.finish(&waits);
    assert_shut_down(ended);
    assert_eq!(took, ms(0));
    world.clock.advance(S);
    world.store.bring_up(Op::Release);
    let (drained, took) = world.finish(&drains);
    assert!(drained.unwrap().is_empty() && took > S && took < 20 * S, "until the server knows: {took:?}");
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_as_long_as_for_holders_and_in_a_shutdown() {
    let world = World::new();
    let request = world.in_line("silent");
    world.store.take_down(Op::Withdraw);
    let (drained, took) = world.finish(&drain(&world, 5 * S));
    assert!(matches!(drained, Err(Error::Unsettled { count: 1, .. })), "{drained:?}");
    assert_eq!(took, 5 * S + (OUTAGE - S));
    assert!(matches!(world.client.drain(S), Err(Error::Unsettled { count: 1, .. })), "also later");
    assert_shut_down(request.wait());
}

/// The shutdown withdraws it at once.
#[test]
fn a_late_withdrawal_is_not_waited_for() {
    let world = World::with_late_attempts(6 * S);
    world.store.plan().keeps_place_by_owner = true;
    world.store.plan().acquire.extend([down(), queued(0)]);
    let request = world.lock("late").request().unwrap();
    world.clock.advance(S);
    drop(request);
    world.settle();
    let before = world.store.times(Op::Withdraw).len();
    assert_in_order(&world, &drain(&world, 20 * S), ms(0));
    assert_eq!(world.store.times(Op::Withdraw).len(), before + 1);
}

/// Its time is over, and the withdrawal finds the grant.
#[test]
fn a_timed_wait_that_is_granted_as_it_ends_takes_no_lock() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    world.store.delay(Op::Withdraw, ms(20));
    world.store.plan().withdraw.push_back(was_granted(77));
    let lock = world.lock("ends");
    let waits = world.begin(move || lock.try_lock_for(S).map(|tried| tried.guard().is_some()));
    world.clock.advance(S);
    assert_in_order(&world, &drain(&world, 20 * S), ms(20));
    assert!(!world.finish(&waits).0.unwrap());
    assert_eq!(world.store.times(Op::Release), [S + ms(20)]);
}

fn task_lock(world: &World, name: &str) -> AsyncLock {
    world.client.fair_lock(name).unwrap().to_async()
}

/// A task that was polled once, and whose first attempt was answered.
fn locking(world: &World, name: &str) -> Locking {
    let mut locking = task_lock(world, name).lock();
    world.store.delay_about(name, ms(1));
    assert!(polled_once(&mut locking).is_pending());
    world.clock.advance(ms(1));
    locking
}

fn taken(mut locking: Locking) -> AsyncGuard {
    match polled_once(&mut locking) {
        Poll::Ready(guard) => guard.unwrap(),
        Poll::Pending => panic!("it was granted"),
    }
}

#[test]
fn tasks_that_wait_fail_and_tasks_that_hold_finish() {
    let world = World::new();
    let guard = taken(locking(&world, "task"));
    world.store.plan().acquire.push_back(queued(0));
    let (mut waits, mut is_new) = (locking(&world, "task"), task_lock(&world, "other").try_lock());
    let drains = drain(&world, Duration::MAX);
    assert!(matches!(polled_once(&mut waits), Poll::Ready(Err(Error::Shutdown { .. }))));
    assert!(matches!(polled_once(&mut is_new), Poll::Ready(Err(Error::Shutdown { .. }))));
    assert_eq!(world.store.calls_about("other", Op::Acquire), 0);
    world.clock.advance(2 * LEASE);
    guard.check().unwrap();
    let mut unlock = Box::pin(guard.unlock());
    let no_answer = world.store.plan();
    assert!(polled_once(&mut unlock).is_pending());
    drop(no_answer);
    assert_in_order(&world, &drains, 2 * LEASE);
    assert!(matches!(polled_once(&mut unlock), Poll::Ready(Ok(()))));
    assert_eq!(world.store.calls_about("task", Op::Withdraw), 1);
}

#[test]
fn a_grant_that_no_poll_has_taken_is_a_hold_until_its_future_is_dropped() {
    let world = World::new();
    let (dropped, kept) = (locking(&world, "dropped"), locking(&world, "kept"));
    let drains = drain(&world, 20 * S);
    world.clock.advance(S);
    drop(dropped);
    let guard = taken(kept);
    world.clock.advance(S);
    drop(guard);
    assert_in_order(&world, &drains, 2 * S);
}

/// Its errand is in the queue, or its attempt under way.
#[test]
fn a_task_that_has_not_been_asked_for_is_never_asked_for() {
    let world = World::new();
    world.store.delay_about("slow", S);
    let [mut slow, mut behind] = ["slow", "behind"].map(|name| task_lock(&world, name).lock());
    for waits in [&mut slow, &mut behind] {
        assert!(polled_once(waits).is_pending());
        world.settle();
    }
    assert_in_order(&world, &drain(&world, 20 * S), S);
    for waits in [&mut slow, &mut behind] {
        assert!(matches!(polled_once(waits), Poll::Ready(Err(Error::Shutdown { .. }))));
    }
    assert_eq!(
        [world.store.calls_about("slow", Op::Acquire), world.store.calls_about("behind", Op::Acquire)],
        [1, 0]
    );
    assert!(world.store.calls_about("slow", Op::Withdraw) >= 1);
}
