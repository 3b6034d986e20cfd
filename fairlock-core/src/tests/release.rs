//! How a hold is given back while the server does not answer, refuses, or says that the hold was over.

use super::store::{LEASE, Op, denied, down, queued};
use super::support::{OUTAGE, S, World, ms};
use crate::backend::{HoldCountSet, Released};
use crate::{Error, LostCause};

#[test]
fn an_unlock_is_repeated_with_growing_pauses_until_it_is_answered() {
    let world = World::new();
    let guard = world.lock("repeated").lock().unwrap();
    world.store.plan().release.extend([down(), down(), down()]);
    let (unlocked, took) = world.run(move || guard.unlock());
    unlocked.unwrap();
    let tries = world.store.times(Op::Release);
    assert_eq!((tries.len(), tries[0], tries[1]), (4, ms(0), ms(0)), "the first repeat is at once");
    assert!(tries[2] >= ms(25) && tries[2] <= ms(50), "{tries:?}");
    assert!(tries[3] - tries[2] >= ms(50) && tries[3] - tries[2] <= ms(100), "{tries:?}");
    assert_eq!(took, tries[3]);
    assert_eq!((world.client.stats().holds.count, world.client.stats().lost), (1, 0));
}

#[test]
fn an_unlock_whose_first_answer_is_not_held_has_lost_the_hold() {
    let world = World::new();
    let guard = world.lock("not held").lock().unwrap();
    let lost = guard.lost().clone();
    world.store.plan().release.push_back(Ok(Released::NotHeld));
    let (unlocked, took) = world.run(move || guard.unlock());
    assert!(matches!(unlocked, Err(Error::Lost(lost)) if lost.cause == LostCause::Taken) && took == ms(0));
    assert_eq!(lost.try_recv().unwrap().cause, LostCause::Taken);
    assert_eq!((world.client.stats().lost, world.store.ops().len()), (1, 2));
}

/// The attempt that was not answered was carried out, when the hold was certain.
#[test]
fn an_unlock_whose_later_answer_is_not_held_has_released_the_hold() {
    for failures in [1, 2] {
        let world = World::new();
        let guard = world.lock("carried out").lock().unwrap();
        world.store.plan().release.extend((0..failures).map(|_| down()));
        world.store.plan().release.push_back(Ok(Released::NotHeld));
        world.run(move || guard.unlock()).0.unwrap();
        assert_eq!(world.client.stats().lost, 0);
    }
}

#[test]
fn an_unlock_gives_up_at_the_outage_limit_and_is_repeated_in_the_background() {
    let world = World::new();
    let lock = world.lock("gives up");
    let guard = lock.lock().unwrap();
    world.store.take_down(Op::Release);
    let (unlocked, took) = world.run(move || guard.unlock());
    let Err(Error::Unavailable { source, .. }) = unlocked else { panic!("{unlocked:?}") };
    assert_eq!(source.message(), "planned: down");
    // It does not begin a pause that would end after the limit, and no pause is longer than a second.
    assert!(took >= OUTAGE - S && took < OUTAGE, "{took:?}");
    let tries = world.store.times(Op::Release).len();
    assert!((10..40).contains(&tries), "{tries}");
    world.store.bring_up(Op::Release);
    world.clock.advance(2 * S);
    assert!(world.store.times(Op::Release).len() > tries);
    assert_eq!(world.shared.chores.len(), 0);
    world.store.asked();
    lock.lock().unwrap().leak();
    assert_eq!(world.store.ops(), [Op::Acquire], "nothing of the earlier hold is left");
}

#[test]
fn an_unlock_that_is_refused_is_an_error_at_once() {
    let world = World::without_watchdog();
    let guard = world.lock("refused").lock().unwrap();
    world.store.plan().release.push_back(denied());
    let (unlocked, took) = world.run(move || guard.unlock());
    assert!(matches!(unlocked, Err(Error::Denied { .. })) && took == ms(0), "{took:?}");
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
    assert_eq!(world.shared.chores.len(), 1, "the watchdog tells the server once more");
}

#[test]
fn a_dropped_guard_tries_once_and_leaves_the_rest_to_the_watchdog() {
    let world = World::without_watchdog();
    let guard = world.lock("dropped").lock().unwrap();
    world.store.plan().release.push_back(down());
    let ((), took) = world.run(move || drop(guard));
    assert_eq!(took, ms(0));
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
    assert_eq!(world.shared.chores.len(), 1);
}

#[test]
fn the_watchdog_repeats_the_release_of_a_dropped_guard() {
    let world = World::new();
    let guard = world.lock("watchdog").lock().unwrap();
    world.store.plan().release.push_back(down());
    drop(guard);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release, Op::Release]);
}

