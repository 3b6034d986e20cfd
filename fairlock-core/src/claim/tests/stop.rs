//! After the client's stop, by a drain or a shutdown, no claim becomes a hold, whichever way the grant comes.

use super::*;
use crate::stop::Stop;

const STOPS: [fn(&Stop); 2] = [Stop::close, |stop| _ = stop.stop()];

/// Claims in line, at a moment when their client is stopped and has not failed them yet.
fn in_line() -> [Case; 2] {
    STOPS.map(|stop| {
        let case = Case::new();
        case.step(NOW);
        case.queued(NOW);
        stop(&case.claim.config.stop);
        case
    })
}

fn assert_not_held(case: &Case) {
    assert_eq!((case.claim.hold_count(case.start), case.claim.token()), (0, None));
    let after = case.claim.fail_for_shutdown();
    assert_eq!(after, Some(AfterGivingUp::Withdraw), "the server has to be told");
    assert!(matches!(case.step(NOW), CallerStep::Failed(Failure::Shutdown)));
    assert!(case.claim.is_open() && case.claim.fail_for_shutdown().is_none(), "once");
}

#[test]
fn a_push_is_not_believed_after_the_stop() {
    for case in in_line() {
        assert!(!case.push(NOW));
        assert_not_held(&case);
    }
}

#[test]
fn an_answer_is_not_believed_after_the_stop() {
    for case in in_line() {
        assert_eq!(case.granted(NOW), AfterAnswer::Nothing);
        assert_not_held(&case);
    }
}

#[test]
fn a_push_that_overtook_an_answer_is_not_believed_after_the_stop() {
    for stop in STOPS {
        let case = Case::new();
        case.step(NOW);
        assert!(!case.push(NOW), "kept for the answer");
        stop(&case.claim.config.stop);
        assert_eq!(case.queued(NOW), AfterAnswer::Nothing);
        assert_not_held(&case);
    }
}

#[test]
fn a_grant_that_a_renewal_finds_is_not_believed_after_the_stop() {
    for case in in_line() {
        let granted = Renewal::Granted { token: TOKEN, lease: LEASE };
        assert_eq!(case.renewed(NOW, granted), AfterRenewal::Nothing);
        assert_not_held(&case);
    }
}

#[test]
fn a_grant_that_a_withdrawal_finds_is_released_after_the_stop() {
    for stop in STOPS {
        let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
        case.step(NOW);
        case.queued(NOW);
        assert!(matches!(case.step(S), CallerStep::GiveUp(GiveUp { after: AfterGivingUp::Withdraw, .. })));
        stop(&case.claim.config.stop);
        let now = case.start + S;
        assert!(!case.claim.granted_while_leaving(TOKEN, now, LEASE, now));
        assert_eq!(case.claim.leaving_token(), Some(TOKEN), "it is to be released");
    }
}

#[test]
fn a_claim_that_was_never_asked_leaves_nothing_at_the_stop() {
    let case = Case::new();
    assert_eq!(case.claim.fail_for_shutdown(), Some(AfterGivingUp::Nothing));
    assert!(!case.claim.is_open());
}

/// A drain: its callers take it, its owner re-enters it, the watchdog renews it, and the last unlock releases it.
#[test]
fn a_hold_goes_on_when_the_client_is_closed() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    case.claim.config.stop.close();
    assert!(case.claim.fail_for_shutdown().is_none() && case.claim.is_open());
    assert!(matches!(case.step(NOW), CallerStep::Take { token: TOKEN, count: 1 }));
    let joined = case.claim.join(LockKind::Fair, 1, case.start);
    assert!(matches!(joined, Joined::Held { token: TOKEN, count: 2 }), "{joined:?}");
    case.renewed(10 * S, Renewal::Renewed);
    let late = case.start + LEASE;
    assert_eq!(case.claim.hold_count(late), 2);
    assert!(matches!(case.claim.unlock(late), Unlocked::StillHeld { count: 1, .. }));
    assert!(matches!(case.claim.unlock(late), Unlocked::Last { token: TOKEN, .. }));
    assert!(case.claim.is_open(), "until the server knows");
    case.claim.retire();
    assert!(!case.claim.is_open());
}

/// The grant comes before the stop, between it and the failing of the claim, or after both.
#[test]
fn a_claim_is_a_hold_only_if_its_grant_came_before_the_stop() {
    let grants: [fn(&Case); 3] = [
        |case| _ = case.push(NOW),
        |case| _ = case.granted(NOW),
        |case| _ = case.renewed(NOW, Renewal::Granted { token: TOKEN, lease: LEASE }),
    ];
    for (stop, grant) in STOPS.into_iter().flat_map(|stop| grants.map(|grant| (stop, grant))) {
        for moment in 0..3 {
            let case = Case::new();
            case.step(NOW);
            case.queued(NOW);
            let grant_at = |now: i32| {
                if now == moment {
                    grant(&case)
                }
            };
            grant_at(0);
            stop(&case.claim.config.stop);
            grant_at(1);
            let failed = case.claim.fail_for_shutdown();
            grant_at(2);
            let holds = moment == 0;
            assert_eq!(
                (failed.is_none(), case.claim.hold_count(case.start) == 1),
                (holds, holds),
                "{moment}"
            );
        }
    }
}
