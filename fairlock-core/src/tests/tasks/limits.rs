//! How a wait of a task ends without the lock.

use super::super::scene::*;
use super::super::store::Op;
use super::super::support::ms;
use super::is_by_tasks;

/// An attempt of a task without an answer is an error after a repeat. The watchdog repeats it.
#[test]
fn a_tasks_unanswered_attempt_is_an_error_after_a_repeat() {
    let s = tasks().acquire().is_down().a().tries().fails(Unavailable).after(ms(0)..=ms(59));
    s.asked_first([ACQUIRE.by_tasks(), ACQUIRE.by_dog()]);
}

#[test]
fn a_grant_that_crosses_the_end_of_a_timed_wait_is_passed_on() {
    let s = tasks().acquire().says(rank(0)).withdraw().says(got(9));
    s.a().tries_for(ms(80)).is_busy().after(ms(80)).asked([ACQUIRE, WITHDRAW, RELEASE.of(9)]).held(&[]);
}

#[test]
fn a_timed_wait_asks_at_least_once_also_if_that_takes_longer() {
    let s = tasks().acquire().takes(2 * S).a().locks().b().tries_for(ms(80)).gets(1002).after(2 * S);
    s.a().gets(1001);
}

#[test]
fn a_timed_wait_that_asks_anew_keeps_its_time() {
    let s = tasks().a().tries_for(40 * S).pass(60 * S).acquire().says(rank(0)).a().polls_pending();
    s.a().polls().is_busy();
}

/// A request whose turn does not come fails after the outage limit. The server knows nothing of it.
#[test]
fn a_request_that_is_not_sent_fails_at_the_outage_limit() {
    let s = tasks().acquire().takes(30 * S).a().locks().b().locks().fails(Unavailable).after(10 * S);
    s.b().told("the request had to wait too long to be sent").pass(60 * S).called(ACQUIRE.about(B), 0);
    s.called(WITHDRAW.about(B), 0).a().drops();
}

/// After a call without an answer the watchdog asks for what waits behind it.
#[test]
fn the_watchdog_asks_for_what_waits_behind_a_failed_call() {
    let s = tasks().acquire().takes(S).acquire().says(DOWN).a().locks().b().locks().c().locks().d().locks();
    s.pass(2 * S).a().gets(1001..=1004).b().gets(1001..=1004).c().gets(1001..=1004).d().gets(1001..=1004);
    s.asked([ACQUIRE.by_tasks(), ACQUIRE.by_dog().times(4)]);
}

/// A refusal for good is an answer, after which the threads for tasks go on.
#[test]
fn a_refused_request_leaves_nothing_to_the_watchdog() {
    let s = tasks().acquire().takes(S).acquire().says(DENIED).a().locks().b().locks().c().locks();
    s.pass(2 * S).a().fails(Denied).b().gets(1001..=1002).c().gets(1001..=1002);
    let asked = s.store.asked();
    let by_tasks = asked.iter().filter(|asked| asked.op == Op::Acquire && is_by_tasks(asked)).count();
    assert_eq!(by_tasks, 3, "{asked:?}");
}

/// An ask that panics on a thread for tasks is repeated by the watchdog. That thread goes on.
#[test]
fn the_watchdog_repeats_an_ask_of_a_task_that_panics() {
    let s = tasks().acquire().panics(1).a().locks().b().locks().c().locks().pass(S).a().gets(1001..=1003);
    s.b().gets(1001..=1003).c().gets(1001..=1003);
    s.asked([ACQUIRE.by_tasks(), ACQUIRE.by_dog(), ACQUIRE.by_tasks().times(2)]).acquire().says(got(7));
    s.d().locks().gets(7);
}

/// A silent server ends all waits of tasks within the outage limit.
#[test]
fn a_silent_server_ends_all_waits_of_tasks() {
    let s = tasks().acquire().is_down();
    let each = |does: fn(By) -> By| (0..200).for_each(|n| _ = does(s.by(&format!("waiter {n}"))));
    each(|waiter| waiter.locks());
    s.pass(ms(9999));
    each(|waiter| waiter.pending());
    s.pass(ms(1));
    each(|waiter| waiter.fails(Unavailable));
}

#[test]
fn tasks_are_granted_a_lock_once_the_server_is_back() {
    let s = tasks().acquire().is_down();
    let each = |does: fn(By) -> By| (0..100).for_each(|n| _ = does(s.by(&format!("waiter {n}"))));
    each(|waiter| waiter.locks());
    s.pass(5 * S).acquire().is_up().pass(S);
    each(|waiter| waiter.gets(1001..=1100));
}

/// Waits of tasks that end without the lock are counted and dropped ones are not.
#[test]
fn waits_of_tasks_that_end_without_the_lock_are_counted() {
    let s = tasks();
    s.acquire().says([BUSY, rank(0), DENIED, rank(0)]).a().tries().is_busy().tries_for(ms(80)).is_busy();
    s.a().locks().fails(Denied).locks().drops().b().cancellable().is_cancelled();
    s.b().locks().at_once().fails(Cancelled).acquire().is_down().a().tries().fails(Unavailable);
    let stats = s.client.stats();
    let counted = stats.not_granted.fair;
    assert_eq!((counted.busy, counted.timed_out, counted.refused), (1, 1, 1));
    assert_eq!((counted.cancelled, counted.unavailable, stats.not_granted.total().total()), (1, 1, 5));
    assert!(stats.failed_waits.longest >= ms(80), "{:?}", stats.failed_waits);
}
