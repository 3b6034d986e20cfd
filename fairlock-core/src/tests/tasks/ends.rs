//! The end of a client that tasks use.

use std::sync::Arc;

use super::super::scene::{Scene, TASKS, scenes};
use super::super::store::{Op, down, granted, queued};
use super::super::support::{OUTAGE, S, World, ms};
use super::is_by_tasks;
use crate::chores::Duty;
use crate::errands::Errand;

scenes! {
    fn a_shutdown_ends_waits_and_holds_of_tasks_and_leaves_nothing() {
        TASKS "a locks gets 1001; a listens; acquire says rank/0; b locks; c locks; d is-cancelled; x shuts-down done
        b fails Shutdown; a lost Shutdown; d locks at-once fails Shutdown; c drops; a drops; called release 2
        called withdraw 1; claims 0; waiting nobody"
    }

    /// A task whose grant was not taken looks again after the shutdown.
    fn a_grant_that_a_shutdown_has_taken_back_is_no_guard() {
        TASKS "a locks; x shuts-down done; a polls fails Shutdown"
    }

    fn an_unlock_that_a_shutdown_could_not_tell_the_server_says_so() {
        TASKS "a locks; release is-down; a unlocks; x shuts-down-within 1s fails Unsettled 1; a fails Shutdown"
    }

    fn an_unlock_whose_release_is_refused_at_the_end_says_so() {
        TASKS "a locks gets 1001; blocks takes 1s; blocks locks; release says denied; a unlocks
        x shuts-down fails Unsettled 1; a fails Denied; blocks fails Shutdown"
    }

    fn a_release_that_is_given_up_says_why() {
        TASKS "a locks; release says down denied; a unlocks fails Denied"
    }

    fn a_grant_that_a_shutdown_finds_for_a_task_is_released() {
        TASKS "acquire says rank/0; a locks; withdraw says got/77; x shuts-down done; a fails Shutdown
        asked acquire withdraw release/77"
    }
}

/// It waits for the call that is under way, which may have been granted its lock.
#[test]
fn what_tasks_want_when_the_client_ends_is_settled() {
    let mut scene = Scene::of(&TASKS);
    scene.play(
        "a locks; acquire says rank/0; b locks; c takes 1s; c locks; a unlocks; b drops; d locks; x shuts-down done 1s
        a done; c fails Shutdown; d fails Shutdown; called release a 1; called withdraw b 1; called withdraw c 1..9
        called acquire d 0",
    );
    assert!(scene.world.shared.errands.take_client().is_none());
}

/// The thread for tasks ends the client, and waits for the server.
#[test]
fn a_task_that_drops_the_last_handle_asks_no_server() {
    let world = World::new();
    let guard = world.locked("last");
    world.store.plan().acquire.push_back(queued(0));
    let waits = world.locking("waits");
    let (store, clock, gone) = world.without_handles();
    store.delay(Op::Release, S);
    drop(guard);
    drop(waits);
    clock.advance(2 * S);
    let asked = store.asked();
    assert!(asked.iter().all(is_by_tasks) && asked.len() == 4, "{asked:?}");
    assert!(gone.upgrade().is_none(), "nothing keeps the client");
}

/// An attempt without an answer may still arrive.
#[test]
fn a_task_that_drops_the_last_handle_leaves_the_last_attempts_to_a_thread() {
    let world = World::with_late_attempts(30 * S);
    let lock = world.async_lock("left");
    world.store.plan().acquire.extend([down(), granted(5000)]);
    drop(world.locked("left"));
    world.settle();
    let (store, clock, _) = world.without_handles();
    assert_eq!(store.ops(), [Op::Acquire, Op::Acquire, Op::Release]);
    drop(lock);
    clock.advance(ms(0));
    let asked = store.asked();
    let by = asked.iter().map(|asked| (asked.op, asked.by.as_deref())).collect::<Vec<_>>();
    assert_eq!(by, [(Op::Withdraw, Some("fairlock-end"))]);
}

#[test]
fn the_thread_for_tasks_ends_with_the_client() {
    let world = World::new();
    let guard = world.locked("ends");
    let (_, clock, gone) = world.without_handles();
    clock.advance(60 * S);
    guard.check().unwrap();
    drop(guard);
    clock.advance(OUTAGE);
    assert!(gone.upgrade().is_none());
}

/// A task gives its guard up while the client ends, and is too late to be settled.
#[test]
fn an_errand_after_the_end_does_not_keep_the_client() {
    let mut scene = Scene::of(&TASKS);
    scene.play("a locks gets 1001");
    let (claim, shared) = (scene.world.claim("a"), Arc::clone(&scene.world.shared));
    scene.play("x shuts-down done");
    let world = &scene.world;
    world.shared.errands.add(&claim, Errand::Tell(Duty::Release), shared);
    world.shared.errands.added(&world.shared.timers, world.clock.now());
    assert!(world.shared.errands.take_client().is_none());
}
