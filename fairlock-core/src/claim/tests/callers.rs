//! What callers with little time, cancelled ones and several of one owner are told; and what a claim tells of itself.

use super::*;
use crate::time::CancelToken;

/// And waits for the answer.
#[test]
fn a_caller_asks_at_least_once_also_if_its_time_is_over() {
    let c = claim().tries_for(S).at(5 * S).caller().asks().caller().waits_for_ever().answer(rank(1));
    c.caller().gives_up();
}

#[test]
fn a_caller_gives_up_at_its_deadline_and_sleeps_until_then() {
    let c = claim().tries_for(S).caller().asks().answer(rank(1)).at(ns(999_999_999)).caller().waits_until(S);
    c.at(S).caller().gives_up();
}

#[test]
fn a_request_keeps_its_place_when_a_wait_for_it_is_over() {
    let c = in_queue().patience(Wait::UpTo(S)).keeping_place().caller().waits().at(S).caller().is_not_yet();
    c.patience(Wait::UpTo(S)).keeping_place().cancelled().caller().is_cancelled();
    in_queue().patience(Wait::No).keeping_place().caller().is_not_yet();
}

/// A grant that the withdrawal finds is not for a caller that was cancelled, or that only looked.
#[test]
fn only_a_wait_that_is_over_wants_a_grant_of_that_moment() {
    in_queue().patience(Wait::UpTo(S)).at(S).caller().gives_up().late_grant().yes();
    in_queue().patience(Wait::UpTo(S)).cancelled().at(S).caller().is_cancelled().late_grant().no();
    in_queue().patience(Wait::No).at(S).caller().gives_up().late_grant().no();
}

/// One attempt that joins a longer wait only looks and one of its own asks.
#[test]
fn one_attempt_that_joins_a_longer_wait_only_looks() {
    in_queue().wake().join().patience(Wait::No).caller().gives_up_with(AfterGivingUp::OthersWait);
    claim().tries().caller().asks();
}

#[test]
fn a_caller_that_was_cancelled_before_it_asked_leaves_nothing() {
    let c = claim().patience(Wait::Forever).cancelled();
    c.caller().is_cancelled_with(AfterGivingUp::Nothing).quietly().join().is(Joined::Gone);
}

/// The other one asks.
#[test]
fn a_caller_that_joins_attends_until_it_stops() {
    in_queue().join().leave().wake().dog().waits().leave().dog().asks();
}

/// A failure is told to every caller and the request is not given up once more.
#[test]
fn a_failure_is_told_to_every_caller() {
    let c = in_queue().join().shutdown().is(Some(AfterGivingUp::Withdraw)).caller().is_shut_down();
    c.caller().is_shut_down().give_up().none();
}

/// A hold is unlocked instead.
#[test]
fn a_dropped_request_gives_up_its_share_of_what_waits_only() {
    let c = in_queue().join().give_up().is(Some(AfterGivingUp::OthersWait));
    c.give_up().is(Some(AfterGivingUp::Withdraw)).give_up().none();
    held().give_up().none();
}

/// The server knows nothing of what was not asked for, and holds are lost by other means.
#[test]
fn a_shutdown_fails_what_waits_and_withdraws_what_was_asked_for() {
    claim().shutdown().is(Some(AfterGivingUp::Nothing)).join().is(Joined::Gone);
    in_queue().shutdown().is(Some(AfterGivingUp::Withdraw)).shutdown().none(); // it fails once
    held().shutdown().none().count(1);
}

#[test]
fn a_plain_lock_that_is_busy_is_waited_for_without_a_rank() {
    let c = claim().plain().caller().asks().answer(busy(S)).is(AfterAnswer::Nothing).caller().waits_until(S);
    c.beat(rank(4)).rank().none();
}

/// A receiver is told when the request is decided and not before.
#[test]
fn a_receiver_is_told_when_the_request_is_decided() {
    let case = in_queue();
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    assert!(decided.try_recv().is_err());
    case.push_at(S);
    assert!(decided.try_recv().is_ok());
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    assert!(decided.try_recv().is_ok(), "it was decided before");
}

/// A claim tells how long it has waited and for how long the server was silent.
#[test]
fn a_claim_tells_how_long_it_has_waited() {
    let case = in_queue();
    let at = case.start + 3 * S;
    let waiting = case.claim.as_waiting(at).unwrap();
    assert_eq!((waiting.rank, waiting.waiting_for), (Some(1), 3 * S));
    assert_eq!((silent_for(&case.claim, at), case.claim.was_heard()), (Some(3 * S), true));
    case.renewed(2 * S, waiting_at_rank(4));
    assert_eq!((silent_for(&case.claim, at), case.claim.rank()), (Some(S), Some(4)));
    case.push_at(3 * S);
    assert!(case.claim.as_waiting(at).is_none() && !case.claim.is_waiting());
    assert_eq!(case.claim.rank(), None);
    let unheard = Case::new();
    unheard.step(NOW);
    assert_eq!((silent_for(&unheard.claim, unheard.start + S), unheard.claim.was_heard()), (Some(S), false));
}

fn waiting_at_rank(rank: u64) -> Renewal {
    Renewal::Waiting { rank, recheck_in: Duration::MAX, latest: 1 }
}

#[test]
fn the_ways_of_a_grant_have_names() {
    let ways = [GrantedBy::FirstAsk, GrantedBy::WakeUp, GrantedBy::Polling];
    assert_eq!(ways.map(GrantedBy::name), ["at_once", "wake_up", "polling"]);
}

#[test]
fn a_cancel_raises_the_signal_of_its_claim() {
    let case = Case::new();
    let claim = Arc::new(case.claim);
    let cancel = CancelToken::new();
    let seen = claim.signal.generation();
    let listening = cancel.listen(&claim);
    cancel.cancel();
    assert_eq!(claim.signal.generation(), seen + 1);
    drop(listening);
}
