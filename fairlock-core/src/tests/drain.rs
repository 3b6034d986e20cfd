//! An orderly end: no more grants, waits end, holders finish.

use std::time::Duration;

use crossbeam_channel::bounded;
use log::Level;

use super::logger::lines_about;
use super::scene::*;
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
    assert!(world.shared.timers.is_gone() && world.shared.backlog.len() == 0);
}

fn assert_shut_down<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Shutdown { lock: Some(_) })));
}

#[test]
fn a_holder_finishes_and_nothing_is_lost() {
    let s = threads();
    s.client.on_lost(|lost| panic!("{lost}"));
    s.by("drain:finishes").locks().x().drains(20 * S).pass(ms(300)).by("drain:finishes").is_held();
    s.asked(ACQUIRE).by("drain:finishes").unlocks().done().x().drained(&[]).after(ms(300)).in_order();
    s.asked(RELEASE);
    for about in ["drain:finishes", s.label()] {
        assert!(lines_about(about).iter().all(|(level, _)| *level > Level::Warn));
    }
}

#[test]
fn a_hold_that_lasts_too_long_is_cut_off_and_named() {
    let s = threads().by("drain:long").locks().gets(1001).b().locks().x().drains(ms(400)).pass(ms(100));
    s.b().drops().x().drained(&[("drain:long", 1001, ms(400))]).after(ms(400));
    s.by("drain:long").hears(LostCause::Shutdown).stats(|s| s.lost, 1);
    let warned = lines_about("lock `drain:long`");
    assert_eq!(warned.iter().filter(|(level, _)| *level == Level::Warn).count(), 1, "{warned:?}");
}

#[test]
fn a_client_that_holds_nothing_is_drained_at_once() {
    threads().x().drains(EVER).drained(&[]).after(ms(0)).in_order().asked_nothing();
}

#[test]
fn a_hold_is_renewed_for_as_long_as_the_drain_lasts() {
    let s = threads().a().locks().x().drains(EVER).pass(90 * S).a().is_held().drops();
    s.x().drained(&[]).after(90 * S).in_order();
}

#[test]
fn waits_and_requests_end_at_once_and_leave_the_queue() {
    let s = threads().a().locks().acquire().says([rank(0), rank(1), rank(2)]).b().on(A).locks();
    s.c().on(A).tries_for(60 * S).d().on(A).requests().x().drains(20 * S).b().fails(Shutdown);
    s.c().fails(Shutdown).d().decided().waits().fails(Shutdown).at(WITHDRAW, [ms(0), ms(0), ms(0)]);
    s.waiting(&[]).a().drops().x().drained(&[]).in_order();
}

/// A request that was granted is a hold until its guard is given back.
#[test]
fn a_granted_request_is_a_hold_until_it_is_given_back() {
    let s = threads().a().requests().b().requests().x().drains(20 * S).pass(S).b().drops();
    s.a().waits().gets(1001).pass(S).a().drops().x().drained(&[]).after(2 * S).in_order();
}

#[test]
fn a_leaked_hold_counts_until_it_is_unlocked() {
    let s = threads().a().locks().leaks().x().drains(20 * S).pass(S).a().unleaks().done();
    s.x().drained(&[]).after(S).in_order();
}

#[test]
fn a_hold_that_is_lost_meanwhile_is_not_waited_for() {
    let s = threads().a().locks().x().drains(20 * S).a().is_taken().x().drained(&[]);
    s.a().unlocks().lost(Taken);
}

#[test]
fn a_second_drain_waits_as_well_and_returns_the_same() {
    let s = threads().a().locks().x().drains(20 * S).y().drains(2 * S).release().takes(S);
    // when the client has ended
    s.y().drained(&[(A, 1001, 2 * S)]).after(3 * S).x().drained(&[(A, 1001, 2 * S)]).after(3 * S);
    s.x().drains(S).drained(&[(A, 1001, 2 * S)]);
}

#[test]
fn a_shutdown_ends_the_wait() {
    let s = threads().a().locks().x().drains(EVER).pass(S).y().shuts_down().done();
    s.x().drained(&[(A, 1001, S)]).after(S).a().is_lost();
}

/// A drain does not wait longer than the outage limit for the shutdown of another thread.
#[test]
fn a_drain_waits_the_outage_limit_for_another_shutdown() {
    let s = threads().a().locks().release().is_down().y().shuts_down_within(60 * S);
    s.x().drains(S).fails(ShutdownOfAll).after(10 * S).y().fails(UnsettledOf(1));
}

/// It could make the place anew after the withdrawal. The grant comes too late.
#[test]
fn a_request_is_withdrawn_after_the_ask_that_is_under_way() {
    let s = threads().acquire().takes(S).a().locks().withdraw().says(got(77));
    s.x().drains(20 * S).drained(&[]).after(S).in_order().a().fails(Shutdown);
    s.asked_first([ACQUIRE.at(ms(0)), WITHDRAW.at(S), RELEASE.of(77).at(S)]);
}

/// An ask that takes longer than the drain is left to the shutdown.
#[test]
fn an_ask_longer_than_the_drain_is_the_shutdowns() {
    let s = threads().acquire().takes(3 * S).a().locks().x().drains(S).drained(&[]).after(3 * S).in_order();
    s.at(WITHDRAW, [3 * S]).a().fails(Shutdown);
}

