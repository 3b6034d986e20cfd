//! Attempts that the server may carry out long after their repeats were answered.

use std::time::Duration;

use super::store::{LEASE, Op, busy, denied, down, granted, queued, was_granted};
use super::support::{OUTAGE, PLACE, S, World, ms};
use crate::backend::{Acquired, Renewal};
use crate::{Client, Error, FencingToken, OwnedGuard, TryLock};

/// For how long an attempt may begin what it asks for.
const TTL: Duration = Duration::from_secs(6);

/// How many withdrawals there were so far.
fn withdrawn(world: &World) -> usize {
    world.store.times(Op::Withdraw).len()
}

/// The first attempt had no answer, and may still arrive.
fn granted_late(world: &World, name: &str) -> OwnedGuard {
    world.store.plan().acquire.extend([down(), granted(5000)]);
    world.finish(&world.locks(name)).0.unwrap()
}

#[test]
fn a_request_with_an_unanswered_attempt_is_withdrawn_once_more_when_that_can_begin_nothing_any_more() {
    let world = World::with_late_attempts(TTL);
    granted_late(&world, "late:released").unlock().unwrap();
    world.clock.advance(TTL - S);
    assert_eq!(withdrawn(&world), 0, "before that another attempt might still arrive");
    world.clock.advance(2 * S);
    assert_eq!(withdrawn(&world), 1);
    world.clock.advance(60 * S);
    assert_eq!(withdrawn(&world), 1);
    assert_eq!(world.store.times(Op::Release).len(), 1);
}

#[test]
fn a_client_learns_from_its_backend_for_how_long_an_attempt_may_be_late() {
    let world = World::new();
    world.store.plan().attempt_ttl = Some(TTL);
    let client = Client::builder(world.store.clone()).clock(world.clock.clone()).build().unwrap();
    world.store.plan().acquire.extend([down(), granted(5000)]);
    let lock = client.fair_lock("late:built").unwrap();
    world.run(move || lock.lock().unwrap().unlock().unwrap());
    world.clock.advance(TTL + S);
    assert_eq!(withdrawn(&world), 1);
}

#[test]
fn a_grant_that_only_a_late_attempt_was_given_is_released() {
    let world = World::with_late_attempts(TTL);
    granted_late(&world, "late:ghost").unlock().unwrap();
    world.store.plan().withdraw.push_back(was_granted(6000));
    world.clock.advance(TTL + S);
    let (asked, mut released) = (world.store.asked(), Vec::new());
    released.extend(asked.iter().filter(|asked| asked.op == Op::Release).map(|asked| asked.number));
    assert_eq!(released, [5000, 6000]);
    assert_eq!(world.shared.chores.len(), 0);
}

#[test]
fn an_attempt_that_was_answered_or_refused_leads_to_no_withdrawal() {
    let world = World::with_late_attempts(TTL);
    world.lock("late:answered").lock().unwrap().unlock().unwrap();
    world.store.plan().acquire.push_back(denied());
    assert!(matches!(world.lock("late:refused").lock(), Err(Error::Denied { .. })));
    world.settle();
    let after = withdrawn(&world); // of the refused one, at once
    world.clock.advance(60 * S);
    assert_eq!(withdrawn(&world), after);
}

#[test]
fn a_request_with_an_old_unanswered_attempt_is_withdrawn_at_once() {
    let world = World::with_late_attempts(TTL);
    let guard = granted_late(&world, "late:long");
    world.clock.advance(TTL + S);
    guard.unlock().unwrap();
    world.settle();
    assert_eq!(withdrawn(&world), 1, "it may have been granted the lock between the release and its answer");
    world.clock.advance(60 * S);
    assert_eq!(withdrawn(&world), 1);
}

#[test]
fn one_attempt_that_ends_busy_is_withdrawn_later_if_its_first_try_was_not_answered() {
    let world = World::with_late_attempts(TTL);
    world.store.plan().acquire.extend([down(), busy()]);
    let lock = world.lock("late:busy");
    let (tried, _) = world.run(move || lock.try_lock());
    assert!(matches!(tried, Ok(TryLock::Busy)));
    assert_eq!(withdrawn(&world), 0);
    world.clock.advance(TTL + S);
    assert_eq!(withdrawn(&world), 1);
}

#[test]
fn a_request_that_left_the_line_is_withdrawn_once_more() {
    let world = World::with_late_attempts(TTL);
    world.store.plan().acquire.extend([down(), queued(0)]);
    let lock = world.lock("late:left");
    let request = world.run(move || lock.request()).0.unwrap();
    world.clock.advance(S);
    drop(request);
    world.settle();
    assert_eq!(withdrawn(&world), 1, "at once");
    world.clock.advance(TTL);
    assert_eq!(withdrawn(&world), 2, "and after the attempt's end");
}

