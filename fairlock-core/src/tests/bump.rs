//! A holder lets the others go first: a release, and a request at the tail.

use super::store::{LEASE, Op, denied, down, granted, queued};
use super::support::{OUTAGE, S, World, ms};
use crate::backend::Released;
use crate::{Error, LostCause, OwnedGuard, Result};

type Bumped = (Result<()>, OwnedGuard);

fn bump(mut guard: OwnedGuard) -> Bumped {
    (guard.bump(), guard)
}

#[test]
fn a_bump_is_a_release_and_a_new_request_also_where_nobody_waits() {
    let world = World::new();
    let mut guard = world.lock("alone").lock().unwrap();
    let token = guard.token();
    guard.bump().unwrap();
    assert_eq!(world.store.ops(), vec![Op::Acquire, Op::Release, Op::Acquire]);
    assert!(guard.token() > token && !guard.is_lost());
    assert_eq!(guard.valid_for(), ms(29_698));
    let stats = world.client.stats();
    assert_eq!((stats.holds.count, stats.lost), (1, 0), "the first hold is counted");
    world.clock.advance(60 * S);
    assert!(!guard.is_lost() && world.store.times(Op::Renew).len() >= 5, "the new hold is renewed");
    guard.unlock().unwrap();
}

#[test]
fn a_hold_that_is_held_twice_or_has_no_line_stays_without_a_question() {
    let world = World::new();
    let lock = world.lock("twice");
    let (mut outer, _inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    outer.bump().unwrap();
    let mut plain = world.plain("plain").lock().unwrap();
    plain.bump().unwrap();
    assert!(world.store.times(Op::Release).is_empty());
    assert!(!outer.is_lost() && !plain.is_lost());
}

#[test]
fn a_bump_waits_for_the_next_turn() {
    let world = World::new();
    let guard = world.lock("turn").lock().unwrap();
    let old = guard.token();
    world.store.plan().acquire.push_back(queued(0));
    let bumps = world.begin(move || bump(guard));
    assert_eq!(world.client.waiting().len(), 1);
    world.clock.advance(S);
    world.push(&world.claim("turn"), 5000);
    let ((bumped, guard), took) = world.finish(&bumps);
    bumped.unwrap();
    assert_eq!((guard.token().get(), took), (5000, S));
    assert!(guard.token() > old && !guard.is_lost());
    guard.unlock().unwrap();
}

#[test]
fn each_step_of_a_bump_is_repeated_by_itself() {
    let world = World::new();
    let guard = world.lock("unheard").lock().unwrap();
    world.store.plan().release.extend([down(), Ok(Released::NotHeld)]); // the first attempt was carried out
    world.store.plan().acquire.extend([down(), granted(5000)]);
    let ((bumped, guard), _) = world.run(move || bump(guard));
    bumped.unwrap();
    assert_eq!(guard.token().get(), 5000);
    assert_eq!(world.store.ops()[1..], [Op::Release, Op::Release, Op::Acquire, Op::Acquire]);
    assert_eq!(world.client.stats().lost, 0);
}

#[test]
fn a_bump_of_a_hold_that_is_gone_is_a_loss_and_asks_for_nothing() {
    let world = World::new();
    let guard = world.lock("gone").lock().unwrap();
    world.store.plan().release.push_back(Ok(Released::NotHeld));
    let ((bumped, _guard), _) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
    let stats = world.client.stats();
    assert_eq!((stats.lost, world.client.held().len(), world.client.waiting().len()), (1, 0, 0));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
}

#[test]
fn a_bump_of_a_hold_that_has_ended_is_a_loss() {
    let world = World::without_watchdog();
    let guard = world.lock("before").lock().unwrap();
    world.clock.jump(LEASE);
    let ((bumped, _guard), _) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Lost(lost)) if lost.cause == LostCause::NotRenewed));
    assert_eq!(world.store.times(Op::Acquire).len(), 1);
}

#[test]
fn a_bump_whose_release_is_refused_ends_the_hold_and_asks_for_nothing() {
    let world = World::new();
    let guard = world.lock("refused").lock().unwrap();
    world.store.plan().release.push_back(denied());
    let ((bumped, guard), took) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Denied { .. })) && took == ms(0), "{took:?}");
    assert!(guard.is_lost() && matches!(guard.check(), Err(Error::NotHeld { .. })));
    world.settle();
    assert_eq!(
        world.store.ops(),
        [Op::Acquire, Op::Release, Op::Release],
        "it is repeated in the background"
    );
}

#[test]
fn a_bump_whose_release_is_never_answered_gives_up_at_the_outage_limit() {
    let world = World::new();
    let guard = world.lock("silent").lock().unwrap();
    world.store.take_down(Op::Release);
    let ((bumped, guard), took) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Unavailable { .. })));
    assert!(took >= OUTAGE - S && took < OUTAGE, "{took:?}");
    assert!(guard.is_lost());
}

#[test]
fn a_shutdown_ends_a_bump_that_waits() {
    let world = World::new();
    let guard = world.lock("shutdown").lock().unwrap();
    world.store.plan().acquire.push_back(queued(0));
    let bumps = world.begin(move || bump(guard));
    let ends = world.ends();
    let ((bumped, guard), _) = world.finish(&bumps);
    assert!(matches!(bumped, Err(Error::Shutdown { .. })) && guard.is_lost());
    world.finish(&ends).0.unwrap();
    assert!(world.client.waiting().is_empty() && world.client.held().is_empty());
}

/// Another thread of the same owner comes between the two steps: both have the new hold.
#[test]
fn a_caller_of_the_same_owner_shares_the_new_hold() {
    let world = World::new();
    let lock = world.lock("joined");
    let guard = lock.lock().unwrap();
    let token = guard.token();
    world.store.delay(Op::Release, S);
    let bumps = world.begin(move || bump(guard));
    let joins = world.begin(move || lock.lock());
    let ((bumped, guard), _) = world.finish(&bumps);
    bumped.unwrap();
    let (joined, took) = world.finish(&joins);
    let joined = joined.unwrap();
    assert_eq!((joined.token(), took), (guard.token(), S));
    assert!(joined.token() > token);
}
