//! What callers with little time, cancelled ones and several of one owner are told; and what a claim tells of itself.

use super::*;
use crate::cancel::Cancel;

fn in_line() -> Case {
    let case = Case::new();
    case.step(NOW);
    assert_eq!(case.queued(NOW), AfterAnswer::Nothing);
    case
}

/// What a caller with this patience, which gives up its place, does at `at`.
fn step(case: &Case, patience: &Patience, at: Duration) -> CallerStep {
    case.claim.caller_step(patience, case.start + at)
}

fn cancelled() -> Option<Cancel> {
    let cancel = Cancel::new();
    cancel.cancel();
    Some(cancel)
}

#[test]
fn a_caller_asks_at_least_once_also_if_its_time_is_over() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    assert!(matches!(case.step(5 * S), CallerStep::Ask));
    assert!(matches!(case.step(5 * S), CallerStep::Sleep(None)), "and waits for the answer");
    case.queued(5 * S);
    assert!(matches!(case.step(5 * S), CallerStep::GiveUp(GiveUp { cancelled: false, .. })));
}

#[test]
fn a_caller_gives_up_at_its_deadline_and_sleeps_until_then() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    let before = S - Duration::from_nanos(1);
    assert!(matches!(case.step(before), CallerStep::Sleep(Some(at)) if at == case.start + S));
    assert!(matches!(case.step(S), CallerStep::GiveUp(_)));
}

#[test]
fn a_request_keeps_its_place_when_a_wait_for_it_is_over() {
    let case = in_line();
    let patience = Patience { keeps_place: true, ..case.patience(Wait::UpTo(S)) };
    assert!(matches!(step(&case, &patience, NOW), CallerStep::Sleep(_)));
    assert!(matches!(step(&case, &patience, S), CallerStep::NotYet));
    let looks = Patience { keeps_place: true, ..case.patience(Wait::No) };
    assert!(matches!(step(&case, &looks, NOW), CallerStep::NotYet));
    let cancelled = Patience { cancel: cancelled(), ..patience };
    assert!(matches!(step(&case, &cancelled, S), CallerStep::GiveUp(GiveUp { cancelled: true, .. })));
}

/// A grant that the withdrawal finds is not for a caller that was cancelled, or that only looked.
#[test]
fn only_a_wait_that_is_over_wants_a_grant_of_that_moment() {
    let until = |case: &Case| case.patience(Wait::UpTo(S));
    let takes = |case: &Case, patience: &Patience| {
        assert!(matches!(step(case, patience, S), CallerStep::GiveUp(_)));
        let now = case.start + S;
        case.claim.granted_while_leaving(TOKEN, now, LEASE, now)
    };
    let case = in_line();
    assert!(takes(&case, &until(&case)));
    let case = in_line();
    assert!(!takes(&case, &Patience { cancel: cancelled(), ..until(&case) }));
    let case = in_line();
    assert!(!takes(&case, &case.patience(Wait::No)));
}

#[test]
fn one_attempt_that_joins_a_longer_wait_only_looks_and_one_of_its_own_asks() {
    let case = in_line();
    case.claim.wake();
    case.join();
    let after = step(&case, &case.patience(Wait::No), NOW);
    assert!(matches!(after, CallerStep::GiveUp(GiveUp { after: AfterGivingUp::OthersWait, .. })));
    let case = Case::with(Wait::No, Terms::Renewed(LEASE));
    assert!(matches!(case.step(NOW), CallerStep::Ask));
}

#[test]
fn a_caller_that_was_cancelled_before_it_asked_leaves_nothing() {
    let case = Case::new();
    let patience = Patience { cancel: cancelled(), ..case.patience(Wait::Forever) };
    let CallerStep::GiveUp(give_up) = step(&case, &patience, NOW) else { panic!("it was cancelled") };
    assert!(give_up.cancelled && give_up.after == AfterGivingUp::Nothing && give_up.error.is_none());
    assert!(matches!(case.join(), Joined::Gone));
}

#[test]
fn a_caller_that_joins_attends_until_it_stops() {
    let case = in_line();
    case.join();
    case.claim.stop_attending();
    case.claim.wake();
    assert!(!matches!(case.watchdog_step(NOW), WatchdogStep::Ask(_)), "the other one asks");
    case.claim.stop_attending();
    assert!(matches!(case.watchdog_step(NOW), WatchdogStep::Ask(_)));
}

#[test]
fn a_failure_is_told_to_every_caller_and_the_request_is_not_given_up_once_more() {
    let case = in_line();
    case.join();
    assert_eq!(case.claim.fail_for_shutdown(), Some(AfterGivingUp::Withdraw));
    for _ in 0..2 {
        assert!(matches!(case.step(NOW), CallerStep::Failed(Failure::Shutdown)));
    }
    assert!(case.claim.give_up_request().is_none());
}

#[test]
fn a_dropped_request_gives_up_its_share_of_what_waits_only() {
    let case = in_line();
    case.join();
    let gives_up = || case.claim.give_up_request().map(|give_up| give_up.after);
    assert_eq!(gives_up(), Some(AfterGivingUp::OthersWait));
    assert_eq!(gives_up(), Some(AfterGivingUp::Withdraw));
    assert_eq!(gives_up(), None);
    let held = Case::new();
    held.step(NOW);
    held.granted(NOW);
    assert!(held.claim.give_up_request().is_none(), "it is unlocked instead");
}

#[test]
fn a_shutdown_fails_what_waits_and_withdraws_what_was_asked_for() {
    let case = Case::new();
    assert_eq!(
        case.claim.fail_for_shutdown(),
        Some(AfterGivingUp::Nothing),
        "the server knows nothing of it"
    );
    assert!(matches!(case.join(), Joined::Gone));
    let case = in_line();
    assert_eq!(case.claim.fail_for_shutdown(), Some(AfterGivingUp::Withdraw));
    assert!(case.claim.fail_for_shutdown().is_none(), "it fails once");
    let held = Case::new();
    held.step(NOW);
    held.granted(NOW);
    assert!(held.claim.fail_for_shutdown().is_none());
    assert_eq!(held.claim.hold_count(held.start), 1, "holds are lost by other means");
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
fn a_plain_lock_that_is_busy_is_waited_for_without_a_rank() {
    let mut case = Case::new();
    case.claim.lock.kind = LockKind::Plain;
    case.step(NOW);
    assert_eq!(case.answer(NOW, Ok(Acquired::Busy { recheck_in: S })), AfterAnswer::Nothing);
    assert!(matches!(case.step(NOW), CallerStep::Sleep(Some(at)) if at == case.start + S));
    case.renewed(NOW, waiting_at_rank(4));
    assert_eq!(case.claim.rank(), None);
}

#[test]
fn the_debug_text_of_a_claim_names_lock_and_owner() {
    let text = format!("{:?}", Case::new().claim);
    assert!(text.contains("\"x\"") && text.contains("u:1"), "{text}");
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
