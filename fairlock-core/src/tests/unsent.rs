//! Requests that were never sent: nothing of them is at the server, so nothing is left to tell it.

use super::logger::lines_about;
use super::scene::*;

/// Neither when the call ends, nor when an attempt could have arrived.
#[test]
fn a_request_that_was_never_sent_leaves_nothing() {
    let s = late().acquire().says(UNSENT.times(2)).a().tries().fails(Unavailable).called(ACQUIRE, 2);
    s.claims(0).backlog(0).pass(60 * S).called(WITHDRAW, 0);
    let s = late().acquire().says(UNSENT.times(99)).a().tries_for(S).fails(Unavailable).after(S).claims(0);
    s.backlog(0).pass(60 * S).called(WITHDRAW, 0);
    let s = late().acquire().says(UNSENT.times(99)).a().locks().fails(Unavailable).after(10 * S..=11 * S);
    s.claims(0).backlog(0).pass(60 * S).called(WITHDRAW, 0);
    let s = late().acquire().says(UNSENT.times(99)).a().requests().pass(S).a().drops().claims(0).backlog(0);
    s.pass(60 * S).called(WITHDRAW, 0);
    let s = late_tasks().acquire().says(UNSENT.times(2)).a().tries().pass(2 * S).a().fails(Unavailable);
    s.claims(0).pass(60 * S).called(WITHDRAW, 0);
    let s = late_tasks().acquire().says(UNSENT.times(99)).a().tries_for(S).pass(2 * S).a().fails(Unavailable);
    s.claims(0).pass(60 * S).called(WITHDRAW, 0);
    let s =
        late_tasks().acquire().says(UNSENT.times(99)).a().locks().pass(S).a().drops().claims(0).backlog(0);
    s.pass(60 * S).called(WITHDRAW, 0);
}

/// What becomes of an attempt that is under way is not known when its task leaves.
#[test]
fn a_task_that_leaves_before_it_was_sent_leaves_nothing() {
    let s = late_tasks().acquire().takes(S).acquire().says(UNSENT).a().locks().pass(ms(100)).a().drops();
    s.claims(1).pass(2 * S).claims(0).backlog(0).pass(60 * S).called(WITHDRAW, 0);
    let s = late_tasks().acquire().takes(S).acquire().says(DOWN).a().locks().pass(ms(100)).a().drops();
    s.pass(2 * S).called(WITHDRAW, 1).pass(60 * S).called(WITHDRAW, 2);
}

/// An earlier attempt of the same request may have been carried out.
#[test]
fn a_request_of_which_one_attempt_was_sent_is_withdrawn() {
    let s = late().acquire().says([DOWN, UNSENT]).a().tries().fails(Unavailable).called(WITHDRAW, 1);
    s.pass(7 * S).called(WITHDRAW, 2);
    let s = late().acquire().says([rank(0), UNSENT.times(99)]).a().requests().is_woken().pass(S).a().drops();
    s.called(WITHDRAW, 1);
    let s = late().acquire().says([UNSENT, got(7)]).a().locks().gets(7).unlocks().done().pass(60 * S);
    s.called(RELEASE, 1).called(WITHDRAW, 0);
}

/// It can't arrive late.
#[test]
fn heartbeats_and_withdrawals_that_were_not_sent_come_no_later() {
    let s = late().acquire().says(rank(0)).a().requests().renew().says(UNSENT).pass(ms(1667));
    s.called(RENEW, 1..=2).a().is_pushed(5000).waits().gets(5000).unlocks().done().pass(7 * S);
    s.called(WITHDRAW, 0);
    let s = late_by_owner().acquire().says(rank(0)).a().requests().withdraw().says(UNSENT).a().drops();
    s.pass(18 * S).called(WITHDRAW, 2);
}

#[test]
fn a_shutdown_tells_of_no_request_that_was_never_sent() {
    let s = late().acquire().says(UNSENT.times(99)).a().requests().withdraw().is_down();
    s.x().shuts_down().done().after(ms(0)).called(WITHDRAW, 0);
    let s = late_tasks().acquire().takes(S).acquire().says(UNSENT).a().locks().pass(ms(100));
    s.withdraw().is_down().x().shuts_down().done().a().fails(Shutdown).called(WITHDRAW, 0);
}

/// Of a request whose login is refused the server has nothing. One that is refused itself has left nothing either, but is withdrawn
/// once, in case it was carried out in part.
#[test]
fn calls_that_are_denied_write_no_line() {
    for (says, withdrawals) in [(UNSENT_DENIED, 0), (DENIED, 200)] {
        let s = late();
        for _ in 0..200 {
            s.acquire().says(says).withdraw().says(says).by("unsent:denied").tries().fails(Denied);
            s.claims(0).backlog(0);
        }
        s.called(WITHDRAW, withdrawals).pass(200 * S).called(WITHDRAW, withdrawals).log(0, "");
    }
    assert!(lines_about("refused, and repeated; the first is Withdraw for lock `unsent:denied`").is_empty());
}

/// A right is missing that only a release needs. Those that stand in no line yet are in the next one, or in the last.
#[test]
fn releases_that_are_denied_are_a_line_a_minute() {
    let lock = "unsent:releases";
    let release = |s: Scene| s.by(lock).locks().release().says(DENIED.times(2)).by(lock).drops().pass(ms(10));
    let many = (0..300).fold(threads(), |s, _| release(s));
    release(many.pass(61 * S)).pass(S);
    drop(many); // the last one is told at the client's end
    let said = lines_about(&format!("refused, and repeated; the first is Release for lock `{lock}`"));
    let counts: Vec<_> = said.iter().filter_map(|(_, line)| line.split_whitespace().nth(1)).collect();
    assert_eq!(counts, ["1", "299", "1"]);
}
