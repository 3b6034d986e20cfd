//! What messages do: grants, hints, forced releases and gaps.

use super::store::{LEASE, Op, busy, down, granted, queued};
use super::support::{PLACE, S, World, ms};
use crate::backend::{Renewal, RequestId, Wake};
use crate::{FencingToken, LostCause};

fn ignored(world: &World) -> u64 {
    world.client.stats().wake_ups_ignored
}

#[test]
fn a_grant_for_the_request_that_waits_is_believed() {
    let world = World::new();
    let request = world.in_line("granted");
    world.push(&world.claim("granted"), 9);
    assert!(request.decided().try_recv().is_ok());
    let guard = request.wait().unwrap();
    assert_eq!((guard.token().get(), world.store.ops().len(), ignored(&world)), (9, 1, 0));
    assert_eq!(world.client.stats().granted_by_wake_up, 1);
}

#[test]
fn a_grant_that_names_another_request_or_owner_is_no_grant_and_is_released_once() {
    let world = World::new();
    let request = world.in_line("other");
    let claim = world.claim("other");
    let token = FencingToken::new(9);
    let forged = RequestId::new(claim.request.get().wrapping_add(1));
    for owner in [claim.owner.as_str(), "another client:1"] {
        for _ in 0..2 {
            world.store.wake(Wake::Granted { lock: "other", owner, request: forged, token });
            world.settle();
        }
    }
    assert!(request.decided().try_recv().is_err());
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release], "by owner, request and token");
    assert_eq!(ignored(&world), 4);
}

#[test]
fn a_stray_grant_is_left_to_its_lease_when_the_client_has_ended() {
    let world = World::new();
    world.lock("ended").lock().unwrap().unlock().unwrap();
    let (request, token) = (RequestId::new(1), FencingToken::new(9));
    world.client.shutdown().unwrap();
    world.store.ops();
    world.store.wake(Wake::Granted { lock: "ended", owner: "x:1", request, token });
    assert_eq!(world.shared.chores.len(), 0);
    assert!(world.store.ops().is_empty());
}

/// A withdrawal of the shutdown may let the store grant a place that it could not be told to remove before.
#[test]
fn a_stray_grant_that_comes_during_a_shutdown_is_released_by_it() {
    let world = World::new();
    let _guard = world.lock("held").lock().unwrap();
    world.store.delay(Op::Release, S);
    let ends = world.ends();
    let (request, token) = (RequestId::new(1), FencingToken::new(9));
    world.store.wake(Wake::Granted { lock: "stray", owner: "x:1", request, token });
    world.finish(&ends).0.unwrap();
    assert_eq!(world.store.calls_about("stray", Op::Release), 1);
}

/// The watchdog of a client that has asked for nothing yet does not run.
#[test]
fn a_stray_grant_for_a_client_that_has_asked_for_nothing_is_released() {
    let world = World::new();
    let (request, token) = (RequestId::new(1), FencingToken::new(9));
    world.store.wake(Wake::Granted { lock: "nothing", owner: "x:1", request, token });
    world.settle();
    assert_eq!(world.store.ops(), [Op::Release]);
    world.store.wake(Wake::Granted { lock: "", owner: "x:1", request, token }); // no such lock
    world.settle();
    assert_eq!((world.store.ops().len(), ignored(&world)), (0, 2));
}

#[test]
fn a_grant_that_is_told_again_is_ignored() {
    let world = World::new();
    let _request = world.in_line("again");
    world.push(&world.claim("again"), 9);
    world.push(&world.claim("again"), 9);
    world.settle();
    assert_eq!((ignored(&world), world.store.ops()), (1, vec![Op::Acquire]));
}

/// A heartbeat finds the grant, and the message comes a moment later: it was only slower.
#[test]
fn a_grant_that_a_heartbeat_has_found_counts_as_told_when_its_message_comes() {
    for is_released in [false, true] {
        let world = World::new();
        let request = world.in_line("crossing");
        let claim = world.claim("crossing");
        let token = FencingToken::new(9);
        world.store.plan().renew.push_back(Ok(Renewal::Granted { token, lease: LEASE }));
        world.clock.advance(PLACE / 3);
        assert_eq!(world.client.stats().granted_by_polling, 1);
        let guard = request.wait().unwrap();
        let _kept = if is_released { guard.unlock().map(|()| None) } else { Ok(Some(guard)) };
        world.push(&claim, 9);
        world.settle();
        let stats = world.client.stats();
        assert_eq!((stats.granted_by_wake_up, stats.granted_by_polling, stats.wake_ups_ignored), (1, 0, 0));
        assert_eq!(world.store.times(Op::Release).len(), usize::from(is_released));
    }
}

