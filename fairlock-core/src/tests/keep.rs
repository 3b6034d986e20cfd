//! How a lock is kept taken while the server does not answer, refuses, or says that the hold was over; and what never follows.

use std::time::Duration;

use super::store::{LEASE, Op, denied, down};
use super::support::{OUTAGE, S, World, ms};
use crate::backend::{HoldKept, Renewal};
use crate::{Error, LostCause};

const TEN: Duration = Duration::from_secs(600);

#[test]
fn a_lock_is_kept_by_one_call_for_what_is_left_and_nothing_follows() {
    let world = World::new();
    let guard = world.lock("kept").lock().unwrap();
    world.clock.advance(4 * S);
    let (kept, took) = world.run(move || guard.keep_for(TEN));
    kept.unwrap();
    let asked = world.store.asked();
    assert_eq!(asked.iter().map(|asked| asked.op).collect::<Vec<_>>(), [Op::Acquire, Op::Keep]);
    assert_eq!((asked[1].number, took), (596_000, ms(0)));
    assert!(world.client.held().is_empty());
    world.clock.advance(2 * LEASE);
    world.client.shutdown().unwrap();
    assert!(world.store.ops().is_empty(), "no renewal, and no release at the end");
    let stats = world.client.stats();
    assert_eq!((stats.holds.count, stats.holds.longest, stats.lost), (1, 4 * S, 0));
}

#[test]
fn a_time_that_is_over_is_an_unlock() {
    let world = World::new();
    let guard = world.lock("over").lock().unwrap();
    world.clock.advance(4 * S);
    world.run(move || guard.keep_for(4 * S)).0.unwrap();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
}

#[test]
fn neither_a_fixed_lease_nor_a_longest_hold_bounds_the_time() {
    let world = World::new();
    for lock in [world.lock("one").fixed_lease(LEASE), world.lock("two").max_hold(LEASE)] {
        let guard = lock.lock().unwrap();
        world.run(move || guard.keep_for(TEN)).0.unwrap();
        assert_eq!(
            world.store.asked().pop().map(|asked| (asked.op, asked.number)),
            Some((Op::Keep, 600_000))
        );
    }
    let guard = world.lock("ever").lock().unwrap();
    world.run(move || guard.keep_for(Duration::MAX)).0.unwrap();
    let century = u64::from(100_u32 * 365 * 24 * 3600) * 1000;
    assert_eq!(world.store.asked().pop().map(|asked| asked.number), Some(century));
}

#[test]
fn only_the_last_guard_of_an_owner_can_keep_it() {
    let world = World::new();
    let lock = world.lock("twice");
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let (kept, _) = world.run(move || inner.keep_for(TEN));
    assert!(matches!(kept, Err(Error::Misuse { reason, .. }) if reason.contains("more than once")));
    assert_eq!((lock.hold_count(), outer.check().is_ok()), (1, true));
    world.run(move || outer.keep_for(TEN)).0.unwrap();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Count, Op::Count, Op::Keep]);
}

#[test]
fn an_attempt_without_an_answer_is_repeated_with_its_number_and_for_what_is_left_then() {
    let world = World::new();
    let guard = world.lock("repeated").lock().unwrap();
    world.store.plan().keep.extend([down(), down(), down()]);
    let (kept, took) = world.run(move || guard.keep_for(TEN));
    kept.unwrap();
    let asked: Vec<u64> = world.store.asked().split_off(1).into_iter().map(|asked| asked.number).collect();
    assert_eq!(asked.len(), 4);
    assert!(asked.is_sorted_by(|one, other| one >= other), "{asked:?}");
    assert_eq!(asked[3], (TEN - took).as_millis() as u64);
    let mut keepers = std::mem::take(&mut world.store.plan().keepers);
    keepers.dedup();
    assert_eq!(keepers.len(), 1);
}

#[test]
fn a_hold_that_was_taken_is_lost() {
    for failures in [0, 1] {
        let world = World::new();
        let guard = world.lock("taken").lock().unwrap();
        let lost = guard.lost().clone();
        world.store.plan().keep.extend((0..failures).map(|_| down()));
        world.store.plan().keep.push_back(Ok(HoldKept::NotHeld));
        let (kept, _) = world.run(move || guard.keep_for(TEN));
        assert!(matches!(kept, Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
        assert_eq!((lost.try_recv().unwrap().cause, world.client.stats().lost), (LostCause::Taken, 1));
    }
}

#[test]
fn a_hold_that_is_lost_is_not_kept() {
    let world = World::new();
    let guard = world.lock("lost").fixed_lease(S).lock().unwrap();
    world.clock.advance(2 * S);
    let (kept, _) = world.run(move || guard.keep_for(TEN));
    assert!(matches!(kept, Err(Error::Lost(lost)) if lost.cause == LostCause::LeaseOver));
    assert!(!world.store.ops().contains(&Op::Keep));
}

/// It was kept, and its time went by before an answer came.
#[test]
fn a_repeat_that_finds_nothing_after_the_end_has_kept_it() {
    let world = World::new();
    let guard = world.lock("late").lock().unwrap();
    world.store.plan().keep.extend([down(), down(), Ok(HoldKept::NotHeld)]);
    world.store.delay(Op::Keep, S);
    world.run(move || guard.keep_for(S)).0.unwrap();
    let asked: Vec<u64> = world.store.asked().split_off(1).into_iter().map(|asked| asked.number).collect();
    assert_eq!(asked, [1000, 1, 1], "the server may not have been told");
    assert_eq!(world.client.stats().lost, 0);
}

#[test]
fn without_an_answer_the_hold_is_not_released_and_the_error_says_what_may_be() {
    let world = World::new();
    let lock = world.lock("unknown");
    let guard = lock.lock().unwrap();
    world.store.take_down(Op::Keep);
    let (kept, took) = world.run(move || guard.keep_for(TEN));
    let Err(Error::Unavailable { source, .. }) = kept else { panic!("{kept:?}") };
    assert!(source.message().starts_with("planned: down; the lock may be kept for"), "{source}");
    assert!(took >= OUTAGE - S && took < OUTAGE, "{took:?}");
    world.clock.advance(2 * LEASE);
    let ops = world.store.ops();
    assert!(!ops.contains(&Op::Release) && !ops.contains(&Op::Renew), "{ops:?}");
    lock.lock().unwrap().unlock().unwrap(); // its owner asks anew
    let guard = lock.lock().unwrap();
    world.store.bring_up(Op::Keep);
    world.store.plan().keep.push_back(denied());
    let (kept, _) = world.run(move || guard.keep_for(TEN));
    let Err(Error::Denied { source, .. }) = kept else { panic!("{kept:?}") };
    assert_eq!(source.message(), "planned: denied; the lock is free when its lease ends");
}

/// The renewal names the former request.
#[test]
fn a_renewal_under_way_that_finds_nothing_is_no_loss() {
    let world = World::new();
    let (guard, _) = world.renewing("under way", 2 * S);
    world.store.plan().renew.push_back(Ok(Renewal::Lost));
    let (kept, _) = world.run(move || guard.keep_for(TEN));
    kept.unwrap();
    world.clock.advance(LEASE);
    assert_eq!(world.client.stats().lost, 0);
}
