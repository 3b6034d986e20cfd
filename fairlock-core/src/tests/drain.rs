//! An orderly end: no more grants, waits end, holders finish.

use std::time::Duration;

use crossbeam_channel::bounded;
use log::Level;

use super::logger::lines_about;
use super::scene::{Scene, THREADS, play, scenes};
use super::store::Op;
use super::support::{Running, S, World, ms};
use crate::{Error, HeldLock, LostCause, Result, TryLock};

type Drained = Result<Vec<HeldLock>>;

fn drain(world: &World, at_most: Duration) -> Running<Drained> {
    let client = world.client.clone();
    world.begin(move || client.drain(at_most))
}

/// The drain ends in order, after this time.
fn assert_in_order(world: &World, drains: &Running<Drained>, took: Duration) {
    let (drained, took_so_long) = world.finish(drains);
    assert_eq!((drained.unwrap(), took_so_long), (vec![], took));
    assert_eq!(world.client.stats().lost, 0);
    assert!(world.client.held().is_empty() && world.client.waiting().is_empty());
    assert!(world.shared.timers.is_gone() && world.shared.chores.len() == 0);
}

fn assert_shut_down<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Shutdown { lock: Some(_) })));
}

#[test]
fn a_holder_finishes_and_nothing_is_lost() {
    let mut scene = Scene::of(&THREADS);
    scene.world.client.on_lost(|lost| panic!("{lost}"));
    scene.play("drain:finishes locks; x drains 20s; pass 300ms; drain:finishes is-held; asked acquire");
    scene.play("drain:finishes unlocks done; x drained nobody 300ms; in order; asked release");
    for about in ["drain:finishes", scene.world.label()] {
        assert!(lines_about(about).iter().all(|(level, _)| *level > Level::Warn));
    }
    scene.ends();
}

#[test]
fn a_hold_that_lasts_too_long_is_cut_off_and_named() {
    play(
        &THREADS,
        "drain:long locks gets 1001; b locks; x drains 400ms; pass 100ms; b drops
        x drained drain:long/1001/400ms 400ms; drain:long hears Shutdown; stats lost 1",
    );
    let warned = lines_about("lock `drain:long`");
    assert_eq!(warned.iter().filter(|(level, _)| *level == Level::Warn).count(), 1, "{warned:?}");
}

scenes! {
    fn a_client_that_holds_nothing_is_drained_at_once() {
        THREADS "x drains ever drained nobody 0s; in order; asked nothing"
    }

    fn a_hold_is_renewed_for_as_long_as_the_drain_lasts() {
        THREADS "a locks; x drains ever; pass 90s; a is-held; a drops; x drained nobody 90s; in order"
    }

    fn waits_and_requests_end_at_once_and_leave_the_line() {
        THREADS "a locks; acquire says rank/0 rank/1 rank/2; b@a locks; c@a tries-for 60s; d@a requests; x drains 20s
        b fails Shutdown; c fails Shutdown; d decided; d waits fails Shutdown; at withdraw 0s 0s 0s; waiting nobody
        a drops; x drained nobody; in order"
    }

    fn a_request_that_was_granted_is_a_hold_until_its_guard_is_given_back() {
        THREADS "a requests; b requests; x drains 20s; pass 1s; b drops; a waits gets 1001; pass 1s; a drops
        x drained nobody 2s; in order"
    }

    fn a_leaked_hold_counts_until_it_is_unlocked() {
        THREADS "a locks; a leaks; x drains 20s; pass 1s; a unleaks done; x drained nobody 1s; in order"
    }

    fn a_hold_that_is_lost_meanwhile_is_not_waited_for() {
        THREADS "a locks; x drains 20s; a is-taken; x drained nobody; a unlocks lost Taken"
    }

    fn a_second_drain_waits_as_well_and_returns_the_same() {
        THREADS "a locks; x drains 20s; y drains 2s; release takes 1s; y drained a/1001/2s 3s
        x drained a/1001/2s 3s (when the client has ended); x drains 1s drained a/1001/2s"
    }

    fn a_shutdown_ends_the_wait() {
        THREADS "a locks; x drains ever; pass 1s; y shuts-down done; x drained a/1001/1s 1s; a is-lost"
    }

    fn a_drain_does_not_wait_longer_than_the_outage_limit_for_the_shutdown_of_another_thread() {
        THREADS "a locks; release is-down; y shuts-down-within 60s; x drains 1s fails Shutdown all 10s
        y fails Unsettled 1"
    }

    /// It could make the place anew after the withdrawal. The grant comes too late.
    fn a_request_is_withdrawn_after_the_ask_that_is_under_way() {
        THREADS "acquire takes 1s; a locks; withdraw says got/77; x drains 20s drained nobody 1s; in order
        a fails Shutdown; asked acquire@0s withdraw@1s release/77@1s ..."
    }

    fn an_ask_that_takes_longer_than_the_drain_is_left_to_the_shutdown() {
        THREADS "acquire takes 3s; a locks; x drains 1s drained nobody 3s; in order; at withdraw 3s; a fails Shutdown"
    }

    fn an_ask_under_way_and_a_shutdown_that_ends_the_drain_leave_nothing() {
        THREADS "acquire takes 3s; a locks; x drains 20s; y shuts-down done 3s; at withdraw 3s
        x drained nobody 3s; in order; a fails Shutdown"
    }

    fn a_caller_that_waits_for_the_end_of_an_earlier_hold_learns_of_it_at_once() {
        THREADS "a locks; release is-down; a drops; a locks; x drains 20s; a fails Shutdown 0s; pass 1s; release is-up
        x drained nobody 1001ms..19s (until the server knows)"
    }

    fn a_server_that_does_not_answer_is_waited_for_as_long_as_for_holders_and_in_a_shutdown() {
        THREADS "acquire says rank/0; a requests; withdraw is-down; x drains 5s fails Unsettled 1 14s
        x drains 1s fails Unsettled 1 (also later); a waits fails Shutdown"
    }

    /// The shutdown withdraws it at once.
    fn a_late_withdrawal_is_not_waited_for() {
        LATE_BY_OWNER "acquire says down rank/0; a requests; pass 1s; a drops; called withdraw 1
        x drains 20s drained nobody 0s; in order; called withdraw 2"
    }

    /// Its time is over, and the withdrawal finds the grant.
    fn a_timed_wait_that_is_granted_as_it_ends_takes_no_lock() {
        THREADS "acquire says rank/0; withdraw takes 20ms; withdraw says got/77; a tries-for 1s; pass 1s
        x drains 20s drained nobody 20ms; in order; a is-busy; at release 1020ms"
    }

    fn tasks_that_wait_fail_and_tasks_that_hold_finish() {
        TASKS "a locks gets 1001; acquire says rank/0; b@a locks; x drains ever; b fails Shutdown
        c tries at-once fails Shutdown; called acquire c 0; pass 60s; a is-held; a unlocks; x drained nobody 60s
        in order; a done; called withdraw a 1"
    }

    fn a_grant_that_no_poll_has_taken_is_a_hold_until_its_future_is_dropped() {
        TASKS "a locks; b locks; x drains 20s; pass 1s; a drops; b gets 1002; pass 1s; b drops
        x drained nobody 2s; in order"
    }

    /// Its errand is in the queue, or its attempt under way.
    fn a_task_that_has_not_been_asked_for_is_never_asked_for() {
        TASKS "a takes 1s; a locks; b locks; x drains 20s drained nobody 1s; in order; a fails Shutdown
        b fails Shutdown; called acquire a 1; called acquire b 0; called withdraw a 1..9"
    }
}

