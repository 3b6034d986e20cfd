//! A backend that panics in a caller's call leaves nothing of that call behind: no place, no hold, no claim that its owner waits for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::store::{Op, busy, queued};
use super::support::{S, World};
use crate::{Lock, Owner};

/// The next call of this kind panics, and `call` with it; a second later the watchdog has told the server.
fn panics<T>(world: &World, op: Op, call: impl FnOnce() -> T) {
    world.store.panic_next(op, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err(), "{op:?}");
    world.clock.advance(S);
    assert_eq!(world.shared.backlog.len(), 0, "{op:?}");
}

fn calls(world: &World) -> [usize; 2] {
    [Op::Withdraw, Op::Release].map(|op| world.store.calls_about("a", op))
}

fn is_free(world: &World, lock: &Lock<Owner>) -> bool {
    let lock = lock.clone();
    matches!(world.run(move || lock.try_lock().map(|tried| tried.granted().is_some())).0, Ok(true))
}

#[test]
fn an_ask_that_panics_is_withdrawn() {
    let asks: [fn(&Lock<Owner>); 3] = [
        |lock| drop(lock.lock()),
        |lock| drop(lock.try_lock_for(Duration::from_secs(1))),
        |lock| drop(lock.request()),
    ];
    for ask in asks {
        let world = World::new();
        let lock = world.lock("a");
        panics(&world, Op::Acquire, || ask(&lock));
        assert_eq!((calls(&world), world.client.waiting().len()), ([1, 0], 0));
        assert!(is_free(&world, &lock), "to its owner");
    }
}

/// The second ask of a request panics in a wait for it, which has used the request up.
#[test]
fn a_wait_for_a_request_that_panics_is_withdrawn() {
    let world = World::without_watchdog();
    let request = world.in_queue("a");
    world.recheck(&world.claim("a"));
    world.store.panic_next(Op::Acquire, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| request.wait().map(drop))).is_err());
    assert_eq!((world.client.waiting().len(), world.shared.backlog.len()), (0, 1));
}

/// Another caller of the owner waits for the same claim, which goes on for that caller alone.
#[test]
fn a_panic_of_one_caller_leaves_the_claim_to_the_other() {
    let world = World::new();
    let lock = world.lock("a");
    world.store.plan().acquire.push_back(queued(0));
    let request = lock.request().unwrap();
    // The caller attends to the claim before the wake-up: so it asks, and not the watchdog.
    let caller = world.begin(move || catch_unwind(AssertUnwindSafe(|| lock.lock().map(drop))).is_err());
    world.store.panic_next(Op::Acquire, 1);
    world.store.plan().acquire.push_back(busy()); // what the watchdog hears afterwards
    world.recheck(&world.claim("a"));
    assert!(world.finish(&caller).0);
    world.clock.advance(S);
    assert_eq!(world.shared.backlog.len(), 0);
    assert_eq!((calls(&world), world.client.waiting().len()), ([0, 0], 1));
    world.push(&world.claim("a"), 7);
    assert!(world.run(move || request.wait().and_then(|guard| guard.unlock())).0.is_ok());
    assert_eq!(calls(&world), [0, 1], "one hold");
}
