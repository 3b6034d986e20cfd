//! How a lock is acquired: what is asked, by which thread, and when again.

use super::scene::*;
use crate::backend::Declined;

#[test]
fn an_uncontended_lock_is_two_calls() {
    both(|s| s.a().locks().gets(1001).unlocks().done().asked([ACQUIRE, RELEASE]));
}

#[test]
fn re_entries_and_inner_unlocks_ask_nothing() {
    let s = threads().a().locks().gets(1001).locks().gets(1001).holds(2).unlocks().done().unlocks().done();
    s.asked([ACQUIRE, RELEASE]);
}

#[test]
fn callers_that_wait_together_ask_once() {
    let s = threads().acquire().says(rank(0)).a().locks().a2().locks().a().is_pushed(9).gets(9).a2().gets(9);
    s.asked([ACQUIRE]).a().holds(2);
}

/// A caller that has joined one attempt goes on by itself when that fails. Its ask is under way when a caller that waits longer
/// joins it, and does not get the lock.
#[test]
fn a_caller_that_joined_one_attempt_goes_on_by_itself() {
    let s = threads().acquire().says([BUSY, rank(0)]).acquire().takes(S).a().tries().a2().tries_for(5 * S);
    s.a().is_busy().after(S).a2().is_busy().after(5 * S).at(ACQUIRE, [ms(0), S]);
}

#[test]
fn one_attempt_on_a_busy_lock_asks_once_and_leaves_nothing() {
    both(|s| {
        s.acquire().says(BUSY).a().tries().is_busy().after(ms(0)).asked(ACQUIRE).waiting(&[]);
        s.a().tries().gets(1001);
    });
}

const CROWDED: Says = declined(Declined::Ahead(1));

/// A request whose condition is not met ends at once, even if its caller would wait, and leaves nothing.
#[test]
fn a_request_that_is_declined_ends_at_once_and_leaves_nothing() {
    both(|s| {
        let s = s.acquire().says(CROWDED).a().if_few_wait().tries_for(S).is_busy().after(ms(0));
        s.asked(ACQUIRE).waiting(&[]).a().tries_for(S).gets(1001);
    });
}

/// It may have been declined by the second attempt, and the first one may arrive afterwards: then it is withdrawn once more.
#[test]
fn a_first_attempt_behind_one_that_was_declined_is_withdrawn() {
    let s = late().acquire().says([DOWN, CROWDED]).a().if_few_wait().tries_for(S).is_busy();
    s.called(WITHDRAW, 0).pass(7 * S).called(WITHDRAW, 1).waiting(&[]);
}

#[test]
fn a_request_in_hand_that_is_declined_is_decided() {
    let s = threads().acquire().says(CROWDED).a().if_few_wait().requests().decided().waits_for(S).is_busy();
    s.after(ms(0)).a().waits().fails(Misuse).told("declined").waiting(&[]);
}

/// A caller without a condition that has joined a request with a condition asks by itself.
#[test]
fn who_joined_a_request_that_is_declined_goes_on_by_itself() {
    let s = threads().acquire().says([CROWDED, rank(0)]).acquire().takes(S).a().a2().a().if_few_wait();
    s.tries_for(5 * S).a2().tries_for(5 * S).a().is_busy().after(S).a2().is_busy().after(5 * S);
}

/// A caller gives up when the server was silent for the outage limit.
#[test]
fn a_caller_gives_up_after_the_outage_limit() {
    let s = threads().acquire().is_down().a().locks().fails(Unavailable).after(10 * S..=11 * S);
    s.called(ACQUIRE, 10..=40).at_first(ACQUIRE, [ms(0), ms(0)]); // the first retry is at once
    s.called(WITHDRAW, 1).waiting(&[]);
}

#[test]
fn a_refusal_is_an_error_at_once() {
    both(|s| s.acquire().says(DENIED).a().locks().fails(Denied).after(ms(0)));
}

/// The store has answered the request before: the right may come back.
#[test]
fn a_waiter_that_is_denied_waits_on_as_in_an_outage() {
    both(|s| {
        s.acquire().says(rank(0).times(2)).a().locks().is_denied().is_woken().b().locks().is_denied();
        s.b().is_woken().pass(8 * S).a().is_back().gets(1001).b().fails(Unavailable).told("planned: denied");
    });
}