#[test]
fn a_request_does_not_wait_for_the_asks_of_others() {
    let requests: String = (0..10).map(|n| format!("quiet{n} requests;")).collect();
    let at_once = "0s ".repeat(10);
    play(
        &THREADS,
        &format!(
            "acquire says rank/0*10; {requests} acquire takes 1s; a locks; x drains 20s drained nobody 1s
            in order; at withdraw {at_once} ...; a fails Shutdown"
        ),
    );
}

#[test]
fn nothing_new_begins_and_a_holder_may_enter_again_what_it_has() {
    let world = World::new();
    let (lock, owner) = (world.client.fair_lock("mine").unwrap(), world.client.new_owner());
    let mine = lock.owned_by(&owner).unwrap();
    let guard = mine.lock().unwrap();
    let drains = drain(&world, 20 * S);
    let again = mine.lock().unwrap();
    assert_eq!(again.token(), guard.token());
    drop(again);
    let TryLock::Granted(again) = mine.try_lock().unwrap() else { panic!("it is the holder's") };
    drop(again);
    drop(mine.request().unwrap());
    assert!(!guard.is_lost());
    // Other locks of the holder, and other owners.
    let other = world.client.fair_lock("other").unwrap().owned_by(&owner).unwrap();
    assert_shut_down(other.lock());
    assert_shut_down(other.try_lock());
    assert_shut_down(other.request());
    assert_shut_down(lock.try_lock_for(S));
    assert_shut_down(world.client.lock_all(&["mine", "other"]));
    assert_eq!(world.store.calls_about("other", Op::Acquire), 0);
    assert_eq!(world.store.times(Op::Release), []);
    drop(guard);
    assert_shut_down(mine.lock());
    assert_in_order(&world, &drains, ms(0));
}

#[test]
fn a_caller_of_lock_all_that_waits_gives_back_what_it_has() {
    let world = World::new();
    world.store.delay_about("all:2", 2 * S);
    let client = world.client.clone();
    let takes = world.begin(move || client.lock_all(&["all:1", "all:2"]).map(|_| ()));
    assert_eq!(world.client.held().len(), 1);
    assert_in_order(&world, &drain(&world, 20 * S), 2 * S);
    assert_shut_down(world.finish(&takes).0);
    assert_eq!(world.store.calls_about("all:1", Op::Release), 1);
    let withdrawn = world.store.calls_about("all:2", Op::Withdraw);
    assert!(withdrawn >= 1, "maybe once more, since the answer tells of a grant");
}

/// The loss itself may end the drain, which then ends the callbacks.
#[test]
fn the_callbacks_hear_of_a_loss_that_ends_the_drain() {
    for round in 0..200 {
        let world = World::new();
        let (told, hears) = bounded(1);
        world.client.on_lost(move |lost| told.send(lost.cause).unwrap());
        let _guard = world.lock("told").lock().unwrap();
        let drains = drain(&world, 20 * S);
        world.shared.ledger.lose(&world.claim("told"), LostCause::Taken);
        world.finish(&drains).0.unwrap();
        assert_eq!(hears.try_recv(), Ok(LostCause::Taken), "round {round}");
    }
}
