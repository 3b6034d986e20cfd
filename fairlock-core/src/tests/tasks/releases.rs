//! How tasks give a hold up, and what they hear of that.

use super::super::scene::{Scene, TASKS, scenes};
use super::super::store::Op;
use super::super::support::{S, World, polled_once};
use super::is_by_tasks;
use crate::backend::Wake;
use crate::{Error, LostCause};

scenes! {
    fn a_guard_that_is_dropped_is_released_by_the_thread_for_tasks() {
        TASKS "a locks gets 1001; release takes 1s; a drops done 0s; held nobody; pass 1s
        asked acquire!tasks release/1001!tasks; stats holds 1"
    }

    fn an_unlock_is_woken_once_by_the_servers_word() {
        TASKS "a locks; release takes 1s; a unlocks done 1s; asked acquire release"
    }

    fn an_unlock_that_is_dropped_goes_on() {
        TASKS "a locks; release takes 100ms; release says down; a unlocks; a drops; pass 1s
        asked acquire release/1001 release/1001"
    }

    fn an_unlock_says_that_the_hold_was_lost() {
        TASKS "a locks gets 1001; a is-taken; a unlocks at-once lost Taken; stats lost 1"
    }

    /// The server is told for good measure.
    fn an_unlock_after_the_end_of_the_lease_says_so_and_the_loss_is_reported_once() {
        UNWATCHED_TASKS "a locks gets 1001; jump 31s; a unlocks at-once lost NotRenewed; stats lost 1; stats holds 1
        called release 1"
    }

    /// A panic has hidden the answer: others in the call may have been carried out.
    fn an_unlock_whose_repeat_after_a_panic_finds_no_hold_was_released() {
        TASKS "a locks; release panics 1; release says not-held; a unlocks done 0s..3s; stats lost 0"
    }

    fn an_unlock_that_is_refused_says_so_at_once() {
        TASKS "a locks; release says denied; a unlocks fails Denied 0s"
    }

    fn an_unlock_without_an_answer_says_so_after_the_outage_limit_and_the_release_goes_on() {
        TASKS "a locks; release is-down; a unlocks fails Unavailable 10s; a told planned: down; release is-up; pass 2s
        claims 0"
    }

    fn what_a_task_gives_up_is_told_before_what_it_asks_for_then() {
        TASKS "a locks gets 1001; acquire says rank/0; b locks; blocks takes 1s; blocks locks; asked ...; a drops
        b drops; a tries; pass 1s; asked release withdraw acquire; a gets 1003; blocks gets 1002"
    }

    /// A push has granted the lock while the watchdog asks. The server must not carry the ask out after the release.
    fn a_release_goes_after_an_ask_of_the_watchdog_that_is_under_way() {
        TASKS "acquire says rank/0*2; a locks; acquire takes 1s; a is-woken; a is-pushed 9; a gets 9; asked ...; a drops
        asked nothing; pass 1s; asked release@1s"
    }

    fn a_withdrawal_goes_after_a_heartbeat_that_is_under_way() {
        TASKS "acquire says rank/0; a locks; renew takes 1s; pass 2s; a is-renewing; at renew 1666666666ns; a drops
        called withdraw 0; pass 1s; at withdraw 2666666666ns ..."
    }

    /// Of one batch: a release panics, and a withdrawal and a request stand behind it. The thread goes on.
    fn what_a_panic_leaves_undone_is_the_watchdogs() {
        TASKS "a locks; acquire says rank/0; b locks; blocks takes 1s; blocks locks; release panics 1; a unlocks
        b drops; d locks; pass 3s; a done; blocks gets 1002; d gets 1003; called release a 2; called withdraw b 1
        called acquire d 1; asked ...; e locks gets 1004; e drops; asked acquire!tasks release!tasks"
    }

    fn a_hold_that_expires_is_told_to_its_task_in_time() {
        TASKS "a locks gets 1001; renew is-down; a listens; pass 29698ms; a lost NotRenewed"
    }
}

