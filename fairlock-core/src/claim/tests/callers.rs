//! What callers with little time, cancelled ones and several of one owner are told; and what a claim tells of itself.

use super::*;
use crate::cancel::Cancel;

stories! {
    /// And waits for the answer.
    fn a_caller_asks_at_least_once_also_if_its_time_is_over() {
        "waits 1s; at 5s; caller asks; caller sleeps ever; answer rank/1; caller gives-up"
    }

    fn a_caller_gives_up_at_its_deadline_and_sleeps_until_then() {
        "waits 1s; caller asks; answer rank/1; at 999999999ns; caller sleeps 1s; at 1s; caller gives-up"
    }

    fn a_request_keeps_its_place_when_a_wait_for_it_is_over() {
        "caller asks; answer rank/1; patience 1s keeps; caller sleeps; at 1s; caller not-yet; patience 1s keeps cancelled
        caller gives-up cancelled"
        "caller asks; answer rank/1; patience no keeps; caller not-yet"
    }

    /// A grant that the withdrawal finds is not for a caller that was cancelled, or that only looked.
    fn only_a_wait_that_is_over_wants_a_grant_of_that_moment() {
        "caller asks; answer rank/1; patience 1s; at 1s; caller gives-up; late-grant yes"
        "caller asks; answer rank/1; patience 1s cancelled; at 1s; caller gives-up cancelled; late-grant no"
        "caller asks; answer rank/1; patience no; at 1s; caller gives-up; late-grant no"
    }

    fn one_attempt_that_joins_a_longer_wait_only_looks_and_one_of_its_own_asks() {
        "caller asks; answer rank/1; wake; join; patience no; caller gives-up OthersWait"
        "waits no; caller asks"
    }

    fn a_caller_that_was_cancelled_before_it_asked_leaves_nothing() {
        "patience ever cancelled; caller gives-up cancelled Nothing quietly; join Gone"
    }

    /// The other one asks.
    fn a_caller_that_joins_attends_until_it_stops() {
        "caller asks; answer rank/1; join; leave; wake; dog waits; leave; dog asks"
    }

    fn a_failure_is_told_to_every_caller_and_the_request_is_not_given_up_once_more() {
        "caller asks; answer rank/1; join; shutdown Withdraw; caller is-shut-down; caller is-shut-down; give-up None"
    }

    /// A hold is unlocked instead.
    fn a_dropped_request_gives_up_its_share_of_what_waits_only() {
        "caller asks; answer rank/1; join; give-up OthersWait; give-up Withdraw; give-up None"
        "caller asks; answer got/7; give-up None"
    }

    /// The server knows nothing of what was not asked for, and holds are lost by other means.
    fn a_shutdown_fails_what_waits_and_withdraws_what_was_asked_for() {
        "shutdown Nothing; join Gone"
        "caller asks; answer rank/1; shutdown Withdraw; shutdown None (it fails once)"
        "caller asks; answer got/7; shutdown None; count 1"
    }

    fn a_plain_lock_that_is_busy_is_waited_for_without_a_rank() {
        "is plain; caller asks; answer busy/1s Nothing; caller sleeps 1s; beat rank/4; rank None"
    }
}

fn in_line() -> Case {
    Case::after("caller asks; answer rank/1 Nothing")
}

#[test]
fn a_receiver_is_told_when_the_request_is_decided_and_not_before() {
    let case = in_line();
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    assert!(decided.try_recv().is_err());
    case.push(S);
    assert!(decided.try_recv().is_ok());
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    assert!(decided.try_recv().is_ok(), "it was decided before");
}

#[test]
fn a_claim_tells_how_long_it_has_waited_and_for_how_long_the_server_was_silent() {
    let case = in_line();
    let at = case.start + 3 * S;
    let waiting = case.claim.as_waiting(at).unwrap();
    assert_eq!((waiting.rank, waiting.waiting_for), (Some(1), 3 * S));
    assert_eq!((silent_for(&case.claim, at), case.claim.was_heard()), (Some(3 * S), true));
    case.renewed(2 * S, waiting_at_rank(4));
    assert_eq!((silent_for(&case.claim, at), case.claim.rank()), (Some(S), Some(4)));
    case.push(3 * S);
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
    let cancel = Cancel::new();
    let seen = claim.signal.epoch();
    let listening = cancel.listen(&claim);
    cancel.cancel();
    assert_eq!(claim.signal.epoch(), seen + 1);
    drop(listening);
}
