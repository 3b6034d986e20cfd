//! How tasks wait for a lock.

use std::time::Duration;

use super::super::scene::{Scene, TASKS, scenes};
use super::super::store::{Op, queued};
use super::super::support::{S, World, polled_once};
use crate::Error;

scenes! {
    fn a_task_that_asks_for_a_free_lock_is_woken_once_and_has_it() {
        TASKS "a locks gets 1001; a check ok; a is-held; a valid 29698ms; asked acquire!tasks; held a"
    }

    /// So there is no re-entry.
    fn each_wait_of_a_task_is_an_owner_of_its_own() {
        TASKS "a locks gets 1001; a' locks gets 1002; asked acquire acquire; held a a"
    }

    /// Ten places' times in line: heartbeats, wake-ups to ask again, and their answers.
    fn no_news_but_the_end_of_its_wait_wakes_a_task() {
        TASKS "acquire says rank/3 rank/2 rank/1; a locks; pass 50s; a is-woken; a is-woken; called renew 21..40
        called acquire 3; a pending; a is-pushed 9; a gets 9; pass 60s; a check ok"
    }

    fn a_future_that_is_dropped_leaves_the_line() {
        TASKS "acquire says rank/0; a locks; a drops; asked acquire withdraw; waiting nobody"
    }

    fn a_future_that_is_dropped_before_its_request_was_sent_leaves_no_trace() {
        TASKS "acquire takes 1s; a locks; b locks; b drops; waiting a; pass 2s; asked acquire; a gets 1001"
    }

    /// The withdrawal goes after the answer that may have made a place, or granted the lock.
    fn a_future_that_is_dropped_while_it_is_asked_for_is_withdrawn_after_that() {
        TASKS "acquire takes 1s; withdraw says got/1001; a locks; a drops; pass 2s; asked acquire withdraw release ...
        stats lost 0"
    }

    fn a_grant_that_no_poll_took_is_passed_on_when_the_future_is_dropped() {
        TASKS "a locks; a decided; held a; a drops; asked acquire release; held nobody; stats lost 0"
    }

    /// It does not get the hold that was lost. The server is told of the old one for good measure.
    fn a_task_that_comes_back_after_its_grant_has_ended_asks_anew() {
        TASKS "a locks; pass 60s; held nobody; stats lost 1; asked acquire renew*3; a polls pending
        a polls gets 1002; stats lost 1; asked release/1001 acquire"
    }

    /// As when the process stood still: no thread has seen the end yet.
    fn a_grant_that_ended_just_before_its_poll_is_not_taken() {
        UNWATCHED_TASKS "a locks; jump 31s; a polls pending; stats lost 1; a drops"
    }

    fn a_hold_that_was_taken_is_renewed_for_as_long_as_it_lasts() {
        TASKS "a locks; pass 29s; a polls gets 1001; pass 300s; a check ok"
    }

    fn a_wake_up_for_a_plain_lock_goes_on_when_a_task_leaves() {
        TASKS "a is plain; acquire says busy*2; a locks; b@a is plain; b locks; a drops; b gets 1001"
    }

    /// The server tells only the first of a client's waiters when the holder's lease ends.
    fn a_task_that_leaves_has_another_one_recheck_in_its_place() {
        TASKS "acquire says rank/0/1s rank/1; a locks; b@a locks; a drops; pass 1665ms; at renew 1s; b drops"
    }

    /// The heartbeat tells of the grant, as its message was lost.
    fn a_grant_that_a_heartbeat_finds_wakes_the_task() {
        TASKS "acquire says rank/0; a locks; renew says got/9; pass 1667ms; a gets 9"
    }

    /// It overtakes the answer that says "in line".
    fn a_push_before_the_answer_to_the_first_attempt_wakes_the_task_with_that_answer() {
        TASKS "acquire takes 1s; acquire says rank/0; a locks; a is-pushed 9; a pending; pass 1s; a gets 9"
    }
}

/// The bound of a future that is forgotten, or of a task that is never polled again. It is renewed for as long as a task may
/// need to run.
#[test]
fn a_grant_that_no_poll_takes_is_renewed_for_a_lease_and_then_lost_once() {
    let mut scene = Scene::of(&TASKS);
    let (tells, told) = crossbeam_channel::unbounded();
    scene.world.client.on_lost(move |lost| tells.send(lost.clone()).unwrap());
    scene.play("a locks; pass 30s; held a; pass 30s; held nobody; pass 300s; stats lost 1");
    assert_eq!(told.recv_timeout(10 * S).unwrap().lock.as_str(), "a");
    assert!(told.try_recv().is_err());
    assert!(scene.world.store.times(Op::Renew).iter().all(|at| *at < 30 * S));
}

#[test]
fn a_future_takes_no_place_before_it_is_polled() {
    let world = World::new();
    drop(world.async_lock("unpolled").lock());
    drop(world.async_lock("unpolled").try_lock());
    world.settle();
    assert!(world.store.ops().is_empty());
}

#[test]
fn a_task_knows_its_rank() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(3)]);
    let mut locking = Box::pin(world.async_lock("rank").lock());
    assert_eq!(locking.rank(), None);
    assert!(polled_once(locking.as_mut()).is_pending());
    world.settle();
    assert_eq!(locking.rank(), Some(3));
}

#[test]
fn a_future_that_was_ready_is_used_up() {
    let world = World::new();
    let mut task = world.locking("ready");
    assert!(task.poll().is_ready());
    assert!(matches!(task.poll(), std::task::Poll::Ready(Err(Error::Misuse { .. }))));
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release], "it asks for nothing");
}

#[test]
fn the_kinds_and_the_terms_of_a_handle_are_kept() {
    let world = World::new();
    world.store.plan().keeps_shared = true;
    let prices = world.client.rw_lock("prices").unwrap();
    let mails = world.client.semaphore("mails", 5).unwrap();
    let fixed = world.client.fair_lock("fixed").unwrap().fixed_lease(3 * S);
    let locks = [
        (prices.reader().to_async(), 1),
        (prices.writer().to_async(), u32::MAX),
        (mails.to_async(3).unwrap(), 3),
        (world.client.plain_lock("plain").unwrap().to_async(), 1),
        (fixed.owned_by(&world.client.new_owner()).unwrap().to_async(), 1),
    ];
    assert!(matches!(mails.to_async(0), Err(Error::InvalidConfig { .. })));
    let mut guards = Vec::new();
    for (lock, takes) in locks {
        let task = world.task(lock.lock());
        world.settle();
        guards.push(task.ended().unwrap());
        let held = world.client.held().into_iter().find(|held| held.owner == *guards.last().unwrap().owner());
        assert_eq!(held.map(|held| (held.kind, held.takes)), Some((lock.kind(), takes)));
    }
    world.clock.advance(60 * S);
    let lost: Vec<_> = guards.iter().map(|guard| guard.is_lost()).collect();
    assert_eq!(lost, [false, false, false, false, true]);
}

#[test]
fn terms_out_of_range_are_refused_by_the_first_poll() {
    let world = World::new();
    let lock = world.client.fair_lock("terms").unwrap().max_hold(Duration::ZERO).to_async();
    let polled = polled_once(lock.lock());
    assert!(matches!(polled, std::task::Poll::Ready(Err(Error::InvalidConfig { .. }))));
}