#[test]
fn a_lost_hold_is_withdrawn_once_more_though_its_guard_is_kept() {
    let world = World::with_late_attempts(TTL);
    let guard = granted_late(&world, "late:lost");
    world.store.plan().renew.push_back(Ok(Renewal::Lost));
    assert!(guard.renew().is_err());
    world.clock.advance(TTL + S);
    assert_eq!(withdrawn(&world), 1);
    drop(guard);
    world.clock.advance(60 * S);
    assert_eq!(withdrawn(&world), 1);
}

#[test]
fn an_unanswered_heartbeat_may_put_the_place_back_later() {
    let world = World::with_late_attempts(TTL);
    let request = world.in_line("late:heartbeat");
    world.store.plan().renew.push_back(Err(down::<Renewal>().unwrap_err()));
    world.clock.advance(PLACE / 3 + ms(1));
    assert!(!world.store.times(Op::Renew).is_empty());
    world.push(&world.claim("late:heartbeat"), 5000);
    request.wait().unwrap().unlock().unwrap();
    world.clock.advance(TTL + S);
    assert_eq!(withdrawn(&world), 1);
}

#[test]
fn an_unanswered_renewal_of_a_hold_begins_nothing() {
    let world = World::with_late_attempts(TTL);
    let guard = world.lock("late:renewal").lock().unwrap();
    world.store.plan().renew.push_back(Err(down::<Renewal>().unwrap_err()));
    assert!(guard.renew().is_err());
    guard.unlock().unwrap();
    world.clock.advance(TTL + S);
    assert_eq!(withdrawn(&world), 0);
}

#[test]
fn an_owners_next_call_does_not_wait_where_places_are_named_by_requests() {
    let world = World::with_late_attempts(TTL);
    world.store.plan().acquire.extend([down(), granted(5000)]);
    let lock = world.lock("late:next");
    let (first, lock) = world.run(move || (lock.lock(), lock)).0;
    first.unwrap().unlock().unwrap();
    let (second, took) = world.run(move || lock.lock());
    assert_eq!(took, ms(0));
    let second = second.unwrap();
    world.clock.advance(TTL + S);
    assert_eq!(withdrawn(&world), 1);
    assert!(!second.is_lost());
}

#[test]
fn an_owners_next_call_waits_for_the_withdrawal_where_places_are_named_by_owners() {
    let world = World::with_late_attempts(TTL);
    world.store.plan().keeps_place_by_owner = true;
    world.store.plan().acquire.extend([down(), granted(5000)]);
    let lock = world.lock("late:owner");
    let (first, lock) = world.run(move || (lock.lock(), lock)).0;
    first.unwrap().unlock().unwrap();
    // One attempt does not wait for that.
    let ((tried, lock), took) = world.run(move || (lock.try_lock(), lock));
    assert!(matches!(tried, Err(Error::Unavailable { .. })) && took == ms(0), "{took:?}");
    let ((tried, lock), took) = world.run(move || (lock.try_lock_for(S), lock));
    assert!(matches!(tried, Err(Error::Unavailable { .. })) && took == S, "{took:?}: the lock may be free");
    let (second, took) = world.run(move || lock.lock());
    second.unwrap().unlock().unwrap();
    assert!(took > TTL - 2 * S && took < TTL + 2 * S, "{took:?}");
    let order: Vec<Op> = world.store.asked().iter().map(|asked| asked.op).collect();
    assert_eq!(order[..5], [Op::Acquire, Op::Acquire, Op::Release, Op::Withdraw, Op::Acquire], "{order:?}");
}

#[test]
fn an_owners_next_call_waits_for_a_withdrawal_that_comes_after_the_outage_limit() {
    let world = World::with_late_attempts(OUTAGE + 5 * S);
    world.store.plan().keeps_place_by_owner = true;
    world.store.plan().acquire.extend([down(), granted(5000)]);
    let lock = world.lock("late:long");
    let (first, lock) = world.run(move || (lock.lock(), lock)).0;
    first.unwrap().unlock().unwrap();
    let (second, took) = world.run(move || lock.lock());
    second.unwrap().unlock().unwrap();
    assert!(took > OUTAGE + 3 * S && took < OUTAGE + 7 * S, "{took:?}");
}

/// A late withdrawal would remove the place of the owner's next request.
#[test]
fn a_withdrawal_that_was_not_answered_is_made_once_more_where_places_are_named_by_owners() {
    for (by_owner, times) in [(false, 2), (true, 3)] {
        let world = World::with_late_attempts(TTL);
        world.store.plan().keeps_place_by_owner = by_owner;
        let request = world.in_line("late:unanswered");
        world.store.plan().withdraw.push_back(down());
        drop(request);
        world.clock.advance(3 * TTL);
        assert_eq!(withdrawn(&world), times);
        // A release names its hold.
        let guard = world.lock("late:release").lock().unwrap();
        world.store.plan().release.extend([down(), down()]);
        drop(guard);
        world.clock.advance(3 * TTL);
        assert_eq!(withdrawn(&world), times);
    }
}

