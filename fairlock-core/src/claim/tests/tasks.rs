//! The claim of a task: who asks for it, who ends its wait, and for how long its grant is kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use super::*;

/// The watchdog leaves the first attempt to a thread for tasks, until that thread gives the claim up.
#[test]
fn the_watchdog_leaves_first_attempts_of_tasks_alone() {
    claim().as_task().at(S).dog().waits_until(10 * S).leave().is(Some(ms(0))).dog().asks();
}

/// A request that was never sent fails after the outage limit and only then. It has to be sent once. The server knows nothing of
/// it. An ask that is under way is waited for, as for threads; and a thread's request has a thread that asks.
#[test]
fn a_request_never_sent_fails_after_the_outage_limit() {
    let c = claim().tries_for(S).as_task().at(ns(9_999_999_999)).dog().waits().at(10 * S).dog().gives_up();
    c.task().fails().leaving().none().begin_to_ask().no();
    claim().as_task().begin_to_ask().yes().at(20 * S).dog().waits_for_ever();
    claim().leave().at(20 * S).dog().asks();
}

/// No grant is believed from there on: it is passed on.
#[test]
fn a_wait_whose_time_is_over_gives_up_and_is_busy() {
    let c = claim().tries_for(S).as_task().begin_to_ask().yes().answer(rank(1)).leave().at(ms(990));
    let c = c.dog().waits_until(S).at(S).dog().gives_up().leaving().is(Some((0, None::<&str>))).push().no();
    c.task().is_busy().at(2 * S).dog().waits_for_ever().at(S).late_grant().no();
}

/// Without any error, too: nothing was heard for two heartbeats.
#[test]
fn a_wait_that_ends_in_silence_is_an_error() {
    let c = claim().tries_for(4 * S).as_task().begin_to_ask().yes().answer(rank(1)).leave().at(2 * S);
    c.beat(DOWN).at(4 * S).dog().gives_up().task().fails();
    let c = claim().tries_for(4 * S).as_task().begin_to_ask().yes().answer(rank(1)).leave().at(4 * S);
    c.dog().gives_up().task().fails();
}

#[test]
fn a_grant_ends_the_time_of_a_wait() {
    let c = claim().tries_for(S).as_task().begin_to_ask().yes().answer(rank(1)).leave().at(ms(500));
    c.push().yes().at(S).dog().renews_hold().task().gets(7);
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

/// Only a grant that was taken is renewed for longer than a lease.
#[test]
fn only_a_taken_grant_is_renewed_longer_than_a_lease() {
    let [untaken, taken] = [(); 2].map(|()| {
        claim()
            .as_task()
            .begin_to_ask()
            .yes()
            .answer(got(7))
            .is(AfterAnswer::Granted(GrantedBy::FirstAsk))
            .leave()
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
    let case = claim().as_task().begin_to_ask().yes().answer(rank(1)).leave().beat(DENIED).push().yes();
    let case = case.task().gets(7);
    let case = case.unlock().last();
    case.claim.tell_by(case.start + S);
    assert!(matches!(case.claim.release_step(), ReleaseStep::UnderWay(None)));
    let case = case.at(S).dog().tells().dog().waits_for_ever(); // it was told
    case.claim.leaving_failed(unavailable(), case.start);
    assert!(matches!(case.claim.release_step(), ReleaseStep::UnderWay(Some(_))));
    case.claim.retire();
    assert!(matches!(case.claim.release_step(), ReleaseStep::Released));
}

/// A shutdown has no watchdog that would wake the task at its time.
#[test]
fn a_failure_after_the_time_of_a_task_wakes_the_task() {
    struct Wakes(AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let case = claim().as_task().begin_to_ask().yes().answer(rank(1)).leave().push().yes();
    let case = case.task().gets(7).unlock().last();
    let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
    case.claim.tell_by(case.start + S);
    // The grant causes the first wake-up.
    for (after, woken) in [(ms(0), 1), (ms(999), 1), (S, 2)] {
        case.claim.register(&Waker::from(Arc::clone(&wakes)));
        case.claim.leaving_failed(unavailable(), case.start + after);
        assert_eq!(wakes.0.load(Ordering::SeqCst), woken, "after {after:?}");
    }
}
