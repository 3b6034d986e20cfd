//! Holds: counted, renewed and lost.

use super::*;

#[test]
fn callers_that_joined_are_granted_together_and_the_last_unlock_releases() {
    let case = Case::new();
    assert!(matches!(case.join(), Joined::Waiting));
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.claim.unlock(case.start), Unlocked::StillHeld { count: 1, .. }));
    assert!(matches!(case.join(), Joined::Held { token: TOKEN, count: 2 }));
    assert!(matches!(case.claim.unlock(case.start), Unlocked::StillHeld { count: 1, .. }));
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Last { .. }));
    assert!(matches!(case.join(), Joined::Leaving));
}

#[test]
fn the_watchdog_renews_in_time_and_not_after_the_last_unlock() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.watchdog_step(S), WatchdogStep::Wait(Some(_))));
    assert!(matches!(
        case.watchdog_step(10 * S),
        WatchdogStep::RenewHold { token: TOKEN, count: 1, lease: LEASE }
    ));
    assert!(case.claim.is_renewing(), "unlock waits for it");
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Last { .. }));
    assert_eq!(case.renewed(10 * S, Renewal::Lost), AfterRenewal::Nothing, "the release overtook it");
    case.claim.renewal_done();
    assert!(!case.claim.is_renewing());
    assert!(matches!(case.watchdog_step(10 * S), WatchdogStep::Wait(None)));
}

/// The answer took long: others may have been told that this hold is over.
#[test]
fn a_hold_whose_time_is_over_is_not_revived_by_an_answer() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let (sent, over) = (case.start + 20 * S, case.claim.valid_until().expect("it is held"));
    let after = |now| case.claim.renewed(Ok(Renewal::Renewed), sent, LEASE, now);
    assert_eq!(after(over), AfterRenewal::Nothing);
    assert_eq!(case.claim.valid_until(), Some(over));
    assert!(matches!(after(over - Duration::from_millis(1)), AfterRenewal::Renewed(_)), "in time");
    assert!(case.claim.valid_until() > Some(over));
}

#[test]
fn a_renewal_that_comes_due_during_a_slow_round_goes_with_that_round() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let step =
        |at: Duration, meanwhile| case.claim.watchdog_step(&RoundTimes { meanwhile, ..case.times(at) });
    assert!(matches!(step(4 * S, 5 * S), WatchdogStep::Wait(Some(_))));
    assert!(matches!(step(5 * S, 5 * S), WatchdogStep::RenewHold { .. }));
}

#[test]
fn a_hold_is_lost_by_the_clock_even_if_no_thread_noticed() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let over = case.start + LEASE;
    assert_eq!(case.claim.hold_count(over), 0);
    assert_eq!(case.claim.loss(over).unwrap().cause, LostCause::NotRenewed);
    assert!(matches!(case.watchdog_step(LEASE), WatchdogStep::Lose(LostCause::NotRenewed)));
    assert!(matches!(case.claim.join(LockKind::Fair, 1, over), Joined::Expired));
    let loss = case.claim.lose(LostCause::NotRenewed).expect("it is reported").lost;
    let said = "lock `x` was lost by `worker 3` (u:1, token 7): its lease could not be renewed in time";
    assert_eq!(loss.to_string(), said);
    assert!(case.claim.lose(LostCause::Taken).is_none(), "reported once");
    assert!(matches!(case.claim.unlock(case.start), Unlocked::Lost { last: true, .. }));
}

#[test]
fn a_fixed_lease_is_renewed_only_to_its_end() {
    let case = Case::with(Wait::Forever, Terms::Fixed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    case.push(S);
    // The push is worth the rest of the place: one renewal raises it to the fixed lease, and there is no other.
    let WatchdogStep::RenewHold { lease, .. } = case.watchdog_step(4 * S) else { panic!() };
    assert_eq!(lease, LEASE - 4 * S);
    case.claim.renewed(Ok(Renewal::Renewed), case.start + 4 * S, lease, case.start + 4 * S);
    case.claim.renewal_done();
    let WatchdogStep::Wait(Some(at)) = case.watchdog_step(20 * S) else { panic!() };
    assert!(at <= case.start + LEASE && at > case.start + 29 * S);
    assert!(matches!(case.watchdog_step(at - case.start), WatchdogStep::Lose(LostCause::LeaseOver)));
}

/// The holder finds the end, reports it and gives the guard up, while the watchdog has seen the end and is about to report it.
#[test]
fn a_lost_hold_that_was_given_up_is_not_reported_again() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let over = case.start + LEASE;
    assert!(matches!(case.watchdog_step(LEASE), WatchdogStep::Lose(_)));
    assert!(case.claim.lose(LostCause::NotRenewed).is_some());
    assert!(matches!(case.claim.unlock(over), Unlocked::Lost { last: true, .. }));
    assert!(case.claim.lose(LostCause::NotRenewed).is_none());
}

#[test]
fn decisions_and_losses_are_each_sent_once() {
    let case = Case::new();
    let (sender, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(sender);
    case.step(NOW);
    case.granted(NOW);
    assert!(decided.try_recv().is_ok() && decided.try_recv().is_err());
    let (first_loss, lost) = FirstLoss::new();
    case.claim.tell_when_lost(&first_loss);
    case.claim.lose(LostCause::Taken).unwrap();
    assert_eq!(lost.try_recv().unwrap().cause, LostCause::Taken);
    assert!(case.claim.lose(LostCause::NotRenewed).is_none() && lost.try_recv().is_err());
    let (late, heard) = FirstLoss::new();
    case.claim.tell_when_lost(&late);
    assert_eq!(heard.try_recv().unwrap().cause, LostCause::Taken);
    assert!(late.cancel().is_cancelled() && first_loss.cancel().is_cancelled());
}

#[test]
fn a_hold_keeps_no_channels_of_guards_that_are_over() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    for _ in 0..3 {
        let (guards, lost) = FirstLoss::new();
        case.claim.tell_when_lost(&guards);
        assert_eq!(case.claim.lock_state().loss_channels.len(), 1);
        guards.close();
        assert!(lost.try_recv().is_err());
    }
    let [(first, heard), (second, heard_too)] = [FirstLoss::new(), FirstLoss::new()];
    case.claim.tell_when_lost(&first);
    case.claim.tell_when_lost(&second);
    case.claim.lose(LostCause::Taken).unwrap();
    assert!(heard.try_recv().is_ok() && heard_too.try_recv().is_ok(), "and all of the others");
}