/// An ask and a heartbeat that are under way while a push grants the lock with token 9.
fn crossed_by_a_push(name: &str, asked: Acquired, renewed: Option<Renewal>) -> usize {
    let world = World::with_late_attempts(TTL);
    world.store.plan().acquire.extend([queued(0), Ok(asked)]);
    world.store.plan().renew.extend(renewed.map(Ok));
    let request = world.lock(name).request().unwrap();
    let claim = world.claim(name);
    match renewed {
        None => {
            world.store.delay(Op::Acquire, ms(300));
            world.recheck(&claim);
            world.settle();
            assert!(claim.is_asking());
        }
        Some(_) => {
            world.store.delay(Op::Renew, ms(300));
            world.clock.advance(PLACE / 3);
            assert!(claim.is_renewing());
        }
    }
    world.push(&claim, 9);
    world.run(move || request.wait().unwrap().unlock()).0.unwrap();
    world.clock.advance(60 * S);
    withdrawn(&world)
}

/// The hold was over when that attempt was carried out, so a release of it leaves what the attempt was given.
#[test]
fn a_holder_that_hears_of_another_grant_of_its_request_has_it_withdrawn() {
    let waiting = |latest| Acquired::Queued { rank: 0, recheck_in: Duration::MAX, ticket: 1, latest };
    for (name, asked, most) in [
        ("news:same", granted(9).unwrap(), 0),
        ("news:greater", granted(10).unwrap(), 1),
        ("news:older", waiting(8), 0),
        ("news:place", waiting(9), 1),
    ] {
        assert_eq!(crossed_by_a_push(name, asked, None), most, "{name}");
    }
    let waiting = |latest| Renewal::Waiting { rank: 0, recheck_in: Duration::MAX, latest };
    let granted = |token| Renewal::Granted { token: FencingToken::new(token), lease: LEASE };
    for (name, renewed, most) in [
        ("beat:same", granted(9), 0),
        ("beat:greater", granted(10), 1),
        ("beat:older", waiting(8), 0),
        ("beat:place", waiting(9), 1),
    ] {
        assert_eq!(crossed_by_a_push(name, busy().unwrap(), Some(renewed)), most, "{name}");
    }
}

/// It would remove the place of the owner's next request.
#[test]
fn an_owners_next_call_waits_for_an_unanswered_withdrawal_where_places_are_named_by_owners() {
    for (by_owner, waits) in [(true, true), (false, false)] {
        let world = World::with_late_attempts(TTL);
        world.store.plan().keeps_place_by_owner = by_owner;
        world.store.plan().acquire.push_back(queued(0));
        world.store.plan().withdraw.push_back(down());
        let lock = world.lock("late:withdrawal");
        let (waited, lock) = world.run(move || (lock.try_lock_for(S), lock)).0;
        assert!(matches!(waited, Ok(TryLock::Busy)), "the repeat is answered");
        let (guard, took) = world.run(move || lock.lock());
        guard.unwrap().unlock().unwrap();
        assert_eq!(took > TTL - S, waits, "{took:?}");
    }
}

/// The server may have granted the lock at the very end of the attempt, for a lease.
#[test]
fn a_withdrawal_is_repeated_for_as_long_as_what_a_late_attempt_began_may_last() {
    let world = World::with_late_attempts(TTL);
    world.store.plan().acquire.extend([down(), down()]);
    world.store.plan().withdraw.extend((0..1000).map(|_| down()));
    let lock = world.lock("late:silent");
    let (tried, _) = world.run(move || lock.try_lock());
    assert!(matches!(tried, Err(Error::Unavailable { .. })));
    world.clock.advance(LEASE + PLACE + S);
    let before = withdrawn(&world);
    world.clock.advance(TTL - 2 * S);
    assert!(withdrawn(&world) > before, "given up too early, after {before} attempts");
    world.clock.advance(2 * S);
    let all = withdrawn(&world);
    world.clock.advance(60 * S);
    assert_eq!(withdrawn(&world), all, "nothing can be left by then");
}

#[test]
fn a_shutdown_withdraws_at_once_what_may_still_arrive() {
    let world = World::with_late_attempts(TTL);
    granted_late(&world, "late:shutdown").unlock().unwrap();
    let (ended, took) = world.finish(&world.ends());
    ended.unwrap();
    assert!(took < S && took < OUTAGE, "{took:?}");
    assert_eq!(withdrawn(&world), 1);
}

#[test]
fn a_client_that_is_dropped_withdraws_at_once_what_may_still_arrive() {
    let world = World::with_late_attempts(TTL);
    granted_late(&world, "late:dropped").unlock().unwrap();
    world.settle(); // a round of the watchdog may own the client
    let (store, ..) = world.without_handles();
    assert_eq!(store.times(Op::Withdraw).len(), 1);
}