#[test]
fn a_cancelled_caller_gets_no_request() {
    let s = threads().a().cancellable().is_cancelled().requests().fails(Cancelled).locks().fails(Cancelled);
    s.asked_nothing().waiting(&[]);
    tasks().a().cancellable().is_cancelled().locks().at_once().fails(Cancelled).asked_nothing();
}

#[test]
fn a_cancel_ends_a_wait_at_once_and_its_request_is_withdrawn() {
    both(|s| {
        s.a().cancellable().acquire().says(rank(3)).a().locks().is_cancelled().fails(Cancelled).after(ms(0));
        s.asked([ACQUIRE, WITHDRAW]);
    });
}

/// A grant that ended before its caller took it is given back and asked for anew. The process stood still until the grant was
/// over.
#[test]
fn a_grant_that_ended_before_it_was_taken_is_given_back() {
    let s = unwatched().acquire().says([rank(0), got(7)]).a().requests().is_pushed(5).jump(5 * S);
    s.a().waits().gets(7).stats(|s| s.lost, 1).backlog(1); // the first hold is to be released
}

/// A message that comes after the hold is over is known if an answer told of the grant. Its message was lost, or comes later than
/// the answer: then it is no stray grant.
#[test]
fn a_message_after_the_hold_is_known_by_the_answer() {
    let s = threads().acquire().says([rank(0), got(5)]).a().locks().is_woken().gets(5).unlocks().done();
    s.a().is_pushed(5).called(RELEASE, 1); // none of a stray grant
    s.stats(|s| s.wake_ups_ignored, 0);
}

/// A message about a hold that was granted at the first ask is a stray.
#[test]
fn a_message_about_a_first_ask_is_a_stray() {
    let s = threads().a().locks().unlocks().done().is_pushed(5).called(RELEASE, 2);
    s.stats(|s| s.wake_ups_ignored, 1);
}

/// Else the message would release the hold before anybody has adopted it.
#[test]
fn a_message_about_a_hold_that_was_handed_over_is_known() {
    let s = threads().a().locks().hands_over().done().is_pushed(5).is_pushed(5).called(RELEASE, 0);
    s.stats(|s| s.wake_ups_ignored, 0);
}

/// A place that was lost is counted when the request stands at the tail.
#[test]
fn a_lost_place_is_counted_at_the_tail() {
    let s = threads().acquire().says([rank(0), rank(4).time(60 * S).ticket(8)]).a().requests().rank(0);
    s.a().is_woken().rank(4).stats(|s| s.places_lost, 1);
}

/// A request that a caller can't take is not waited for a second time.
#[test]
fn a_wait_for_a_request_that_was_refused_tells_the_refusal_once() {
    let s = threads().acquire().says(DENIED).a().requests().decided().waits_for(S).fails(Denied);
    s.a().waits_for(S).fails(Misuse);
}

#[test]
fn a_look_without_a_wait_at_a_request_keeps_its_place() {
    let s = threads().acquire().says(rank(0)).a().requests().waits_for(ms(0)).is_busy().asked(ACQUIRE);
    s.a().is_pushed(5).waits_for(ms(0)).gets(5);
}

/// A caller that begins to wait for a request asks for it itself.
#[test]
fn a_caller_that_begins_to_wait_asks_itself() {
    let s = unwatched().acquire().says([rank(0), got(5)]).a().requests().is_woken();
    s.a().waits().gets(5).after(ms(0));
}

/// A lease that is shorter than a trip is not asked for without end. Each grant is over when its answer comes.
#[test]
fn a_lease_shorter_than_a_trip_is_an_error() {
    let s = threads().a().fixed(S).acquire().says(got(5000).time(S).times(9)).acquire().takes_each(2 * S, 9);
    s.a().tries().fails(Unavailable).after(ms(0)..=4 * S).called(ACQUIRE, 2).called(WITHDRAW, 1).waiting(&[]);
    let s = threads().a().fixed(S).acquire().says(got(5000).time(S).times(9)).acquire().takes_each(2 * S, 9);
    s.a().tries_for(5 * S).fails(Unavailable).after(ms(0)..=9 * S).called(ACQUIRE, 3).called(WITHDRAW, 1);
    s.waiting(&[]);
    let s = threads().a().fixed(S).acquire().says(got(5000).time(S).times(9)).acquire().takes_each(2 * S, 9);
    s.a().locks().fails(Unavailable).after(ms(0)..=14 * S).called(ACQUIRE, 6).called(WITHDRAW, 1);
    s.waiting(&[]);
}
