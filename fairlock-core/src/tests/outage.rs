//! When the log says that an outage begins and that it is over.

use super::logger::lines_about;
use super::scene::{THREADS, play, scenes};

scenes! {
    fn a_hold_is_tried_about_twice_a_second_during_an_outage_which_is_two_lines() {
        THREADS "a locks; pass 9s; asked acquire; log 0; renew is-down; pass 18s; called renew 17..80; log 1
        log 1 an outage has begun, affecting 1 hold and 0 waiters of; renew is-up; pass 1s; a is-held; log 2
        log 1 it affected 1 hold and 0 waiters of; pass 100s; a unlocks done; log 2"
    }

    /// PostgreSQL lets a heartbeat wait for a row that others have locked, and the row may be free for moments only.
    fn what_a_renewal_waits_in_vain_counts_as_a_pause() {
        THREADS "acquire says rank/0; a requests; renew takes 1s*6; renew is-down; pass 6500ms
        at renew 1666666666ns 2666666666ns 3666666666ns 4666666666ns 5666666666ns; renew is-up; pass 1s; a drops"
    }

    /// The same of an ask, by a caller and by the watchdog.
    fn what_an_ask_waits_in_vain_counts_as_a_pause() {
        THREADS "acquire takes 1s*10; acquire is-down; a locks fails Unavailable 10080ms
        at acquire 0s 1s 2010ms 3020ms 4030ms 5040ms 6050ms 7060ms 8070ms 9080ms"
        THREADS "acquire says rank/0; a requests; renew is-down; acquire is-down; acquire takes 1s*5; a is-woken; pass 4500ms
        at acquire 0s 0s 1s 2010ms 3020ms 4030ms; acquire is-up; renew is-up; pass 1s; a drops"
    }

    /// No answer has come since, so the outage may last. The next one ends it.
    fn one_loss_is_one_warning_also_in_an_outage_and_when_its_guard_is_unlocked() {
        THREADS "a locks; renew is-down; release is-down; pass 300s; a unlocks lost NotRenewed; pass 50s
        log 1 was lost by; log 1 an outage has begun; log 0 over; renew is-up; release is-up; b locks; b unlocks done
        pass 1s; log 1 is over after 34"
    }

    fn a_hold_that_is_taken_by_force_is_one_warning() {
        THREADS "a locks; a is-taken; pass 1s; a unlocks lost Taken; pass 60s; log 1; log 1 lock `a` was lost by
        a locks; a is-taken; pass 1s; a drops; pass 60s; log 2"
    }

    fn an_outage_is_not_over_while_a_release_is_still_not_answered() {
        THREADS "a locks; b locks; pass 9s; b is-cut; renew is-down; b drops; pass 2s; log 1 outage; renew is-up; pass 3s
        a is-held; log 1 outage; b is-back; pass 1s; log 2 outage; log 1 the outage is over after"
    }

    fn an_outage_is_not_over_while_a_hold_is_still_not_renewed() {
        THREADS "a locks; b locks; b is-cut; pass 15s; log 1 outage
        log 1 an outage has begun, affecting 1 hold and 0 waiters of; b is-back; pass 1s; log 2 outage"
    }

    /// As many calls are answered as are not, so neither is a majority; one hold was not due yet.
    fn an_outage_where_other_servers_answer_concerns_the_holds_that_failed() {
        THREADS "a locks; b locks; c locks; d locks; pass 6s; e locks; a is-cut; b is-cut; pass 4s; log 1 outage
        log 1 affecting 2 holds and 0 waiters of"
    }

    fn an_outage_tells_of_the_holds_and_waiters_that_no_server_has_heard_of_since() {
        THREADS "acquire says rank/0*3; a requests; b requests; c requests; d locks; e locks; renew is-down; pass 2s
        log 1 outage; log 1 affecting 2 holds and 3 waiters of; withdraw is-down; b drops; pass 1s; renew is-up
        withdraw is-up; pass 2s; log 2 outage; log 1 it affected 2 holds and 3 waiters of"
    }

    /// An answer to any call shows that the server is back. The next one begins anew: its first repeat has no pause.
    fn an_outage_in_which_all_that_failed_has_gone_ends_with_the_next_answer() {
        THREADS "a locks; renew is-down; pass 10s; log 1 outage; a unlocks done; log 2 outage
        log 1 the outage is over after; renew is-up; asked ...; a locks; renew says down*2; pass 10s
        at renew 19698ms 19698ms 19699ms..19999ms"
    }

    fn an_outage_tells_of_the_releases_that_are_repeated() {
        THREADS "a locks; release is-down; a drops; pass 3s; log 1 outage; log 1 1 unanswered release or withdrawal"
    }
}

/// One request is lost now and then, all the time.
#[test]
fn a_server_that_drops_a_request_now_and_then_is_a_line_a_minute_at_most() {
    let drops = "renew says down; pass 10s;".repeat(60);
    play(&THREADS, &format!("acquire says rank/0; a requests; {drops} log 0..22; a pending"));
}

/// Their callers have gone, so only the watchdog can tell the server, which has forgotten them when lease and place are over.
#[test]
fn unanswered_releases_are_tried_together_and_are_part_of_the_outage() {
    let each = |does: fn(u32) -> String| (0..500).map(does).collect::<String>();
    let [hold, drop] = [|n| format!("h{n} locks;"), |n| format!("h{n} drops;")].map(each);
    let begins = "pass 1s; log 1; log 1 an outage has begun, affecting 0 holds and 0 waiters; asked ...";
    let over = "pass 20s; called release 15..100; pass 20s; log 1; asked ...; pass 20s; called release 0";
    play(&THREADS, &format!("{hold} release is-down; {drop} {begins}; {over}"));
}

#[test]
fn places_that_the_server_lost_are_one_line() {
    let ask: String = (0..100).map(|n| format!("w{n}@outage:places requests;")).collect();
    let plan = "acquire says rank/0/60s/0*200; renew says lost*100";
    play(&THREADS, &format!("{plan}; {ask} pass 3s; stats places-lost 100; called acquire 200"));
    let said = lines_about("for lock `outage:places`");
    assert!(said.len() == 1 && said[0].1.contains("100 place(s) are not in line"), "{said:?}");
}
