//! The claim of a task: who asks for it, who ends its wait, and for how long its grant is kept.

use super::*;

stories! {
    /// Until that thread leaves it.
    fn the_watchdog_leaves_the_first_attempt_to_the_thread_for_tasks() {
        "is task; at 1s; dog waits 10s; leave 0s; dog asks"
    }

    /// It has to be sent once. The server knows nothing of it. An ask that is under way is waited for, as for threads; and a
    /// thread's request has a thread that asks.
    fn a_request_that_was_never_sent_fails_after_the_outage_limit_and_only_then() {
        "waits 1s; is task; at 9999999999ns; dog waits; at 10s; dog gives-up; task fails; leaves no; begin-to-ask no"
        "is task; begin-to-ask yes; at 20s; dog waits ever"
        "leave; at 20s; dog asks"
    }

    /// No grant is believed from there on: it is passed on.
    fn a_wait_whose_time_is_over_gives_up_and_is_busy() {
        "waits 1s; is task; begin-to-ask yes; answer rank/1; leave; at 990ms; dog waits 1s; at 1s; dog gives-up; leaves 0
        push no; task is-busy; at 2s; dog waits ever; at 1s; late-grant no"
    }

    /// Without any error, too: nothing was heard for two heartbeats.
    fn a_wait_that_ends_in_silence_is_an_error() {
        "waits 4s; is task; begin-to-ask yes; answer rank/1; leave; at 2s; beat down; at 4s; dog gives-up; task fails"
        "waits 4s; is task; begin-to-ask yes; answer rank/1; leave; at 4s; dog gives-up; task fails"
    }

    fn a_grant_ends_the_time_of_a_wait() {
        "waits 1s; is task; begin-to-ask yes; answer rank/1; leave; at 500ms; push yes; at 1s; dog renews-hold
        task takes 7"
    }
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
    let [untaken, taken] =
        [(); 2].map(|()| Case::after("is task; begin-to-ask yes; answer got/7 Granted; leave"));
    let last = last_renewal(&untaken, 5 * LEASE);
    assert!(last > LEASE / 2 && last < LEASE, "{last:?}");
    let TaskStep::Take { due_at, .. } = taken.claim.task_step(taken.start + LEASE / 2) else { panic!() };
    assert!(due_at.is_some_and(|at| at < taken.start + LEASE / 2), "the watchdog is told at once");
    assert!(last_renewal(&taken, 5 * LEASE) > 4 * LEASE);
}

/// What failed before says nothing of the release.
#[test]
fn a_release_has_errors_of_its_own() {
    let case =
        Case::after("is task; begin-to-ask yes; answer rank/1; leave; beat denied; push yes; task takes 7");
    let case = case.tell("unlock Last");
    case.claim.tell_by(case.start + S);
    assert!(matches!(case.claim.release_step(), ReleaseStep::UnderWay(None)));
    let case = case.tell("at 1s; dog tells; dog waits ever (it was told)");
    case.claim.leaving_failed(unavailable());
    assert!(matches!(case.claim.release_step(), ReleaseStep::UnderWay(Some(_))));
    case.claim.retire();
    assert!(matches!(case.claim.release_step(), ReleaseStep::Released));
}
