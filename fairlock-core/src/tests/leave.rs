//! How a caller stops waiting, and what it is told then.

use std::sync::Arc;

use super::store::{Op, busy, down, queued, was_granted};
use super::support::{S, World, ms};
use crate::backend::{Acquired, Wait};
use crate::claim::{CallerStep, Patience};
use crate::flow::{Waited, give_up};
use crate::{Cancel, Error, TryLock};

type Tried = crate::Result<TryLock<crate::OwnedGuard>>;

fn is_busy(tried: &Tried) -> bool {
    matches!(tried, Ok(TryLock::Busy))
}

/// The result of a wait of one second in line, and how long it took.
fn waited(world: &World, name: &str) -> (Tried, std::time::Duration) {
    world.store.plan().acquire.push_back(queued(0));
    let lock = world.lock(name);
    world.run(move || lock.try_lock_for(S))
}

#[test]
fn a_wait_that_is_over_leaves_the_line_and_is_not_granted() {
    let world = World::new();
    let (tried, took) = waited(&world, "over");
    assert!(is_busy(&tried) && took == S, "{took:?}");
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
    assert!(world.client.waiting().is_empty());
}

#[test]
fn a_wait_whose_asks_were_never_answered_is_an_error() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let (tried, took) = waited(&world, "never answered");
    assert!(matches!(tried, Err(Error::Unavailable { .. })) && took == S, "{took:?}");
}

#[test]
fn a_wait_whose_last_ask_failed_is_an_error_although_its_withdrawal_is_answered() {
    let world = World::new();
    world.store.plan().acquire.push_back(Ok(Acquired::Queued {
        rank: 2,
        recheck_in: S / 2,
        ticket: 1,
        latest: 1,
    }));
    let lock = world.lock("heard once");
    let waits = world.begin(move || lock.try_lock_for(S));
    world.store.take_down(Op::Acquire);
    let (tried, took) = world.finish(&waits);
    let Err(Error::Unavailable { source, .. }) = tried else { panic!("{tried:?}") };
    assert_eq!((took, source.message()), (S, "planned: down"));
    assert!(world.store.times(Op::Acquire).len() > 2 && world.store.times(Op::Withdraw).len() == 1);
}

#[test]
fn a_request_that_leaves_is_busy_if_others_have_the_lock() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(2));
    let request = world.lock("left").request().unwrap();
    let (left, took) = world.run(move || request.leave());
    assert!(is_busy(&left) && took == ms(0), "{took:?}");
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
    assert!(world.client.waiting().is_empty());
}

#[test]
fn a_request_that_leaves_takes_the_lock_that_it_was_granted() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    world.store.plan().withdraw.push_back(was_granted(9));
    let request = world.lock("in time").request().unwrap();
    let Ok(TryLock::Granted(guard)) = world.run(move || request.leave()).0 else { panic!("it is granted") };
    assert_eq!(guard.token().get(), 9);
    guard.unlock().unwrap();
    let request = world.lock("before").request().unwrap();
    assert!(matches!(world.run(move || request.leave()).0, Ok(TryLock::Granted(_))));
}

/// A wait that keeps the place goes on meanwhile, and is only not granted yet.
#[test]
fn a_request_that_leaves_is_an_error_if_its_last_ask_failed() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let mut request = world.lock("refused").request().unwrap();
    world.clock.advance(S);
    assert!(is_busy(&request.wait_for(std::time::Duration::ZERO)));
    let Err(Error::Unavailable { source, .. }) = world.run(move || request.leave()).0 else {
        panic!("it was refused")
    };
    assert_eq!(source.message(), "planned: down");
    assert_eq!(world.store.times(Op::Withdraw).len(), 1);
}

#[test]
fn a_lock_that_was_granted_in_the_very_moment_goes_to_the_caller() {
    let world = World::new();
    world.store.plan().withdraw.push_back(was_granted(9));
    let (tried, took) = waited(&world, "in time");
    let Ok(TryLock::Granted(guard)) = tried else { panic!("{tried:?}") };
    assert_eq!((guard.token().get(), took), (9, S));
    assert!(world.store.times(Op::Release).is_empty());
    guard.unlock().unwrap();
}

#[test]
fn an_answer_that_is_late_is_not_waited_for_and_its_grant_is_released() {
    let world = World::new();
    world.store.plan().withdraw.push_back(was_granted(9));
    world.store.delay(Op::Withdraw, 2 * S);
    let (tried, took) = waited(&world, "late");
    assert!(is_busy(&tried) && took == S + ms(50), "{took:?}");
    world.clock.advance(2 * S);
    let asked = world.store.asked();
    assert!(asked.iter().any(|asked| asked.op == Op::Release && asked.number == 9), "{asked:?}");
}

#[test]
fn one_withdrawal_that_fails_is_repeated_while_the_caller_waits() {
    let world = World::new();
    world.store.plan().withdraw.extend([down(), was_granted(9)]);
    let (tried, took) = waited(&world, "repeated");
    assert!(matches!(tried, Ok(TryLock::Granted(_))) && took == S, "{took:?}");
}

