//! Several locks at once, and what becomes of those that are held when something happens to one of them.

use super::scene::*;
use super::store::{LEASE, Op, busy, denied, down, granted, queued};
use super::support::{OUTAGE, S, World, ms};
use crate::backend::{Released, Renewal};
use crate::{Error, FencingToken, LockName, LostCause, TryLock};

/// What the store was asked since the last call of this, with the names of the locks.
fn asked(world: &World) -> Vec<(Op, String)> {
    world.store.asked().into_iter().map(|asked| (asked.op, asked.lock)).collect()
}

fn each(op: Op, names: &[&str]) -> Vec<(Op, String)> {
    names.iter().map(|name| (op, (*name).to_owned())).collect()
}

#[test]
fn an_attempt_that_finds_one_busy_gives_the_others_back() {
    let s = threads().acquire().says([got(1), got(2), BUSY]).x().tries_all(&[A, B, C, D]).is_busy();
    s.asked([ACQUIRE.about(A), ACQUIRE.about(B), ACQUIRE.about(C), RELEASE.about(B), RELEASE.about(A)]);
    s.held(&[]).waiting(&[]).x().tries_all(&[A, B]).gets_all();
}

#[test]
fn the_first_name_is_waited_for_like_the_others() {
    let s = threads().acquire().says(rank(0)).x().locks_all(&[A, B]).a().is_pushed(5).x().gets_all();
    s.called(ACQUIRE.about(B), 1);
}

/// All locks share one deadline and what is held by then is released. The time goes on from one lock to the next.
#[test]
fn all_locks_share_one_deadline() {
    let s = unwatched().acquire().says([got(1), got(2), rank(0)]).acquire().takes_each(S, 2);
    s.x().tries_all_for(5 * S, &[A, B, C]).is_busy().after(5 * S..=6 * S).held(&[]).waiting(&[]);
    s.called(RELEASE, 2);
}

#[test]
fn an_error_gives_back_what_is_held() {
    let s = unwatched().acquire().says([got(1), DENIED]).x().locks_all(&[A, B]).fails(Denied);
    s.x().told("lock `b`").held(&[]).asked([ACQUIRE, ACQUIRE, RELEASE.about(A)]);
}

/// By the server's word: the call does not wait for the next lock.
#[test]
fn a_loss_ends_the_wait_for_the_next_lock_at_once() {
    let s = threads().acquire().says([got(1), got(2), rank(0)]).x().locks_all(&[A, B, C]).forget_asked();
    s.b().loses(Taken).x().lost(Taken).after(ms(0)).told("lock `b`").held(&[]).waiting(&[]);
    s.called(RELEASE.about(A), 1).called(WITHDRAW.about(C), 1).called(WITHDRAW.about(A), 0);
    s.called(RELEASE.about(C), 0);
}

/// The thread of the last grant is the first to see it.
#[test]
fn a_lease_that_ends_during_the_last_ask_is_a_loss() {
    unwatched().b().takes(30 * S).x().locks_all(&[A, B]).lost(NotRenewed).told("lock `a`").held(&[]);
}

#[test]
fn a_shutdown_ends_the_call_and_its_holds() {
    let s = threads().acquire().says([got(1), rank(0)]).x().locks_all(&[A, B]).y().shuts_down().done();
    s.x().fails(Shutdown).held(&[]).waiting(&[]).claims(0);
}

#[test]
fn a_lease_that_ends_ends_the_wait_for_the_next_lock() {
    let world = World::new();
    let (client, store) = (world.client.clone(), world.store.clone());
    let (lost, took) = world.run(move || {
        let outer = client.fair_lock("a").unwrap().fixed_lease(5 * S).lock().unwrap();
        store.plan().acquire.push_back(queued(0));
        let lost = client.lock_all(&["a", "b"]).map(drop);
        assert!(outer.is_lost());
        lost
    });
    assert!(matches!(lost, Err(Error::Lost(lost)) if lost.cause == LostCause::LeaseOver));
    assert!(took <= 5 * S, "{took:?}");
    assert!(world.client.held().is_empty() && world.client.waiting().is_empty());
}

#[test]
fn names_are_sorted_by_bytes_and_doubles_are_one() {
    let world = World::new();
    let guard = world.client.lock_all(&["b", "a:10", "Z", "a:9", "b", "é", "z"]).unwrap();
    let sorted = ["Z", "a:10", "a:9", "b", "z", "é"];
    assert_eq!(guard.names().collect::<Vec<_>>(), sorted);
    assert_eq!(asked(&world), each(Op::Acquire, &sorted));
    for (name, token) in sorted.iter().zip(1001..) {
        assert_eq!(guard.token(name), Some(FencingToken::new(token)));
    }
    assert_eq!(guard.token("y"), None);
    guard.unlock().unwrap();
    assert_eq!(asked(&world), each(Op::Release, &["é", "z", "b", "a:9", "a:10", "Z"]), "the last one first");
    assert!(world.client.held().is_empty());
}

