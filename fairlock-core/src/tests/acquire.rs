//! How a lock is acquired: what is asked, by which thread, and when again.

use super::store::{Op, busy, denied, down, granted, queued};
use super::support::{OUTAGE, PLACE, S, World, ms};
use crate::backend::{Acquired, HoldCountSet};
use crate::{Cancel, Error, FencingToken, LostCause, OwnedLock, TryLock};

#[test]
fn an_uncontended_lock_is_two_calls() {
    let world = World::new();
    world.lock("two calls").lock().unwrap().unlock().unwrap();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
}

#[test]
fn each_re_entry_and_each_inner_unlock_tells_the_count() {
    let world = World::new();
    let lock = world.lock("re-entry");
    let first = lock.lock().unwrap();
    let second = lock.lock().unwrap();
    assert_eq!((first.token(), lock.hold_count()), (second.token(), 2));
    second.unlock().unwrap();
    first.unlock().unwrap();
    let asked: Vec<_> = world.store.asked().iter().map(|asked| (asked.op, asked.number)).collect();
    assert_eq!(asked[..3], [(Op::Acquire, 0), (Op::Count, 2), (Op::Count, 1)]);
    assert_eq!(asked[3].0, Op::Release);
}

#[test]
fn callers_of_one_owner_that_wait_together_tell_the_count_when_they_are_granted() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    let lock = world.lock("together");
    let calls = [(); 2].map(|()| {
        let lock = lock.clone();
        world.begin(move || lock.lock())
    });
    world.push(&world.claim("together"), 9);
    let guards = calls.map(|call| world.finish(&call).0.unwrap());
    assert!(guards.iter().all(|guard| guard.token().get() == 9));
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Count, Op::Count]);
    assert_eq!(lock.hold_count(), 2);
}

#[test]
fn a_re_entry_that_finds_the_hold_lost_reports_that_and_asks_anew() {
    let world = World::new();
    let lock = world.lock("lost");
    let old = lock.lock().unwrap();
    world.store.plan().count.push_back(Ok(HoldCountSet::Lost));
    let new = lock.lock().unwrap();
    assert!(new.token() > old.token());
    assert_eq!(old.lost().try_recv().unwrap().cause, LostCause::Taken);
    assert_eq!(world.client.stats().lost, 1);
    assert!(matches!(old.unlock(), Err(Error::Lost(_))));
    new.unlock().unwrap();
}

#[test]
fn a_count_that_is_not_answered_counts_as_told() {
    let world = World::new();
    let lock = world.lock("count");
    let first = lock.lock().unwrap();
    world.store.plan().count.push_back(down());
    assert_eq!(lock.lock().unwrap().token(), first.token());
}

/// Its ask is under way when a caller that waits longer joins it, and does not get the lock.
#[test]
fn a_caller_that_has_joined_one_attempt_goes_on_by_itself_when_that_fails() {
    let world = World::new();
    let lock = world.lock("joins");
    world.store.plan().acquire.extend([busy(), queued(0)]);
    world.store.delay(Op::Acquire, S);
    let attempt = world.begin({
        let lock = lock.clone();
        move || lock.try_lock()
    });
    let waits = world.begin(move || lock.try_lock_for(5 * S));
    let (tried, took) = world.finish(&attempt);
    assert!(matches!(tried, Ok(TryLock::Busy)) && took == S);
    let (waited, took) = world.finish(&waits);
    assert!(matches!(waited, Ok(TryLock::Busy)) && took == 5 * S, "{took:?}");
    assert_eq!(world.store.times(Op::Acquire), [ms(0), S]);
}

#[test]
fn one_attempt_on_a_busy_lock_asks_once_and_leaves_nothing() {
    let world = World::new();
    world.store.plan().acquire.push_back(busy());
    let lock = world.lock("busy");
    let (tried, took) = world.run(move || lock.try_lock());
    assert!(matches!(tried, Ok(TryLock::Busy)) && took == ms(0));
    assert_eq!(world.store.ops(), [Op::Acquire]);
    assert!(world.client.waiting().is_empty());
}

#[test]
fn a_caller_gives_up_when_the_server_was_silent_for_the_outage_limit() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let (result, took) = world.finish(&world.locks("silent"));
    assert!(matches!(result, Err(Error::Unavailable { .. })));
    assert!(took >= OUTAGE && took < OUTAGE + S, "{took:?}");
    let asks = world.store.times(Op::Acquire);
    assert!((10..40).contains(&asks.len()), "{asks:?}");
    assert_eq!(asks[..2], [ms(0), ms(0)], "the first retry is at once");
    world.settle();
    assert_eq!(world.store.times(Op::Withdraw).len(), 1);
    assert!(world.client.waiting().is_empty());
}

#[test]
fn a_refusal_is_an_error_at_once() {
    let world = World::new();
    world.store.plan().acquire.push_back(denied());
    let (result, took) = world.finish(&world.locks("denied"));
    assert!(matches!(result, Err(Error::Denied { .. })) && took == ms(0));
}

#[test]
fn a_cancelled_caller_gets_no_request() {
    let world = World::new();
    let cancel = Cancel::new();
    let lock = world.lock("cancelled").cancelled_by(&cancel);
    cancel.cancel();
    assert!(matches!(lock.request(), Err(Error::Cancelled { .. })));
    assert!(matches!(lock.lock(), Err(Error::Cancelled { .. })));
    assert!(world.store.ops().is_empty() && world.client.waiting().is_empty());
}