#[test]
fn a_caller_waits_for_no_withdrawal_that_is_repeated_after_a_pause() {
    let world = World::new();
    world.store.take_down(Op::Withdraw);
    let (tried, took) = waited(&world, "pause");
    let Err(Error::Unavailable { source, .. }) = tried else { panic!("{tried:?}") };
    assert_eq!((took, source.message()), (S, "planned: down"));
}

/// The first failure leads to no pause, so the first caller goes on waiting; the second one is another caller's.
#[test]
fn a_caller_whose_withdrawal_has_failed_is_told_when_the_pauses_begin() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0)]);
    let (first, second) = (world.lock("told:first"), world.lock("told:second"));
    let waits =
        [world.begin(move || first.try_lock_for(S)), world.begin(move || second.try_lock_for(S + ms(5)))];
    world.store.take_down(Op::Withdraw);
    (0..2).for_each(|_| world.store.delay(Op::Withdraw, ms(10)));
    for (tried, took) in waits.map(|waits| world.finish(&waits)) {
        assert!(matches!(tried, Err(Error::Unavailable { .. })) && took == S + ms(20), "{took:?}");
    }
}

/// Those of other locks fail, and are repeated after pauses. That says nothing about this one.
#[test]
fn a_caller_waits_for_its_own_withdrawal_while_others_pause() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0)]);
    let other = world.lock("other server").request().unwrap();
    world.store.cut("other server");
    drop(other);
    world.clock.advance(2 * S);
    world.store.plan().withdraw.push_back(was_granted(9));
    let lock = world.lock("this server");
    let waits = world.begin(move || lock.try_lock_for(S));
    world.store.delay_about("this server", ms(10)); // the caller looks before it is answered
    let (tried, took) = world.finish(&waits);
    assert!(matches!(tried, Ok(TryLock::Granted(_))) && took == S + ms(10), "{took:?}");
}

/// Without a watchdog no withdrawal is sent, and no heartbeat either.
fn silent_for(time: std::time::Duration) -> Tried {
    let world = World::without_watchdog();
    world.store.plan().acquire.push_back(queued(0));
    let lock = world.lock("silence");
    let (tried, took) = world.run(move || lock.try_lock_for(time));
    assert_eq!(took, time + ms(50));
    tried
}

#[test]
fn a_server_that_was_silent_for_two_heartbeats_is_an_error_and_a_shorter_silence_is_none() {
    assert!(is_busy(&silent_for(ms(3200))));
    let Err(Error::Unavailable { source, .. }) = silent_for(ms(3300)) else { panic!("it was silent") };
    assert_eq!(source.message(), "no word of this request for 3350 ms");
}

#[test]
fn a_caller_that_only_looked_does_not_wait_for_the_answer_to_its_withdrawal() {
    let world = World::without_watchdog();
    let request = world.in_line("looked");
    let claim = world.claim("looked");
    let patience = Patience { wait: Wait::No, deadline: None, cancel: None, keeps_place: false };
    let CallerStep::GiveUp(step) = claim.caller_step(&patience, world.clock.now()) else {
        panic!("it only looks")
    };
    let shared = Arc::clone(&world.shared);
    let (waited, took) = world.run(move || give_up(&shared.ledger, &shared.chores, &claim, &patience, step));
    assert!(matches!(waited, Ok(Waited::NotGranted)) && took == ms(0), "{took:?}");
    drop(request);
}

#[test]
fn a_caller_that_leaves_others_of_its_owner_behind_withdraws_nothing() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    let lock = world.lock("others");
    let waits = world.begin({
        let lock = lock.clone();
        move || lock.lock()
    });
    let (tried, took) = world.run(move || lock.try_lock_for(S));
    assert!(is_busy(&tried) && took == S, "{took:?}");
    assert_eq!(world.store.ops(), [Op::Acquire]);
    world.push(&world.claim("others"), 9);
    world.finish(&waits).0.unwrap().unlock().unwrap();
}

#[test]
fn a_lock_that_was_granted_to_a_cancelled_caller_is_released() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    world.store.plan().withdraw.push_back(was_granted(9));
    let cancel = Cancel::new();
    let lock = world.lock("cancelled").cancelled_by(&cancel);
    let waits = world.begin(move || lock.lock());
    cancel.cancel();
    assert!(matches!(world.finish(&waits).0, Err(Error::Cancelled { .. })));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw, Op::Release]);
}

#[test]
fn a_request_that_is_dropped_is_withdrawn_or_released() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    drop(world.lock("in line").request().unwrap());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
    drop(world.lock("granted").request().unwrap());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
    assert!(world.client.held().is_empty() && world.client.waiting().is_empty());
}

#[test]
fn a_wait_for_a_plain_lock_that_is_over_is_withdrawn_as_well() {
    let world = World::new();
    world.store.plan().acquire.push_back(busy());
    let lock = world.plain("plain");
    let (tried, took) = world.run(move || lock.try_lock_for(S));
    assert!(is_busy(&tried) && took == S, "{took:?}");
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Withdraw]);
}
