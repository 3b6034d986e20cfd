//! A holder lets the others go first.

use super::store::{LEASE, Op, denied, down, granted, queued};
use super::support::{OUTAGE, S, World, ms};
use crate::backend::{Acquired, BackendError, Released};
use crate::{Error, LostCause, OwnedGuard, Result};

type Bumped = (Result<()>, OwnedGuard);

fn bump(mut guard: OwnedGuard) -> Bumped {
    (guard.bump(), guard)
}

/// The answer of the store to a bump: the new request has this answer.
fn again(answer: Result<Acquired, BackendError>) -> Released {
    Released::Again(answer.unwrap())
}

#[test]
fn a_bump_that_finds_no_other_request_keeps_the_hold() {
    let world = World::new();
    let mut guard = world.lock("kept").lock().unwrap();
    let token = guard.token();
    guard.bump().unwrap();
    assert_eq!((guard.token(), world.store.ops()), (token, vec![Op::Acquire, Op::Bump]));
    assert_eq!(guard.valid_for(), ms(29_698));
    world.clock.advance(60 * S);
    assert!(!guard.is_lost() && world.store.times(Op::Renew).len() >= 5, "it is renewed on");
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
    assert!(world.store.times(Op::Bump).is_empty());
    assert!(!outer.is_lost() && !plain.is_lost());
}

#[test]
fn a_bump_waits_for_the_next_turn_which_is_a_new_hold() {
    let world = World::new();
    let guard = world.lock("turn").lock().unwrap();
    let old = guard.token();
    world.store.plan().release.push_back(Ok(again(queued(0))));
    let bumps = world.begin(move || bump(guard));
    assert_eq!(world.client.waiting().len(), 1);
    world.clock.advance(S);
    world.push(&world.claim("turn"), 5000);
    let ((bumped, guard), took) = world.finish(&bumps);
    bumped.unwrap();
    assert_eq!((guard.token().get(), took), (5000, S));
    assert!(guard.token() > old && !guard.is_lost());
    let stats = world.client.stats();
    assert_eq!((stats.holds.count, stats.lost), (1, 0), "the first hold is counted");
    assert!(world.store.times(Op::Release).is_empty());
    guard.unlock().unwrap();
}

#[test]
fn a_bump_whose_new_request_is_granted_at_once_is_a_new_hold() {
    let world = World::new();
    let guard = world.lock("at once").lock().unwrap();
    world.store.plan().release.push_back(Ok(again(granted(5000))));
    let ((bumped, guard), took) = world.run(move || bump(guard));
    bumped.unwrap();
    assert_eq!((guard.token().get(), took, guard.valid_for()), (5000, ms(0), ms(29_698)));
}

/// What is left of a grant counts from the attempt that was answered, what is left of a place from the first one.
#[test]
fn a_bump_that_is_repeated_counts_a_grant_from_the_last_attempt() {
    let world = World::new();
    let guard = world.lock("counts").lock().unwrap();
    world.store.plan().release.extend([down(), down(), Ok(again(granted(5000)))]);
    let ((bumped, guard), took) = world.run(move || bump(guard));
    bumped.unwrap();
    assert!(took >= ms(25) && took <= ms(50), "{took:?}");
    assert_eq!(guard.valid_for(), ms(29_698));
}

#[test]
fn a_bump_that_was_carried_out_unheard_asks_anew_with_the_new_request() {
    for failures in [1, 2, 3] {
        let world = World::new();
        let guard = world.lock("unheard").lock().unwrap();
        world.store.plan().release.extend((0..failures).map(|_| down()));
        world.store.plan().release.push_back(Ok(Released::Released));
        world.store.plan().acquire.push_back(granted(5000));
        let ((bumped, guard), took) = world.run(move || bump(guard));
        bumped.unwrap();
        assert_eq!(guard.token().get(), 5000);
        let (least, most) = [(0, 0), (25, 50), (75, 150)][failures - 1];
        assert!(took >= ms(least) && took <= ms(most), "{took:?} after {failures}");
        let mut ops = vec![Op::Bump; failures + 1];
        ops.push(Op::Acquire);
        assert_eq!(world.store.ops()[1..], ops);
        assert_eq!(world.client.stats().lost, 0);
    }
}

