//! Tasks on a store that does not block: they ask it themselves, in the poll and in the drop.

use std::task::Poll;

use super::super::scene::{QUICK_TASKS, Scene, scenes};
use super::super::store::Op;
use super::super::support::{S, World};
use super::{Polled, is_by_tasks};

scenes! {
    fn the_first_poll_asks_and_has_a_free_lock() {
        QUICK_TASKS "a locks at-once gets 1001; b tries at-once gets 1002; c tries-for 5s at-once gets 1003; asked acquire*3"
    }

    fn an_unlock_and_a_drop_tell_the_store_before_they_return() {
        QUICK_TASKS "a locks at-once gets 1001; b locks at-once gets 1002; asked ...; a unlocks at-once done; b drops
        asked release/1001@0s release/1002@0s; claims 0"
    }

    fn a_future_that_is_dropped_leaves_the_line_at_once() {
        QUICK_TASKS "acquire says rank/0; a locks; a drops; asked acquire withdraw@0s; claims 0"
    }

    fn a_busy_lock_is_told_by_the_first_poll() {
        QUICK_TASKS "acquire says busy; a tries at-once is-busy; claims 0; stats holds 0"
    }

    /// No other thread asks for it.
    fn a_wake_up_to_ask_again_is_followed_on_its_own_thread() {
        QUICK_TASKS "a is plain; acquire says busy*2; a locks; a is-woken; a pending; a is-woken; a gets 1001
        asked acquire@0s acquire@0s acquire@0s; held a"
    }

    fn an_ask_without_an_answer_is_repeated_by_the_watchdog() {
        QUICK_TASKS "acquire says down*2; a locks; a gets 1001 0s..100ms; asked acquire acquire!dog acquire!dog"
    }

    fn an_ask_after_a_wake_up_without_an_answer_is_repeated_by_the_watchdog() {
        QUICK_TASKS "a is plain; acquire says busy down; a locks; a is-woken; a gets 1001 0s..100ms
        asked acquire acquire acquire!dog"
    }

    fn a_release_without_an_answer_is_repeated_by_the_watchdog() {
        QUICK_TASKS "a locks at-once gets 1001; release says down*2; a unlocks done 0s..100ms
        asked acquire release release!dog release!dog"
    }

    fn a_withdrawal_without_an_answer_is_repeated_by_the_watchdog() {
        QUICK_TASKS "acquire says rank/0; withdraw says down; a locks; a drops; pass 1s; asked acquire withdraw withdraw!dog
        claims 0"
    }

    fn a_store_that_fails_is_an_error_after_the_same_attempts() {
        QUICK_TASKS "acquire is-down; a tries fails Unavailable 0s..59ms; b locks fails Unavailable 10s"
    }

    fn an_unlock_says_at_once_that_the_hold_was_lost() {
        QUICK_TASKS "a locks at-once gets 1001; release says not-held; a unlocks at-once lost Taken; stats lost 1"
    }

    /// The watchdog has asked, and a push was quicker. Its ask must not be carried out after the release.
    fn a_release_goes_after_an_ask_of_the_watchdog_that_is_under_way() {
        QUICK_TASKS "acquire says rank/0/1s rank/0; acquire takes 0s; acquire takes 1s; a locks; pass 1500ms; a is-pushed 9
        a gets 9; asked acquire acquire!dog; a drops; asked nothing; pass 1s; asked release!dog"
    }

    fn after_the_end_of_the_client_nothing_is_asked() {
        QUICK_TASKS "a locks at-once gets 1001; acquire says rank/0; b locks; c is-cancelled; x shuts-down done; b fails Shutdown; asked ...; a drops
        c locks at-once fails Shutdown; asked nothing; claims 0"
    }

    fn a_drain_ends_waits_and_lets_holders_go_on() {
        QUICK_TASKS "a locks at-once gets 1001; acquire says rank/0; b locks; x drains 20s; b fails Shutdown; a check ok; a unlocks at-once done
        x drained nobody 0s; claims 0"
    }
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
    let scene = Scene::of(&QUICK_TASKS);
    let world = &scene.world;
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
    assert_eq!((world.store.calls_about("releases", Op::Release), world.shared.chores.len()), (2, 0));
}
