//! When the log says that an outage begins and that it is over.

use super::logger::lines_about;
use super::scene::*;

/// A hold is tried about twice a second during an outage which is two lines.
#[test]
fn an_outage_of_a_hold_is_two_lines() {
    let s = threads().a().locks().pass(9 * S).asked(ACQUIRE).log(0, "").renew().is_down().pass(18 * S);
    s.called(RENEW, 17..=80).log(1, "").log(1, "an outage has begun, affecting 1 hold and 0 waiters of");
    s.renew().is_up().pass(S).a().is_held().log(2, "").log(1, "it affected 1 hold and 0 waiters of");
    s.pass(100 * S).a().unlocks().done().log(2, "");
}

/// PostgreSQL lets a heartbeat wait for a row that others have locked, and the row may be free for moments only.
#[test]
fn what_a_renewal_waits_in_vain_counts_as_a_pause() {
    let s = threads().acquire().says(rank(0)).a().requests().renew().takes_each(S, 6).renew().is_down();
    s.pass(ms(6500));
    s.at(
        RENEW,
        [ns(1_666_666_666), ns(2_666_666_666), ns(3_666_666_666), ns(4_666_666_666), ns(5_666_666_666)],
    );
    s.renew().is_up().pass(S).a().drops();
}

/// The same of an ask, by a caller and by the watchdog.
#[test]
fn what_an_ask_waits_in_vain_counts_as_a_pause() {
    let s = threads().acquire().takes_each(S, 10).acquire().is_down();
    s.a().locks().fails(Unavailable).after(ms(10_080));
    s.at(ACQUIRE, [ms(0), S, ms(2010), ms(3020), ms(4030), ms(5040), ms(6050), ms(7060), ms(8070), ms(9080)]);
    let s = threads().acquire().says(rank(0)).a().requests().renew().is_down().acquire().is_down();
    s.acquire().takes_each(S, 5).a().is_woken().pass(ms(4500));
    s.at(ACQUIRE, [ms(0), ms(0), S, ms(2010), ms(3020), ms(4030)]).acquire().is_up().renew().is_up().pass(S);
    s.a().drops();
}

/// One loss is one warning also in an outage and when its guard is unlocked. No answer has come since, so the outage may last.
/// The next one ends it.
#[test]
fn one_loss_is_one_warning_even_in_an_outage() {
    let s = threads().a().locks().renew().is_down().release().is_down().pass(300 * S);
    s.a().unlocks().lost(NotRenewed).pass(50 * S).log(1, "was lost by").log(1, "an outage has begun");
    s.log(0, "over").renew().is_up().release().is_up().b().locks().unlocks().done().pass(S);
    s.log(1, "is over after 34");
}

#[test]
fn a_hold_that_is_taken_by_force_is_one_warning() {
    let s = threads().a().locks().is_taken().pass(S).a().unlocks().lost(Taken).pass(60 * S).log(1, "");
    s.log(1, "lock `a` was lost by").a().locks().is_taken().pass(S).a().drops().pass(60 * S).log(2, "");
}

#[test]
fn an_outage_is_not_over_while_a_release_is_still_not_answered() {
    let s = threads().a().locks().b().locks().pass(9 * S).b().is_cut().renew().is_down().b().drops();
    s.pass(2 * S).log(1, "outage").renew().is_up().pass(3 * S).a().is_held().log(1, "outage").b().is_back();
    s.pass(S).log(2, "outage").log(1, "the outage is over after");
}

#[test]
fn an_outage_is_not_over_while_a_hold_is_still_not_renewed() {
    let s = threads().a().locks().b().locks().is_cut().pass(15 * S).log(1, "outage");
    s.log(1, "an outage has begun, affecting 1 hold and 0 waiters of").b().is_back().pass(S).log(2, "outage");
}

/// An outage where other servers answer concerns the holds that failed. As many calls are answered as are not, so neither is a
/// majority; one hold was not due yet.
#[test]
fn an_outage_of_one_server_concerns_the_holds_that_failed() {
    let s = threads().a().locks().b().locks().c().locks().d().locks().pass(6 * S).e().locks().a().is_cut();
    s.b().is_cut().pass(4 * S).log(1, "outage").log(1, "affecting 2 holds and 0 waiters of");
}

/// An outage tells of the holds and waiters that no server has heard of since. A pause before a repeat may be over two seconds long.
#[test]
fn an_outage_tells_which_holds_and_waiters_it_affects() {
    let s = threads().acquire().says(rank(0).times(3)).a().requests().b().requests().c().requests();
    s.d().locks().e().locks().renew().is_down().pass(2 * S).log(1, "outage");
    s.log(1, "affecting 2 holds and 3 waiters of").withdraw().is_down().b().drops().pass(S).renew().is_up();
    s.withdraw().is_up().pass(6 * S).log(2, "outage").log(1, "it affected 2 holds and 3 waiters of");
}

/// An outage in which all that failed has gone ends with the next answer. An answer to any call shows that the server is back.
/// The next one begins anew: its first repeat has no pause.
#[test]
fn an_outage_without_failures_ends_with_the_next_answer() {
    let s = threads().a().locks().renew().is_down().pass(10 * S).log(1, "outage").a().unlocks().done();
    s.log(2, "outage").log(1, "the outage is over after").renew().is_up().forget_asked().a().locks();
    s.renew().says(DOWN.times(2)).pass(10 * S);
    s.at(RENEW, [ms(19_698)..=ms(19_698), ms(19_698)..=ms(19_698), ms(19_699)..=ms(19_999)]);
}

#[test]
fn an_outage_tells_of_the_releases_that_are_repeated() {
    let s = threads().a().locks().release().is_down().a().drops().pass(3 * S).log(1, "outage");
    s.log(1, "1 unanswered release or withdrawal");
}

/// A server that drops a request now and then is a line a minute at most. One request is lost now and then, all the time.
#[test]
fn requests_lost_now_and_then_are_a_line_a_minute_at_most() {
    let s = threads().acquire().says(rank(0)).a().requests();
    (0..60).for_each(|_| _ = s.renew().says(DOWN).pass(10 * S));
    s.log(0..=22, "").a().pending();
}

/// Unanswered releases are tried together and are part of the outage. Their callers have gone, so only the watchdog can tell the
/// server, which has forgotten them when lease and place are over.
#[test]
fn unanswered_releases_are_part_of_the_outage() {
    let s = threads();
    let each = |does: fn(By) -> By| (0..200).for_each(|n| _ = does(s.by(&format!("holder {n}"))));
    each(|holder| holder.locks());
    s.release().is_down();
    each(|holder| holder.drops());
    s.pass(S).log(1, "").log(1, "an outage has begun, affecting 0 holds and 0 waiters").forget_asked();
    s.pass(20 * S).called(RELEASE, 15..=100).pass(20 * S).log(1, "").forget_asked().pass(20 * S);
    s.called(RELEASE, 0);
}

#[test]
fn places_that_the_server_lost_are_one_line() {
    let s = threads().acquire().says(rank(0).time(60 * S).ticket(0).times(200)).renew().says(GONE.times(100));
    (0..100).for_each(|n| _ = s.by(&format!("waiter {n}")).on("outage:places").requests());
    s.pass(3 * S).stats(|s| s.places_lost, 100).called(ACQUIRE, 200);
    let said = lines_about("lock `outage:places`");
    assert!(said.len() == 1 && said[0].1.contains("100 place(s) have left the queue"), "{said:?}");
}