#[test]
fn a_bump_of_a_hold_that_is_gone_is_a_loss() {
    for answer in [Released::NotHeld, Released::Released] {
        let world = World::new();
        let guard = world.lock("gone").lock().unwrap();
        world.store.plan().release.push_back(Ok(answer));
        let ((bumped, _guard), _) = world.run(move || bump(guard));
        assert!(matches!(bumped, Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
        let stats = world.client.stats();
        assert_eq!((stats.lost, world.client.held().len(), world.client.waiting().len()), (1, 0, 0));
        world.settle();
        assert_eq!(world.store.ops(), [Op::Acquire, Op::Bump]);
    }
}

#[test]
fn a_bump_that_is_refused_ends_the_hold_and_withdraws_the_new_request() {
    let world = World::new();
    let lock = world.lock("refused");
    let guard = lock.lock().unwrap();
    world.store.plan().release.push_back(denied());
    let ((bumped, guard), took) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Denied { .. })) && took == ms(0), "{took:?}");
    assert!(guard.is_lost());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Bump, Op::Release, Op::Withdraw]);
    let stats = world.client.stats();
    assert_eq!((stats.lost, stats.holds.count, stats.waiting.len()), (1, 1, 0));
}

#[test]
fn a_bump_without_any_answer_gives_up_at_the_outage_limit() {
    let world = World::new();
    let guard = world.lock("silent").lock().unwrap();
    world.store.take_down(Op::Bump);
    let ((bumped, guard), took) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Unavailable { .. })));
    assert!(took >= OUTAGE - S && took < OUTAGE, "{took:?}");
    assert!(guard.is_lost());
    let tries = world.store.times(Op::Bump).len();
    assert!((10..40).contains(&tries), "{tries}");
}

#[test]
fn a_shutdown_ends_a_bump_that_is_repeated() {
    let world = World::new();
    let guard = world.lock("shutdown").lock().unwrap();
    world.store.take_down(Op::Bump);
    let bumps = world.begin(move || bump(guard));
    world.clock.advance(S);
    let client = world.client.clone();
    let ends = world.begin(move || client.shutdown());
    let ((bumped, _guard), took) = world.finish(&bumps);
    assert!(matches!(bumped, Err(Error::Shutdown { .. })) && took <= 3 * S, "{took:?}");
    world.finish(&ends).0.unwrap();
    assert!(world.client.waiting().is_empty() && world.client.held().is_empty());
}

/// The answer comes when the client has been shut down: the hold does not come back.
#[test]
fn a_bump_that_kept_its_hold_after_a_shutdown_is_over() {
    let world = World::new();
    let guard = world.lock("too late").lock().unwrap();
    world.store.delay(Op::Bump, S);
    let bumps = world.begin(move || bump(guard));
    let client = world.client.clone();
    let ends = world.begin(move || client.shutdown());
    let ((bumped, guard), took) = world.finish(&bumps);
    assert!(matches!(bumped, Err(Error::Shutdown { .. })) && took == S, "{took:?}");
    assert!(guard.is_lost());
    world.finish(&ends).0.unwrap();
    assert_eq!(world.store.times(Op::Release).len(), 1);
}

#[test]
fn a_hold_that_ended_during_its_bump_is_lost() {
    let world = World::new();
    let guard = world.lock("ended").lock().unwrap();
    world.store.delay(Op::Bump, LEASE);
    let ((bumped, _guard), took) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Lost(lost)) if lost.cause == LostCause::NotRenewed));
    assert_eq!((took, world.client.stats().lost), (LEASE, 1));
}

#[test]
fn a_bump_of_a_hold_that_has_ended_is_a_loss() {
    let world = World::without_watchdog();
    let guard = world.lock("before").lock().unwrap();
    world.clock.jump(LEASE);
    let ((bumped, _guard), _) = world.run(move || bump(guard));
    assert!(matches!(bumped, Err(Error::Lost(lost)) if lost.cause == LostCause::NotRenewed));
    assert!(world.store.times(Op::Bump).is_empty());
}

#[test]
fn a_bump_waits_for_a_renewal_of_the_old_hold_that_is_under_way() {
    for (renewal_takes, waits) in [(ms(300), ms(300)), (2 * S, ms(500))] {
        let world = World::new();
        let (guard, _) = world.renewing("renewal", renewal_takes);
        world.store.plan().release.push_back(Ok(again(granted(5000))));
        let ((bumped, _guard), took) = world.run(move || bump(guard));
        bumped.unwrap();
        assert_eq!(took, waits);
    }
}

/// A caller of the same owner has joined the new request, which then turns out not to be needed.
#[test]
fn a_caller_that_joined_the_new_request_comes_back_to_the_hold_that_was_kept() {
    let world = World::new();
    let lock = world.lock("joined");
    let guard = lock.lock().unwrap();
    let token = guard.token();
    world.store.delay(Op::Bump, S);
    let bumps = world.begin(move || bump(guard));
    let joins = world.begin(move || lock.lock());
    let ((bumped, _guard), _) = world.finish(&bumps);
    bumped.unwrap();
    let (joined, took) = world.finish(&joins);
    assert_eq!((joined.unwrap().token(), took), (token, S));
}
