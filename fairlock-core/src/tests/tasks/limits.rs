//! How a wait of a task ends without the lock.

use super::super::scene::{Scene, TASKS, play, scenes};
use super::super::support::ms;

scenes! {
    /// The watchdog repeats it.
    fn an_attempt_of_a_task_without_an_answer_is_an_error_after_a_repeat() {
        TASKS "acquire is-down; a tries fails Unavailable 0s..59ms; asked acquire!tasks acquire!dog ..."
    }

    fn a_grant_that_crosses_the_end_of_a_timed_wait_is_passed_on() {
        TASKS "acquire says rank/0; withdraw says got/9; a tries-for 80ms is-busy 80ms; asked acquire withdraw release/9
        held nobody"
    }

    fn a_timed_wait_asks_at_least_once_also_if_that_takes_longer() {
        TASKS "acquire takes 2s; a locks; b tries-for 80ms gets 1002 2s; a gets 1001"
    }

    fn a_timed_wait_that_asks_anew_keeps_its_time() {
        TASKS "a tries-for 40s; pass 60s; acquire says rank/0; a polls pending; a polls is-busy"
    }

    /// The server knows nothing of it.
    fn a_request_whose_turn_does_not_come_fails_after_the_outage_limit() {
        TASKS "acquire takes 30s; a locks; b locks fails Unavailable 10s
        b told the request had to wait too long to be sent; pass 60s; called acquire b 0; called withdraw b 0
        a drops"
    }

    fn after_a_call_without_an_answer_the_watchdog_asks_for_what_waits_behind_it() {
        TASKS "acquire takes 1s; acquire says down; a locks; b locks; c locks; d locks; pass 2s; a gets 1001..1004
        b gets 1001..1004; c gets 1001..1004; d gets 1001..1004; asked acquire!tasks acquire!dog*4"
    }

    /// The thread for tasks goes on.
    fn an_ask_that_panics_on_the_thread_for_tasks_is_repeated_by_the_watchdog() {
        TASKS "acquire panics 1; a locks; b locks; c locks; pass 1s; a gets 1001..1003; b gets 1001..1003
        c gets 1001..1003; asked acquire!tasks acquire!dog acquire!tasks*2; acquire says got/7; d locks gets 7"
    }
}

fn each(many: u32, does: fn(u32) -> String) -> String {
    (0..many).map(does).collect()
}

#[test]
fn a_silent_server_ends_all_waits_of_tasks_within_the_outage_limit() {
    let [wait, pend] = [each(200, |n| format!("w{n} locks;")), each(200, |n| format!("w{n} pending;"))];
    let fail = each(200, |n| format!("w{n} fails Unavailable;"));
    play(&TASKS, &format!("acquire is-down; {wait} pass 9999ms; {pend} pass 1ms; {fail}"));
}

#[test]
fn tasks_are_granted_a_lock_once_the_server_is_back() {
    let [wait, have] =
        [each(100, |n| format!("w{n} locks;")), each(100, |n| format!("w{n} gets 1001..1100;"))];
    play(&TASKS, &format!("acquire is-down; {wait} pass 5s; acquire is-up; pass 1s; {have}"));
}

#[test]
fn waits_of_tasks_that_end_without_the_lock_are_counted_and_dropped_ones_are_not() {
    let mut scene = Scene::of(&TASKS);
    scene.play(
        "acquire says busy rank/0 denied rank/0; a tries is-busy; a tries-for 80ms is-busy; a locks fails Denied
        a locks; a drops; b is cancellable; b is-cancelled; b locks at-once fails Cancelled; acquire is-down
        a tries fails Unavailable",
    );
    let stats = scene.world.client.stats();
    let counted = stats.not_granted.fair;
    assert_eq!((counted.busy, counted.timed_out, counted.refused), (1, 1, 1));
    assert_eq!((counted.cancelled, counted.unavailable, stats.not_granted.total().total()), (1, 1, 5));
    assert!(stats.failed_waits.longest >= ms(80), "{:?}", stats.failed_waits);
}