/// A list without names and a wrong name are errors before anything is asked.
#[test]
fn an_empty_list_and_a_wrong_name_are_errors_at_once() {
    let world = World::new();
    let none: [&str; 0] = [];
    let refused = world.client.lock_all(&none).unwrap_err();
    assert!(
        matches!(&refused, Error::InvalidConfig { reason, .. } if reason.contains("no names")),
        "{refused}"
    );
    assert!(matches!(world.client.try_lock_all(&["a", ""]), Err(Error::InvalidName { .. })));
    assert!(world.store.asked().is_empty());
    world.client.shutdown().unwrap();
    assert!(matches!(world.client.lock_all(&["a"]), Err(Error::Shutdown { .. })));
}

/// What is held is entered again and one that is not comes after it.
#[test]
fn what_is_held_is_entered_again() {
    let world = World::new();
    let fair = |name: &str| world.client.fair_lock(name).unwrap();
    let outer = [fair("a").lock().unwrap(), fair("c").lock().unwrap()];
    world.store.asked();
    for wrong in [&["b", "c"][..], &["a", "b", "c"], &["0", "a"]] {
        let Err(Error::Misuse { lock, reason }) = world.client.try_lock_all(wrong) else {
            panic!("{wrong:?}")
        };
        let held = if lock.as_str() == "b" { "c" } else { "a" };
        assert!(
            reason.contains(&format!("holds `{held}` already")) && ["b", "0"].contains(&lock.as_str()),
            "{lock}: {reason}"
        );
    }
    assert!(world.store.asked().is_empty() && fair("a").hold_count() == 1);
    let guard = world.client.lock_all(&["d", "c", "a"]).unwrap();
    assert_eq!(guard.token("c"), Some(outer[1].token()));
    assert_eq!(["a", "c", "d"].map(|name| fair(name).hold_count()), [2, 2, 1]);
    guard.unlock().unwrap();
    assert_eq!(["a", "c", "d"].map(|name| fair(name).hold_count()), [1, 1, 0]);
    // Another owner's holds are no concern of this thread.
    let _theirs = world.lock("z").lock().unwrap();
    world.store.plan().acquire.extend([granted(2000), busy()]);
    assert!(matches!(world.client.try_lock_all(&["y", "z"]), Ok(TryLock::Busy(_))));
}

#[test]
fn a_panic_in_the_middle_gives_back_what_is_held() {
    let world = World::new();
    world.store.plan().acquire.push_back(granted(1));
    let client = world.client.clone();
    let outer = world.client.fair_lock("a").unwrap().lock().unwrap();
    world.store.panic_next(Op::Acquire, 1);
    let panicked = std::panic::catch_unwind(move || client.lock_all(&["a", "b"]).map(drop));
    assert!(panicked.is_err());
    assert_eq!(world.client.fair_lock("a").unwrap().hold_count(), 1, "that of the outer guard");
    outer.unlock().unwrap();
    assert!(world.client.held().is_empty());
}

/// The first loss is the guard's, whichever it is.
#[test]
fn the_guard_is_lost_with_the_first_of_its_holds() {
    let world = World::new();
    let guard = world.client.lock_all(&["a", "b", "c"]).unwrap();
    let (lost, other_end) = (guard.lost().clone(), guard.lost().clone());
    assert!(guard.check().is_ok() && !guard.is_lost() && guard.valid_for() > LEASE / 2);
    for (name, cause) in [("c", LostCause::Taken), ("a", LostCause::NotRenewed)] {
        world.shared.ledger.lose(&world.claim(name), cause);
        assert!(guard.is_lost() && guard.valid_for() == ms(0));
    }
    assert_eq!(lost.try_recv().unwrap().lock.as_str(), "c");
    assert_eq!(other_end.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected), "one message");
    assert!(matches!(guard.check(), Err(Error::Lost(lost)) if lost.lock.as_str() == "a"));
    assert!(matches!(guard.renew(), Err(Error::Lost(_))));
    assert!(world.store.times(Op::Renew).is_empty());
    // Each is tried, and the first error in the order of release is told.
    assert!(matches!(guard.unlock(), Err(Error::Lost(lost)) if lost.lock.as_str() == "c"));
    world.settle();
    assert_eq!(world.store.calls_about("b", Op::Release), 1);
}