/// One call renews all holds that are due, so others may delay it.
#[test]
fn an_unlock_waits_for_a_renewal_that_is_under_way_but_not_for_long() {
    for (renewal_takes, waits) in [(ms(300), ms(300)), (2 * S, ms(500))] {
        let world = World::new();
        let (guard, due) = world.renewing("renewal", renewal_takes);
        assert_eq!(world.store.times(Op::Renew), [due]);
        let (unlocked, took) = world.run(move || guard.unlock());
        unlocked.unwrap();
        assert_eq!(took, waits);
        assert_eq!(world.store.times(Op::Release), [due], "the server is told first");
    }
}

#[test]
fn a_drop_waits_for_no_renewal() {
    let world = World::new();
    let (guard, _) = world.renewing("drop", S);
    assert_eq!(world.run(move || drop(guard)).1, ms(0));
}

#[test]
fn an_unlock_that_fails_waits_for_a_renewal_as_well() {
    let world = World::new();
    let (guard, _) = world.renewing("fails", ms(300));
    world.store.plan().release.push_back(denied());
    let (unlocked, took) = world.run(move || guard.unlock());
    assert!(matches!(unlocked, Err(Error::Denied { .. })));
    assert_eq!(took, ms(300));
}

/// A push has granted the lock while the watchdog was asking: the ask must not be carried out after the release.
#[test]
fn a_release_goes_after_an_ask_that_is_under_way() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0)]);
    let request = world.lock("ask").request().unwrap();
    let claim = world.claim("ask");
    world.store.delay(Op::Acquire, ms(300));
    world.recheck(&claim);
    world.settle();
    assert!(claim.is_asking());
    world.push(&claim, 9);
    let (unlocked, took) = world.run(move || request.wait().unwrap().unlock());
    unlocked.unwrap();
    assert_eq!((took, world.store.times(Op::Release)), (ms(300), vec![ms(300)]));
}

#[test]
fn an_inner_unlock_that_finds_the_hold_lost_reports_that() {
    let world = World::new();
    let lock = world.lock("inner");
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    world.store.plan().count.push_back(Ok(HoldCountSet::Lost));
    assert!(matches!(inner.unlock(), Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
    assert!(outer.is_lost());
    assert!(matches!(outer.unlock(), Err(Error::Lost(_))));
}

/// The server heard of the last unlock first.
#[test]
fn an_inner_unlock_that_the_last_one_has_overtaken_is_no_loss() {
    let world = World::new();
    let lock = world.lock("overtaken");
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    world.store.plan().count.push_back(Ok(HoldCountSet::Lost));
    world.store.delay(Op::Count, S);
    let unlocks = world.begin(move || inner.unlock());
    outer.unlock().unwrap();
    world.finish(&unlocks).0.unwrap();
    assert_eq!(world.client.stats().lost, 0);
}

#[test]
fn the_last_guard_of_a_lost_hold_has_it_released_and_no_other_has() {
    let world = World::new();
    let lock = world.lock("lost");
    let (first, last) = (lock.lock().unwrap(), lock.lock().unwrap());
    world.shared.ledger.lose(&world.claim("lost"), LostCause::Taken);
    assert!(matches!(first.unlock(), Err(Error::Lost(_))));
    world.settle();
    assert!(world.store.times(Op::Release).is_empty());
    assert!(matches!(last.unlock(), Err(Error::Lost(_))));
    world.settle();
    assert_eq!(world.store.times(Op::Release).len(), 1);
}

#[test]
fn an_unlock_after_the_end_of_the_lease_reports_the_loss() {
    let world = World::without_watchdog();
    let guard = world.lock("expired").lock().unwrap();
    world.clock.jump(LEASE);
    let (unlocked, took) = world.run(move || guard.unlock());
    assert!(matches!(unlocked, Err(Error::Lost(lost)) if lost.cause == LostCause::NotRenewed));
    assert_eq!((took, world.client.stats().lost, world.shared.chores.len()), (ms(0), 1, 1));
}

#[test]
fn a_hold_that_is_lost_while_it_is_released_is_counted_once_and_known_until_then() {
    let world = World::without_watchdog();
    let lock = world.lock("lost meanwhile");
    let guard = lock.lock().unwrap();
    let claim = world.claim("lost meanwhile");
    world.store.delay(Op::Release, S);
    let unlocks = world.begin(move || guard.unlock());
    world.shared.ledger.lose(&claim, LostCause::Taken);
    assert!(world.shared.ledger.registry.any("lost meanwhile", |_| true).is_some(), "its next request waits");
    world.finish(&unlocks).0.unwrap();
    assert!(world.shared.ledger.registry.any("lost meanwhile", |_| true).is_none());
    assert_eq!((world.client.stats().holds.count, world.client.stats().lost), (1, 1));
}