/// An ask under way and a shutdown that ends the drain leave nothing.
#[test]
fn a_shutdown_ends_a_drain_that_waits_for_an_ask() {
    let s = threads().acquire().takes(3 * S).a().locks().x().drains(20 * S);
    s.y().shuts_down().done().after(3 * S).at(WITHDRAW, [3 * S]).x().drained(&[]).after(3 * S).in_order();
    s.a().fails(Shutdown);
}

/// A caller that waits for the end of an earlier hold learns of it at once.
#[test]
fn a_caller_that_settles_learns_of_a_drain_at_once() {
    let s = threads().a().locks().release().is_down().a().drops().locks().x().drains(20 * S);
    // until the server knows
    s.a().fails(Shutdown).after(ms(0)).pass(S).release().is_up().x().drained(&[]).after(S..=19 * S);
}

/// A server that does not answer is waited for as long as for holders and in a shutdown.
#[test]
fn a_silent_server_is_waited_for_in_drain_and_shutdown() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().is_down();
    s.x().drains(5 * S).fails(UnsettledOf(1)).after(14 * S).drains(S).fails(UnsettledOf(1)); // also later
    s.a().waits().fails(Shutdown);
}

/// The shutdown withdraws it at once.
#[test]
fn a_late_withdrawal_is_not_waited_for() {
    let s = late_by_owner().acquire().says([DOWN, rank(0)]).a().requests().pass(S).a().drops();
    s.called(WITHDRAW, 1).x().drains(20 * S).drained(&[]).after(ms(0)).in_order().called(WITHDRAW, 2);
}

/// Its time is over, and the withdrawal finds the grant.
#[test]
fn a_timed_wait_that_is_granted_as_it_ends_takes_no_lock() {
    let s = threads().acquire().says(rank(0)).withdraw().takes(ms(20)).withdraw().says(got(77));
    s.a().tries_for(S).pass(S).x().drains(20 * S).drained(&[]).after(ms(20)).in_order().a().is_busy();
    s.at(RELEASE, [ms(1020)]);
}

#[test]
fn tasks_that_wait_fail_and_tasks_that_hold_finish() {
    let s = tasks().a().locks().gets(1001).acquire().says(rank(0)).b().on(A).locks().x().drains(EVER);
    s.b().fails(Shutdown).c().tries().at_once().fails(Shutdown).called(ACQUIRE.about(C), 0).pass(60 * S);
    s.a().is_held().unlocks().x().drained(&[]).after(60 * S).in_order().a().done();
    s.called(WITHDRAW.about(A), 1);
}

/// A grant that no poll has taken is a hold until its future is dropped.
#[test]
fn a_grant_no_poll_took_is_a_hold_until_it_is_dropped() {
    let s = tasks().a().locks().b().locks().x().drains(20 * S).pass(S).a().drops().b().gets(1002).pass(S);
    s.b().drops().x().drained(&[]).after(2 * S).in_order();
}

/// Its first attempt is in the queue, or its attempt under way.
#[test]
fn a_task_that_has_not_been_asked_for_is_never_asked_for() {
    let s = tasks().a().takes(S).locks().b().locks().x().drains(20 * S).drained(&[]).after(S).in_order();
    s.a().fails(Shutdown).b().fails(Shutdown).called(ACQUIRE.about(A), 1).called(ACQUIRE.about(B), 0);
    s.called(WITHDRAW.about(A), 1..=9);
}

#[test]
fn a_request_does_not_wait_for_the_asks_of_others() {
    let s = threads().acquire().says(rank(0).times(10));
    (0..10).for_each(|n| _ = s.by(&format!("quiet {n}")).requests());
    s.acquire().takes(S).a().locks().x().drains(20 * S).drained(&[]).after(S).in_order();
    s.at_first(WITHDRAW, [ms(0); 10]).a().fails(Shutdown);
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
    let units = world.begin(move || client.lock_all(&["all:1", "all:2"]).map(|_| ()));
    assert_eq!(world.client.held().len(), 1);
    assert_in_order(&world, &drain(&world, 20 * S), 2 * S);
    assert_shut_down(world.finish(&units).0);
    assert_eq!(world.store.calls_about("all:1", Op::Release), 1);
    let withdrawn = world.store.calls_about("all:2", Op::Withdraw);
    assert!(withdrawn >= 1, "maybe once more, since the answer tells of a grant");
}

/// The loss itself may end the drain, which then ends the callbacks. They have a tenth of the outage limit in real time.
#[test]
fn the_callbacks_hear_of_a_loss_that_ends_the_drain() {
    for round in 0..200 {
        let world = World::with(1000 * S, crate::watchdog::THREADS.dog);
        let (told, hears) = bounded(1);
        world.client.on_lost(move |lost| told.send(lost.cause).unwrap());
        let _guard = world.lock("told").lock().unwrap();
        let drains = drain(&world, 20 * S);
        world.shared.ledger.lose(&world.claim("told"), LostCause::Taken);
        world.finish(&drains).0.unwrap();
        assert_eq!(hears.try_recv(), Ok(LostCause::Taken), "round {round}");
    }
}