#[test]
fn a_cancel_ends_a_wait_at_once_and_its_request_is_withdrawn() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(3));
    let cancel = Cancel::new();
    let lock = world.lock("cancel").cancelled_by(&cancel);
    let waits = world.begin(move || lock.lock());
    cancel.cancel();
    let (result, took) = world.finish(&waits);
    assert!(matches!(result, Err(Error::Cancelled { .. })) && took == ms(0));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
}

/// The process stood still until the grant was over.
#[test]
fn a_grant_that_ended_before_its_caller_took_it_is_given_back_and_asked_for_anew() {
    let world = World::without_watchdog();
    world.store.plan().acquire.extend([queued(0), granted(7)]);
    let request = world.lock("late").request().unwrap();
    let claim = world.claim("late");
    world.push(&claim, 5);
    world.clock.jump(PLACE);
    let guard = request.wait().unwrap();
    assert_eq!(guard.token().get(), 7);
    assert_eq!(world.client.stats().lost, 1);
    assert_eq!(world.shared.chores.len(), 1, "the first hold is to be released");
}

/// Its message was lost, or comes later than the answer: then it is no stray grant.
#[test]
fn a_message_that_comes_after_the_hold_is_over_is_known_if_an_answer_told_of_the_grant() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), granted(5)]);
    let waits = world.locks("late message");
    let claim = world.claim("late message");
    world.recheck(&claim);
    world.finish(&waits).0.unwrap().unlock().unwrap();
    world.push(&claim, 5);
    world.settle();
    assert_eq!(world.store.times(Op::Release).len(), 1, "no release of a stray grant");
    assert_eq!(world.client.stats().wake_ups_ignored, 0);
}

#[test]
fn a_message_about_a_hold_that_was_granted_at_the_first_ask_is_a_stray() {
    let world = World::new();
    let guard = world.lock("stray").lock().unwrap();
    let claim = world.claim("stray");
    guard.unlock().unwrap();
    world.push(&claim, 5);
    world.settle();
    assert_eq!((world.store.times(Op::Release).len(), world.client.stats().wake_ups_ignored), (2, 1));
}

#[test]
fn a_place_that_was_lost_is_counted_when_the_request_stands_at_the_tail() {
    let world = World::new();
    world
        .store
        .plan()
        .acquire
        .extend([queued(0), Ok(Acquired::Queued { rank: 4, recheck_in: 60 * S, ticket: 8, latest: 8 })]);
    let request = world.lock("tail").request().unwrap();
    assert_eq!(request.rank(), Some(0));
    world.recheck(&world.claim("tail"));
    world.settle();
    assert_eq!((request.rank(), world.client.stats().places_lost), (Some(4), 1));
}

/// A request that a caller can't take is not waited for a second time.
#[test]
fn a_wait_for_a_request_that_was_refused_tells_the_refusal_once() {
    let world = World::new();
    world.store.plan().acquire.push_back(denied());
    let mut request = world.lock("refused").request().unwrap();
    assert!(request.decided().try_recv().is_ok());
    assert!(matches!(request.wait_for(S), Err(Error::Denied { .. })));
    assert!(matches!(request.wait_for(S), Err(Error::Misuse { .. })));
}

#[test]
fn a_look_without_a_wait_at_a_request_keeps_its_place() {
    let world = World::new();
    let mut request = world.in_line("looks");
    assert!(matches!(request.wait_for(ms(0)), Ok(TryLock::Busy)));
    assert_eq!(world.store.ops(), [Op::Acquire]);
    world.push(&world.claim("looks"), 5);
    assert!(matches!(request.wait_for(ms(0)), Ok(TryLock::Granted(_))));
}

#[test]
fn a_caller_that_begins_to_wait_for_a_request_asks_for_it_itself() {
    let world = World::without_watchdog();
    world.store.plan().acquire.extend([queued(0), granted(5)]);
    let request = world.lock("attends").request().unwrap();
    assert!(world.claim("attends").wake(), "no caller waits");
    assert_eq!(world.run(move || request.wait().unwrap().token().get()), (5, ms(0)));
}

/// Each grant of this lock is over when its answer comes.
fn too_late(world: &World, name: &str) -> OwnedLock {
    for _ in 0..100 {
        let token = FencingToken::new(5000);
        world.store.plan().acquire.push_back(Ok(Acquired::Granted { token, lease: S }));
        world.store.delay(Op::Acquire, 2 * S);
    }
    world.lock(name).fixed_lease(S)
}

#[test]
fn a_lease_that_is_shorter_than_a_trip_is_not_asked_for_without_end() {
    for (name, wait, asks) in
        [("short:no", Some(ms(0)), 2), ("short:timed", Some(5 * S), 3), ("short:forever", None, 6)]
    {
        let world = World::new();
        let lock = too_late(&world, name);
        let (got, took) = world.run(move || match wait {
            Some(wait) => lock.try_lock_for(wait).map(|tried| tried.guard().is_some()),
            None => lock.lock().map(|_| true),
        });
        assert!(matches!(&got, Err(Error::Unavailable { .. })), "{name}: {got:?}");
        let limit = wait.unwrap_or(OUTAGE) + 4 * S;
        assert!(took <= limit, "{name}: {took:?}");
        assert_eq!(world.store.times(Op::Acquire).len(), asks, "{name}");
        world.settle();
        assert_eq!((world.store.times(Op::Withdraw).len(), world.client.waiting().len()), (1, 0), "{name}");
    }
}
