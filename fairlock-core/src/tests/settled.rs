//! A call of an owner whose earlier hold the server has not been told of: it settles that first.

use super::store::{Op, denied, down};
use super::support::{OUTAGE, S, World, ms};
use crate::{Cancel, Error, OwnedLock, TryLock};

/// A lock whose owner has dropped its hold, and the server did not answer the release. There is no watchdog to repeat it.
fn dropped(name: &str) -> (World, OwnedLock) {
    let world = World::without_watchdog();
    let lock = world.lock(name);
    world.store.plan().release.push_back(down());
    drop(lock.lock().unwrap());
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
    (world, lock)
}

#[test]
fn the_next_call_releases_the_earlier_hold_and_asks_then() {
    let (world, lock) = dropped("next");
    let (tried, took) = world.run(move || lock.try_lock());
    assert!(matches!(tried, Ok(TryLock::Granted(_))) && took == ms(0));
    assert_eq!(world.store.ops()[..2], [Op::Release, Op::Acquire]);
    assert_eq!(world.shared.chores.len(), 0);
}

#[test]
fn one_attempt_makes_one_attempt_to_settle() {
    let (world, lock) = dropped("one attempt");
    world.store.take_down(Op::Release);
    let (tried, took) = world.run(move || lock.try_lock());
    assert!(matches!(tried, Err(Error::Unavailable { .. })) && took == ms(0), "{took:?}");
    assert_eq!(world.store.ops(), [Op::Release]);
}

#[test]
fn a_caller_with_time_settles_with_growing_pauses() {
    let (world, lock) = dropped("pauses");
    world.store.plan().release.extend([down(), down(), down()]);
    let (locked, took) = world.run(move || lock.lock().map(|guard| guard.leak()));
    locked.unwrap();
    assert!(took >= ms(75) && took <= ms(150), "{took:?}");
    assert_eq!(world.store.times(Op::Release).len(), 4);
    assert_eq!(world.store.times(Op::Release)[..2], [ms(0), ms(0)], "the first repeat is at once");
}

#[test]
fn a_caller_without_a_limit_gives_up_after_the_outage_limit() {
    let (world, lock) = dropped("gives up");
    world.store.take_down(Op::Release);
    let (locked, took) = world.run(move || lock.lock());
    let Err(Error::Unavailable { source, .. }) = locked else { panic!("{locked:?}") };
    assert_eq!((took, source.message()), (OUTAGE, "planned: down"));
    let tries = world.store.times(Op::Release).len();
    assert!((10..30).contains(&tries), "{tries}");
}

#[test]
fn a_timed_wait_ends_on_time_with_the_error_of_its_last_attempt() {
    let (world, lock) = dropped("timed");
    world.store.take_down(Op::Release);
    let (waited, took) = world.run(move || lock.try_lock_for(2 * S));
    assert!(matches!(waited, Err(Error::Unavailable { .. })) && took == 2 * S, "{took:?}");
}

#[test]
fn a_refused_release_settles_as_well() {
    let (world, lock) = dropped("refused");
    world.store.plan().release.push_back(denied());
    let (locked, took) = world.run(move || lock.lock().map(|guard| guard.leak()));
    locked.unwrap();
    assert_eq!(took, ms(0));
}

#[test]
fn a_cancelled_caller_does_not_wait_for_the_end_of_an_earlier_hold() {
    let (world, lock) = dropped("cancelled");
    world.store.take_down(Op::Release);
    let cancel = Cancel::new();
    let lock = lock.cancelled_by(&cancel);
    let waits = world.begin(move || lock.lock());
    cancel.cancel();
    let (result, took) = world.finish(&waits);
    assert!(matches!(result, Err(Error::Cancelled { .. })) && took < ms(60), "{took:?}");
}

/// Another thread of the owner is releasing, and has no answer yet: the lock may be busy or not.
fn releasing(name: &str) -> (World, OwnedLock) {
    let world = World::without_watchdog();
    let lock = world.lock(name);
    let guard = lock.lock().unwrap();
    world.store.delay(Op::Release, 15 * S);
    let _ends_by_itself = world.begin(move || guard.unlock());
    (world, lock)
}

#[test]
fn a_timed_wait_for_a_release_that_is_under_way_ends_on_time() {
    let (world, lock) = releasing("under way");
    let (waited, took) = world.run(move || lock.try_lock_for(2 * S));
    assert!(matches!(waited, Ok(TryLock::Busy)) && took == 2 * S, "{took:?}");
}

#[test]
fn a_wait_for_a_release_that_is_under_way_is_an_error_after_the_outage_limit() {
    let (world, lock) = releasing("too long");
    let (locked, took) = world.run(move || lock.lock());
    let Err(Error::Unavailable { source, .. }) = locked else { panic!("{locked:?}") };
    assert_eq!(took, OUTAGE);
    assert!(source.message().starts_with("the end of an earlier hold or wait of this owner"), "{source}");
}

#[test]
fn a_call_goes_on_as_soon_as_the_release_under_way_is_answered() {
    let world = World::without_watchdog();
    let lock = world.lock("answered");
    let guard = lock.lock().unwrap();
    world.store.delay(Op::Release, S);
    let unlocks = world.begin(move || guard.unlock());
    let (locked, took) = world.run(move || lock.lock().map(|guard| guard.leak()));
    locked.unwrap();
    assert_eq!(took, S);
    world.finish(&unlocks).0.unwrap();
}
