//! Requests that were never sent: nothing of them is at the server, so nothing is left to tell it.

use super::logger::lines_about;
use super::scene::{LATE, THREADS, play, scenes};

scenes! {
    /// Neither when the call ends, nor when an attempt could have arrived.
    fn a_request_that_was_never_sent_leaves_nothing() {
        LATE "acquire says unsent*2; a tries fails Unavailable; called acquire 2; claims 0; chores 0; pass 60s
        called withdraw 0"
        LATE "acquire says unsent*99; a tries-for 1s fails Unavailable 1s; claims 0; chores 0; pass 60s; called withdraw 0"
        LATE "acquire says unsent*99; a locks fails Unavailable 10s..11s; claims 0; chores 0; pass 60s; called withdraw 0"
        LATE "acquire says unsent*99; a requests; pass 1s; a drops; claims 0; chores 0; pass 60s; called withdraw 0"
        LATE_TASKS "acquire says unsent*2; a tries; pass 2s; a fails Unavailable; claims 0; pass 60s; called withdraw 0"
        LATE_TASKS "acquire says unsent*99; a tries-for 1s; pass 2s; a fails Unavailable; claims 0; pass 60s
        called withdraw 0"
        LATE_TASKS "acquire says unsent*99; a locks; pass 1s; a drops; claims 0; chores 0; pass 60s; called withdraw 0"
    }

    /// What becomes of an attempt that is under way is not known when its task leaves.
    fn a_task_that_leaves_before_it_was_sent_leaves_nothing() {
        LATE_TASKS "acquire takes 1s; acquire says unsent; a locks; pass 100ms; a drops; claims 1; pass 2s; claims 0
        chores 0; pass 60s; called withdraw 0"
        LATE_TASKS "acquire takes 1s; acquire says down; a locks; pass 100ms; a drops; pass 2s; called withdraw 1; pass 60s
        called withdraw 2"
    }

    /// An earlier attempt of the same request may have been carried out.
    fn a_request_of_which_one_attempt_was_sent_is_withdrawn() {
        LATE "acquire says down unsent; a tries fails Unavailable; called withdraw 1; pass 7s; called withdraw 2"
        LATE "acquire says rank/0 unsent*99; a requests; a is-woken; pass 1s; a drops; called withdraw 1"
        LATE "acquire says unsent got/7; a locks gets 7; a unlocks done; pass 60s; called release 1; called withdraw 0"
    }

    /// It can't arrive late.
    fn heartbeats_and_withdrawals_that_were_not_sent_come_no_later() {
        LATE "acquire says rank/0; a requests; renew says unsent; pass 1667ms; called renew 1..2; a is-pushed 5000
        a waits gets 5000; a unlocks done; pass 7s; called withdraw 0"
        LATE_BY_OWNER "acquire says rank/0; a requests; withdraw says unsent; a drops; pass 18s; called withdraw 2"
    }

    fn a_shutdown_tells_of_no_request_that_was_never_sent() {
        LATE "acquire says unsent*99; a requests; withdraw is-down; x shuts-down done 0s; called withdraw 0"
        LATE_TASKS "acquire takes 1s; acquire says unsent; a locks; pass 100ms; withdraw is-down; x shuts-down done
        a fails Shutdown; called withdraw 0"
    }
}

/// Of a request whose login is refused the server has nothing. One that is refused itself has left nothing either, but is withdrawn
/// once, in case it was carried out in part.
#[test]
fn calls_that_are_denied_write_no_line() {
    let each = |says: &str| {
        let one = format!("acquire says {says}; withdraw says {says}; unsent:denied tries fails Denied;");
        format!("{} claims 0; chores 0;", one.repeat(200))
    };
    play(&LATE, &format!("{} called withdraw 0; pass 200s; called withdraw 0; log 0", each("unsent-denied")));
    play(&LATE, &format!("{} called withdraw 200; pass 200s; called withdraw 200; log 0", each("denied")));
    assert!(lines_about("given up; the first is Withdraw for lock `unsent:denied`").is_empty());
}

/// A right is missing that only a release needs. Those that stand in no line yet are in the next one, or in the last.
#[test]
fn releases_that_are_denied_are_a_line_a_minute() {
    let lock = "unsent:releases";
    let one = format!("{lock} locks; release says denied*2; {lock} drops; pass 10ms;");
    play(&THREADS, &format!("{} pass 61s; {one} pass 1s", one.repeat(1000)));
    let said = lines_about(&format!("given up; the first is Release for lock `{lock}`"));
    let counts: Vec<_> = said.iter().filter_map(|(_, line)| line.split_whitespace().nth(1)).collect();
    assert_eq!(counts, ["1", "999", "1"]);
}