/// The thread for tasks stands still in a call: no attempt has failed, and none was made. The watchdog has nothing else to look
/// for before the next renewal.
#[test]
fn an_unlock_whose_turn_does_not_come_says_so_after_the_outage_limit() {
    let world = World::with(2 * S, crate::watchdog::THREADS.dog);
    let client = world.client.clone();
    let mut scene = Scene::of_client(world, client);
    scene.play(
        "a is task; a locks gets 1001; b is task; b takes 20s; b locks; pass 3s; a unlocks fails Unavailable 2s
        a told no answer to the release; pass 20s; called release a 1; b gets 1002",
    );
}

fn each(many: u32, does: fn(u32) -> String) -> String {
    (0..many).map(does).collect()
}

#[test]
fn many_unlocks_and_waits_at_once_end_within_the_outage_limit_of_a_silent_server() {
    let mut scene = Scene::of(&TASKS);
    scene.play(&each(150, |n| format!("h{n} locks gets 1001..1150;")));
    scene.play("release is-down; acquire is-down");
    scene.play(&each(150, |n| format!("h{n} unlocks; w{n}@waits locks;")));
    scene.play("pass 10060ms");
    scene.play(&each(150, |n| format!("h{n} fails Unavailable; w{n} fails Unavailable;")));
    scene.play("release is-up; pass 2s; chores 0");
}

/// More than go in one call, and wanted in another order.
#[test]
fn no_request_goes_before_the_last_of_many_releases() {
    let mut scene = Scene::of(&TASKS);
    scene.play(&each(150, |n| format!("h{n} locks gets 1001..1150;")));
    scene.play("asked ...; blocks takes 1s; blocks locks; waits locks");
    scene.play(&each(150, |n| format!("h{n} drops;")));
    scene.play("pass 1s; asked acquire release*150 acquire; waits gets 1152; blocks gets 1151");
}

/// Each of the three would wait for a time-out.
#[test]
fn after_a_release_without_an_answer_the_rest_of_its_batch_is_the_watchdogs() {
    let mut scene = Scene::of(&TASKS);
    scene.play(
        "a locks; acquire says rank/0; b locks; blocks takes 1s; blocks locks; release is-down; a drops",
    );
    scene.play("b drops; d locks; asked ...; pass 1s");
    let asked = scene.world.store.asked();
    let ops =
        |by_tasks| asked.iter().filter(move |asked| is_by_tasks(asked) == by_tasks).map(|asked| asked.op);
    assert_eq!(ops(true).collect::<Vec<_>>(), [Op::Release], "{asked:?}");
    assert!([Op::Withdraw, Op::Acquire].iter().all(|op| ops(false).any(|other| other == *op)), "{asked:?}");
}

#[test]
fn an_unlock_that_is_not_polled_releases_too() {
    let world = World::new();
    drop(world.locked("unpolled").unlock());
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Release]);
}

#[test]
fn any_number_of_futures_hear_of_a_loss_and_none_of_a_release() {
    let world = World::new();
    let guard = world.locked("heard");
    let waits = [(); 3].map(|()| world.task(guard.lost()));
    drop(world.task(guard.lost()));
    let (lock, owner, token) = (guard.name(), guard.owner().as_str(), guard.token());
    world.store.wake(Wake::Taken { lock, owner, token });
    for wait in waits {
        let lost = wait.ended();
        assert_eq!((lost.token, lost.cause), (guard.token(), LostCause::Taken));
    }
    let polled = polled_once(guard.lost());
    assert!(polled.is_ready(), "it is lost already");
    assert!(guard.is_lost() && matches!(guard.check(), Err(Error::Lost(_))));

    let guard = world.locked("released");
    let mut waits = world.task(guard.lost());
    let unlock = world.task(guard.unlock());
    world.settle();
    unlock.ended().unwrap();
    assert!(waits.woken() == 0 && waits.poll().is_pending());
}

#[test]
fn a_hold_goes_on_with_a_guard_that_blocks() {
    let world = World::new();
    let guard = world.locked("blocking");
    let token = guard.token();
    let blocking = guard.into_blocking();
    world.clock.advance(60 * S);
    assert_eq!((blocking.token(), blocking.is_lost()), (token, false));
    world.store.asked();
    world.run(move || blocking.unlock()).0.unwrap();
    let asked = world.store.asked();
    assert!(asked.len() == 1 && asked[0].op == Op::Release && !is_by_tasks(&asked[0]), "{asked:?}");
}
