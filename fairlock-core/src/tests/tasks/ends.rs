//! The end of a client that tasks use.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use super::super::scene::*;
use super::super::store::{Op, down, granted, queued};
use super::super::support::{OUTAGE, S, World, ms};
use super::is_by_tasks;
use crate::backlog::{Cleanup, FirstAttempt};

#[test]
fn a_shutdown_ends_waits_and_holds_of_tasks_and_leaves_nothing() {
    let s = tasks().a().locks().gets(1001).listens().acquire().says(rank(0)).b().locks().c().locks();
    s.d().is_cancelled().x().shuts_down().done().b().fails(Shutdown).a().lost(LostCause::Shutdown);
    s.d().locks().at_once().fails(Shutdown).c().drops().a().drops().called(RELEASE, 2).called(WITHDRAW, 1);
    s.claims(0).waiting(&[]);
}

/// A task whose grant was not taken looks again after the shutdown.
#[test]
fn a_grant_that_a_shutdown_has_taken_back_is_no_guard() {
    tasks().a().locks().x().shuts_down().done().a().polls().fails(Shutdown);
}

#[test]
fn an_unlock_that_a_shutdown_could_not_tell_the_server_says_so() {
    let s = tasks().a().locks().release().is_down().a().unlocks();
    s.x().shuts_down_within(S).fails(UnsettledOf(1)).a().fails(Shutdown);
}

#[test]
fn an_unlock_whose_release_is_refused_at_the_end_says_so() {
    let s = tasks().a().locks().gets(1001).acquire().says(rank(0)).by("blocks").locks();
    s.withdraw().takes(S).by("blocks").drops().a().is_denied().unlocks();
    s.x().shuts_down().a().fails(Denied).x().fails(UnsettledOf(1));
}

#[test]
fn a_release_whose_repeat_is_refused_says_why() {
    tasks().a().locks().release().says([DOWN, DENIED]).a().unlocks().fails(Denied);
}

#[test]
fn a_grant_that_a_shutdown_finds_for_a_task_is_released() {
    let s = tasks().acquire().says(rank(0)).a().locks().withdraw().says(got(77)).x().shuts_down().done();
    s.a().fails(Shutdown).asked([ACQUIRE, WITHDRAW, RELEASE.of(77)]);
}

/// It waits for the call that is under way, which may have been granted its lock.
#[test]
fn what_tasks_want_when_the_client_ends_is_settled() {
    let s = tasks();
    s.a().locks().acquire().says(rank(0)).b().locks().c().takes(S).locks().a().unlocks().b().drops();
    s.d().locks().x().shuts_down().done().after(S).a().done().c().fails(Shutdown).d().fails(Shutdown);
    s.called(RELEASE.about(A), 1).called(WITHDRAW.about(B), 1).called(WITHDRAW.about(C), 1..=9);
    s.called(ACQUIRE.about(D), 0);
    assert!(s.shared.first_attempts.take_client().is_none());
}

/// A thread for tasks ends the client, and waits for the server.
#[test]
fn a_task_that_drops_the_last_handle_asks_no_server() {
    let world = World::new();
    let guard = world.locked("last");
    world.store.plan().acquire.push_back(queued(0));
    let waits = world.locking("waits");
    let (store, clock, gone) = world.without_handles();
    store.delay(Op::Release, S);
    let drops = thread::spawn(move || drop((guard, waits)));
    clock.wait_for_waiters(1); // for a moment, no longer
    clock.advance(2 * S);
    drops.join().unwrap();
    let asked = store.asked();
    assert!(asked.iter().all(is_by_tasks) && asked.len() == 4, "{asked:?}");
    assert!(gone.upgrade().is_none(), "nothing keeps the client");
}

/// A program ends right after its `main` has dropped the guard and the client. The store answers once the drop waits.
#[test]
fn the_drop_of_the_last_handle_waits_for_the_release() {
    let world = World::new();
    let guard = world.locked("main");
    let (store, clock, _) = world.without_handles();
    store.asked();
    let (silent, (tells, told)) = (store.clone(), channel());
    thread::spawn(move || {
        let silence = silent.silence();
        tells.send("silent").unwrap();
        clock.wait_for_waiters(1);
        tells.send("answers").unwrap();
        drop(silence);
    });
    assert_eq!(told.recv(), Ok("silent"));
    drop(guard);
    assert_eq!((told.try_recv(), store.ops()), (Ok("answers"), vec![Op::Release]));
}

/// A task that drops the last handle leaves the last attempts to a thread. An attempt without an answer may still arrive.
#[test]
fn a_task_that_drops_the_last_handle_leaves_a_thread() {
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
fn an_attempt_after_the_end_does_not_keep_the_client() {
    let s = tasks().a().locks().gets(1001);
    let (claim, shared) = (s.claim("a"), Arc::clone(&s.shared));
    s.x().shuts_down().done();
    let wakes = s.shared.first_attempts.add(&claim, FirstAttempt::CleanUp(Cleanup::Release), shared);
    s.shared.first_attempts.added(&s.shared.timers, s.clock.now(), wakes);
    assert!(s.shared.first_attempts.take_client().is_none());
}
