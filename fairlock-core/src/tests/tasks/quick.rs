//! Tasks on a store that does not block: they ask it themselves, in the poll and in the drop.

use std::task::Poll;

use super::super::scene::*;
use super::super::store::Op;
use super::super::support::{S, World};
use super::{Polled, is_by_tasks};

#[test]
fn the_first_poll_asks_and_has_a_free_lock() {
    let s = quick_tasks().a().locks().at_once().gets(1001).b().tries().at_once().gets(1002);
    s.c().tries_for(5 * S).at_once().gets(1003).asked(ACQUIRE.times(3));
}

#[test]
fn an_unlock_and_a_drop_tell_the_store_before_they_return() {
    let s = quick_tasks().a().locks().at_once().gets(1001).b().locks().at_once().gets(1002).forget_asked();
    s.a().unlocks().at_once().done().b().drops();
    s.asked([RELEASE.of(1001).at(ms(0)), RELEASE.of(1002).at(ms(0))]).claims(0);
}

#[test]
fn a_future_that_is_dropped_leaves_the_queue_at_once() {
    let s = quick_tasks().acquire().says(rank(0)).a().locks().drops().asked([ACQUIRE, WITHDRAW.at(ms(0))]);
    s.claims(0);
}

#[test]
fn a_busy_lock_is_told_by_the_first_poll() {
    let s = quick_tasks().acquire().says(BUSY).a().tries().at_once().is_busy().claims(0);
    s.stats(|s| s.holds.count, 0);
}

/// No other thread asks for it.
#[test]
fn a_wake_up_to_ask_again_is_followed_on_its_own_thread() {
    let s = quick_tasks().a().plain().acquire().says(BUSY.times(2)).a().locks().is_woken().pending();
    s.a().is_woken().gets(1001).asked([ACQUIRE.at(ms(0)), ACQUIRE.at(ms(0)), ACQUIRE.at(ms(0))]).held(&[A]);
}

#[test]
fn an_ask_without_an_answer_is_repeated_by_the_watchdog() {
    let s = quick_tasks().acquire().says(DOWN.times(2)).a().locks().gets(1001).after(ms(0)..=ms(100));
    s.asked([ACQUIRE, ACQUIRE.by_dog(), ACQUIRE.by_dog()]);
}

/// An ask after a wake up without an answer is repeated by the watchdog.
#[test]
fn an_unanswered_ask_after_a_wake_up_is_the_watchdogs() {
    let s = quick_tasks().a().plain().acquire().says([BUSY, DOWN]).a().locks().is_woken();
    s.a().gets(1001).after(ms(0)..=ms(100)).asked([ACQUIRE, ACQUIRE, ACQUIRE.by_dog()]);
}

#[test]
fn a_release_without_an_answer_is_repeated_by_the_watchdog() {
    let s = quick_tasks().a().locks().at_once().gets(1001).release().says(DOWN.times(2));
    s.a().unlocks().done().after(ms(0)..=ms(100));
    s.asked([ACQUIRE, RELEASE, RELEASE.by_dog(), RELEASE.by_dog()]);
}

#[test]
fn a_withdrawal_without_an_answer_is_repeated_by_the_watchdog() {
    let s = quick_tasks().acquire().says(rank(0)).withdraw().says(DOWN).a().locks().drops().pass(S);
    s.asked([ACQUIRE, WITHDRAW, WITHDRAW.by_dog()]).claims(0);
}

#[test]
fn a_store_that_fails_is_an_error_after_the_same_attempts() {
    let s = quick_tasks().acquire().is_down().a().tries().fails(Unavailable).after(ms(0)..=ms(59));
    s.b().locks().fails(Unavailable).after(10 * S);
}

#[test]
fn an_unlock_says_at_once_that_the_hold_was_lost() {
    let s = quick_tasks().a().locks().at_once().gets(1001).release().says(GONE);
    s.a().unlocks().at_once().lost(Taken).stats(|s| s.lost, 1);
}

/// A release goes after an ask of the watchdog that is under way. The watchdog has asked, and a push was quicker. Its ask must
/// not be carried out after the release.
#[test]
fn a_release_goes_after_an_ask_of_the_watchdog() {
    let s = quick_tasks().acquire().says([rank(0).time(S), rank(0)]).acquire().takes(ms(0));
    s.acquire().takes(S).a().locks().pass(ms(1500)).a().is_pushed(9).gets(9);
    s.asked([ACQUIRE, ACQUIRE.by_dog()]).a().drops().asked_nothing().pass(S).asked(RELEASE.by_dog());
}

#[test]
fn after_the_end_of_the_client_nothing_is_asked() {
    let s = quick_tasks().a().locks().at_once().gets(1001).acquire().says(rank(0)).b().locks();
    s.c().is_cancelled().x().shuts_down().done().b().fails(Shutdown).forget_asked().a().drops();
    s.c().locks().at_once().fails(Shutdown).asked_nothing().claims(0);
}

#[test]
fn a_drain_ends_waits_and_lets_holders_go_on() {
    let s = quick_tasks().a().locks().at_once().gets(1001).acquire().says(rank(0)).b().locks();
    s.x().drains(20 * S).b().fails(Shutdown).a().checks().unlocks().at_once().done();
    s.x().drained(&[]).after(ms(0)).claims(0);
}

/// As what the memory backend does while a delay is planned. The last one goes to the thread only because others are there.
#[test]
fn no_task_overtakes_what_the_thread_for_tasks_has_in_hand() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    let mut tasks: Vec<_> = ["first", "second"].map(|name| world.task(world.async_lock(name).lock())).into();
    world.settle();
    world.store.is_quick();
    let mut third = Polled::new(world.async_lock("third").lock());
    assert!(third.poll().is_pending(), "it would overtake the second");
    tasks.push(third);
    world.clock.advance(S);
    for task in tasks {
        drop(task.ended().unwrap()); // and releases it
    }
    let mut fourth = Polled::new(world.async_lock("fourth").lock());
    assert!(fourth.poll().is_ready(), "the thread has nothing left");
    let asked = world.store.asked();
    let locks: Vec<_> =
        asked.iter().filter(|asked| asked.op == Op::Acquire).map(|asked| &*asked.lock).collect();
    assert_eq!(locks, ["first", "second", "third", "fourth"]);
    let by_tasks: Vec<_> =
        asked.iter().filter(|asked| is_by_tasks(asked)).map(|asked| &*asked.lock).collect();
    assert_eq!(by_tasks, ["first", "second", "third"], "{asked:?}");
}

/// The claim is left to the watchdog, as one that no task takes: its hold ends with its lease.
#[test]
fn a_store_that_panics_in_a_poll_or_a_drop_leaves_nothing() {
    let world = quick_tasks();
    let panics = |op, act: &mut dyn FnMut()| {
        world.store.panic_next(op, 1);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_err();
    };
    panics(Op::Acquire, &mut || drop(Polled::new(world.async_lock("asks").lock()).poll()));
    let Poll::Ready(guard) = Polled::new(world.async_lock("releases").lock()).poll() else {
        panic!("it is free")
    };
    let mut guard = Some(guard.unwrap());
    panics(Op::Release, &mut || drop(guard.take()));
    world.clock.advance(70 * S);
    assert_eq!(world.shared.ledger.registry.all().len(), 0);
    assert_eq!((world.store.calls_about("releases", Op::Release), world.shared.backlog.len()), (2, 0));
}
