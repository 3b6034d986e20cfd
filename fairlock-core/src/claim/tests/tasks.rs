//! The claim of a task: who asks for it, who ends its wait, and for how long its grant is kept.

use super::*;

/// A claim of a task whose time is over then, before the first attempt.
fn of_task(wait: Wait) -> Case {
    let Case { claim, start } = Case::with(wait, Terms::Renewed(LEASE));
    let until = if let Wait::UpTo(time) = wait { Some(start + time) } else { None };
    Case { claim: claim.of_task(until), start }
}

/// The same in line, and no thread attends to it any more.
fn in_line(wait: Wait) -> Case {
    let case = of_task(wait);
    assert!(case.claim.begin_to_ask());
    case.queued(NOW);
    case.claim.stop_attending();
    case
}

fn failed(case: &Case, at: Duration) -> bool {
    matches!(case.claim.task_step(case.start + at), TaskStep::Failed(Failure::Backend(_)))
}

#[test]
fn the_watchdog_leaves_the_first_attempt_to_the_thread_for_tasks() {
    let case = of_task(Wait::Forever);
    assert!(matches!(case.watchdog_step(S), WatchdogStep::Wait(Some(at)) if at == case.start + OUTAGE));
    assert_eq!(case.claim.stop_attending(), Some(case.start), "that thread left it");
    assert!(matches!(case.watchdog_step(S), WatchdogStep::Ask(_)));
}

#[test]
fn a_request_that_was_never_sent_fails_after_the_outage_limit_and_only_then() {
    let case = of_task(Wait::UpTo(S));
    let just_before = OUTAGE - Duration::from_nanos(1);
    assert!(matches!(case.watchdog_step(just_before), WatchdogStep::Wait(_)), "it has to be sent once");
    assert!(matches!(case.watchdog_step(OUTAGE), WatchdogStep::GivenUp));
    assert!(failed(&case, OUTAGE) && case.claim.leaving().is_none(), "the server knows nothing of it");
    assert!(!case.claim.begin_to_ask());
    // An ask that is under way is waited for, as for threads.
    let case = of_task(Wait::Forever);
    assert!(case.claim.begin_to_ask());
    assert!(matches!(case.watchdog_step(2 * OUTAGE), WatchdogStep::Wait(None)));
    // A thread's request has a thread that asks.
    let case = Case::new();
    case.claim.stop_attending();
    assert!(matches!(case.watchdog_step(2 * OUTAGE), WatchdogStep::Ask(_)));
}

#[test]
fn a_wait_whose_time_is_over_gives_up_and_is_busy() {
    let case = in_line(Wait::UpTo(S));
    assert!(matches!(case.watchdog_step(S - S / 100), WatchdogStep::Wait(Some(at)) if at == case.start + S));
    assert!(matches!(case.watchdog_step(S), WatchdogStep::GivenUp));
    assert!(case.claim.leaving().is_some() && !case.push(S), "no grant is believed from here on");
    assert!(matches!(case.claim.task_step(case.start + S), TaskStep::NotGranted));
    assert!(matches!(case.watchdog_step(2 * S), WatchdogStep::Wait(None)));
    let now = case.start + S;
    assert!(!case.claim.granted_while_leaving(TOKEN, now, LEASE, now), "it is passed on");
}

#[test]
fn a_wait_that_ends_in_silence_is_an_error() {
    let case = in_line(Wait::UpTo(4 * S));
    case.claim.renewed(Err(unavailable()), case.start + 2 * S, LEASE, case.start + 2 * S);
    assert!(matches!(case.watchdog_step(4 * S), WatchdogStep::GivenUp));
    assert!(failed(&case, 4 * S));
    // Without any error: its heartbeats are late.
    let case = in_line(Wait::UpTo(4 * S));
    assert!(matches!(case.watchdog_step(4 * S), WatchdogStep::GivenUp));
    assert!(failed(&case, 4 * S), "nothing was heard for two heartbeats");
}

#[test]
fn a_grant_ends_the_time_of_a_wait() {
    let case = in_line(Wait::UpTo(S));
    assert!(case.push(S / 2));
    assert!(!matches!(case.watchdog_step(S), WatchdogStep::GivenUp | WatchdogStep::Tell));
    assert!(matches!(case.claim.task_step(case.start + S), TaskStep::Take { token: TOKEN, .. }));
}

/// The watchdog renews, and is answered at once.
fn last_renewal(case: &Case, until: Duration) -> Duration {
    let (mut at, mut last) = (NOW, NOW);
    loop {
        match case.watchdog_step(at) {
            WatchdogStep::RenewHold { .. } => {
                last = at;
                case.renewed(at, Renewal::Renewed);
                case.claim.renewal_done();
            }
            WatchdogStep::Wait(Some(next)) => at = next - case.start,
            WatchdogStep::Lose(cause) => {
                assert_eq!(cause, LostCause::NotRenewed);
                return last;
            }
            other => panic!("{other:?}"),
        }
        if at > until {
            return last;
        }
    }
}

#[test]
fn only_a_grant_that_was_taken_is_renewed_for_longer_than_a_lease() {
    let [untaken, taken] = [(); 2].map(|()| {
        let case = of_task(Wait::Forever);
        assert!(case.claim.begin_to_ask());
        assert!(matches!(case.granted(NOW), AfterAnswer::Granted(_)));
        case.claim.stop_attending();
        case
    });
    let last = last_renewal(&untaken, 5 * LEASE);
    assert!(last > LEASE / 2 && last < LEASE, "{last:?}");
    let TaskStep::Take { due_at, .. } = taken.claim.task_step(taken.start + LEASE / 2) else { panic!() };
    assert!(due_at.is_some_and(|at| at < taken.start + LEASE / 2), "the watchdog is told at once");
    assert!(last_renewal(&taken, 5 * LEASE) > 4 * LEASE);
}

/// What failed before says nothing of the release.
#[test]
fn a_release_has_errors_of_its_own() {
    let case = in_line(Wait::Forever);
    let denied = BackendError::new(BackendErrorKind::Denied, "no heartbeats");
    case.claim.renewed(Err(denied), case.start, LEASE, case.start);
    assert!(case.push(NOW));
    assert!(matches!(case.claim.task_step(case.start), TaskStep::Take { .. }));
    case.claim.tell_by(case.start + S);
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Last { .. }));
    assert!(matches!(case.claim.release_step(), ReleaseStep::UnderWay(None)));
    assert!(matches!(case.watchdog_step(S), WatchdogStep::Tell));
    assert!(matches!(case.watchdog_step(S), WatchdogStep::Wait(None)), "it was told");
    case.claim.leaving_failed(unavailable());
    assert!(matches!(case.claim.release_step(), ReleaseStep::UnderWay(Some(_))));
    case.claim.retire();
    assert!(matches!(case.claim.release_step(), ReleaseStep::Released));
}