#[test]
fn a_grant_that_is_not_believed_is_a_reason_to_ask() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), granted(11)]);
    let request = world.lock("old").request().unwrap();
    world.push(&world.claim("old"), 1); // its token is not greater than what the server has said
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire]);
    assert_eq!(request.wait().unwrap().token().get(), 11);
}

#[test]
fn a_hint_for_an_owner_has_that_request_asked_for() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(1), granted(11)]);
    let [first, second] = [(); 2].map(|()| world.lock("hint").request().unwrap());
    world.recheck(&world.shared.ledger.registry.any("hint", |claim| claim.rank() == Some(0)).unwrap());
    world.settle();
    assert!(first.decided().try_recv().is_ok() && second.decided().try_recv().is_err());
    world.store.wake(Wake::Recheck { lock: "hint", owner: Some("other:1") });
    assert_eq!(ignored(&world), 1);
}

#[test]
fn a_hint_for_any_waiter_wakes_one_that_waits() {
    let world = World::new();
    let _held = world.plain("any").lock().unwrap();
    world.store.plan().acquire.extend([busy(), busy(), busy()]);
    let _requests = [(); 2].map(|()| world.plain("any").request().unwrap());
    world.store.wake(Wake::Recheck { lock: "any", owner: None });
    world.settle();
    assert_eq!((world.store.ops().len(), ignored(&world)), (4, 0));
    world.store.wake(Wake::Recheck { lock: "none waits", owner: None });
    assert_eq!(ignored(&world), 1);
}

#[test]
fn a_hold_that_was_taken_is_lost_at_once_and_only_if_the_token_is_its_own() {
    let world = World::new();
    let guard = world.lock("taken").lock().unwrap();
    let owner = guard.owner().as_str().to_owned();
    let take = |owner: &str, token: u64| {
        world.store.wake(Wake::Taken { lock: "taken", owner, token: FencingToken::new(token) });
    };
    take(&owner, guard.token().get() + 1);
    take("another client:1", guard.token().get());
    assert_eq!((guard.is_lost(), ignored(&world)), (false, 2));
    take(&owner, guard.token().get());
    assert_eq!((guard.is_lost(), ignored(&world)), (true, 2));
    assert_eq!(guard.lost().try_recv().unwrap().cause, LostCause::Taken);
}

#[test]
fn a_hold_that_was_taken_before_its_grant_was_heard_of_is_not_believed() {
    let world = World::new();
    let request = world.in_line("early");
    let claim = world.claim("early");
    let token = FencingToken::new(9);
    world.store.wake(Wake::Taken { lock: "early", owner: claim.owner.as_str(), token });
    assert_eq!(ignored(&world), 0);
    world.store.plan().acquire.push_back(queued(0));
    world.push(&claim, 9);
    world.settle();
    assert!(request.decided().try_recv().is_err());
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire], "the server is asked instead");
}

#[test]
fn after_a_gap_holds_and_places_are_renewed_at_once() {
    let world = World::new();
    let _request = world.in_line("gap");
    let _guard = world.lock("held").lock().unwrap();
    world.clock.advance(S);
    world.store.ops();
    world.store.wake(Wake::Gap);
    world.settle();
    let asked = world.store.asked();
    assert!(
        matches!(&asked[..], [one] if one.op == Op::Renew && one.number == 2 && one.at == S),
        "{asked:?}"
    );
    assert_eq!((world.client.stats().gaps, ignored(&world)), (1, 0));
}

/// The subscription is back, so the server is probably back as well.
#[test]
fn after_a_gap_what_waits_for_a_pause_is_repeated_at_once() {
    let world = World::new();
    let guard = world.lock("pause").lock().unwrap();
    world.store.take_down(Op::Release);
    drop(guard);
    world.clock.advance(3 * S + ms(1));
    world.store.bring_up(Op::Release);
    world.store.ops();
    world.store.wake(Wake::Gap);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Release]);
}

/// Its backend may not know yet that it is gone.
#[test]
fn a_message_for_a_client_that_is_gone_is_dropped() {
    let world = World::without_watchdog();
    world.store.plan().release.push_back(down());
    drop(world.lock("gone").lock().unwrap());
    let (store, ..) = world.without_handles();
    store.ops();
    store.wake(Wake::Gap);
    assert!(store.ops().is_empty());
}