/// An outer guard goes on with the hold, so the claim's end does not close the channel.
#[test]
fn the_channel_of_a_guard_that_is_over_is_closed() {
    let world = World::new();
    let _outer = world.client.fair_lock("a").unwrap().lock().unwrap();
    for _ in 0..3 {
        let guard = world.client.lock_all(&["a", "b"]).unwrap();
        let lost = guard.lost().clone();
        drop(guard);
        assert_eq!(lost.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }
    let guard = world.client.lock_all(&["a"]).unwrap();
    world.shared.ledger.lose(&world.claim("a"), LostCause::Taken);
    assert_eq!(guard.lost().try_recv().unwrap().cause, LostCause::Taken);
}

#[test]
fn one_call_renews_all_holds_and_the_least_certain_counts() {
    let world = World::new();
    let guard = world.client.lock_all(&["a", "b", "c"]).unwrap();
    world.clock.advance(5 * S);
    let before = guard.valid_for();
    world.store.asked();
    assert_eq!(guard.renew().unwrap(), before + 5 * S);
    let [renewal] = &world.store.asked()[..] else { panic!("one call") };
    assert_eq!((renewal.op, renewal.number), (Op::Renew, 3));
    // An error of one does not keep the others from being renewed.
    world.clock.advance(S);
    world.store.plan().renew.extend([down(), Ok(Renewal::Renewed), Ok(Renewal::Lost)]);
    let Err(Error::Unavailable { lock, .. }) = guard.renew() else { panic!("it was renewed") };
    assert_eq!(lock, Some(LockName::new("a").unwrap()));
    assert_eq!(guard.lost().try_recv().unwrap().lock.as_str(), "c");
    assert_eq!(world.client.stats().renewals, 4);
}

#[test]
fn an_unlock_tries_all_and_tells_the_first_error() {
    let world = World::without_watchdog();
    let guard = world.client.lock_all(&["a", "b", "c"]).unwrap();
    world.store.asked();
    world.store.plan().release.extend([Ok(Released::NotHeld), denied()]);
    assert!(matches!(guard.unlock(), Err(Error::Lost(lost)) if lost.lock.as_str() == "c"));
    assert_eq!(asked(&world)[..3], each(Op::Release, &["c", "b", "a"]));
}

/// The server is slow to hear of the others, and does not answer renewals.
#[test]
fn of_several_locks_none_is_lost_that_was_certain_at_the_unlock() {
    for unlocks in [true, false] {
        let world = World::new();
        let (client, store) = (world.client.clone(), world.store.clone());
        let (unlocked, took) = world.run(move || {
            let guard = client.lock_all(&["a", "b"]).unwrap();
            store.take_down(Op::Renew);
            store.delay(Op::Release, LEASE);
            if unlocks {
                return guard.unlock();
            }
            drop(guard);
            Ok(())
        });
        assert!(unlocked.is_ok() && took == LEASE, "{unlocked:?} after {took:?}");
        assert_eq!(world.client.stats().lost, 0);
    }
}

/// The watchdog tells those that the panic kept from being told, and repeats that of the panic.
#[test]
fn a_panic_in_one_release_keeps_no_other_from_being_told() {
    let world = World::new();
    let client = world.client.clone();
    world.store.panic_next(Op::Release, 1);
    let guard = client.lock_all(&["a", "b", "c"]).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guard.unlock())).is_err());
    world.clock.advance(S);
    let releases = ["a", "b", "c"].map(|name| world.store.calls_about(name, Op::Release));
    assert_eq!((releases, world.shared.backlog.len()), ([1, 1, 2], 0));
}

#[test]
fn an_outage_costs_an_unlock_one_limit_and_a_drop_nothing() {
    for unlocks in [true, false] {
        let world = World::new();
        let (client, store) = (world.client.clone(), world.store.clone());
        let (unlocked, took) = world.run(move || {
            let guard = client.lock_all(&["a", "b", "c"]).unwrap();
            store.take_down(Op::Release);
            if unlocks {
                return guard.unlock();
            }
            drop(guard);
            Ok(())
        });
        if unlocks {
            assert!(
                matches!(unlocked, Err(Error::Unavailable { lock: Some(lock), .. }) if lock.as_str() == "c")
            );
            assert!(took >= OUTAGE - S && took < OUTAGE, "{took:?}");
        } else {
            assert_eq!(took, ms(0));
        }
        assert!(["a", "b", "c"].iter().all(|name| world.store.calls_about(name, Op::Release) > 0));
        world.store.bring_up(Op::Release);
        world.clock.advance(2 * S);
        assert_eq!(world.shared.backlog.len(), 0, "told in the background");
        assert!(!world.shared.ledger.registry.has(|_| true), "nothing is left");
    }
}
