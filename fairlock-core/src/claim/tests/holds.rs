//! Holds: counted, renewed and lost.

use super::*;

/// Callers that joined are granted together and the last unlock releases.
#[test]
fn callers_that_joined_are_granted_together() {
    let c = claim().join().is(Joined::Waiting).caller().asks().answer(got(7)).unlock().still_held(1);
    let c = c.join().is(Joined::Held { token: TOKEN }).unlock().still_held(1).unlock().last();
    c.join().is(Joined::Leaving);
}

/// The release overtakes the renewal, which unlock waits for.
#[test]
fn the_watchdog_renews_in_time_and_not_after_the_last_unlock() {
    let c = held().at(S).dog().waits().at(10 * S).dog().renews_hold_for(1, 30 * S).is_renewing().yes();
    let c = c.unlock().last().beat(GONE).is(AfterRenewal::Nothing).renewal_over().is_renewing().no();
    c.dog().waits_for_ever();
}

/// A renewal that comes due during a slow round goes with that round.
#[test]
fn a_renewal_due_during_a_slow_round_goes_with_it() {
    held().meanwhile(5 * S).at(4 * S).dog().waits().at(5 * S).dog().renews_hold();
}

/// The holder finds the end, reports it and gives the guard up, while the watchdog has seen the end and is about to report it.
#[test]
fn a_lost_hold_that_was_given_up_is_not_reported_again() {
    let c = held().at(30 * S).dog().loses(LostCause::NotRenewed).lose().yes().unlock().lost_last();
    c.lose().no();
}

/// Another thread of the owner has found it lost, and is about to make the next claim. A hold that is released in time has not
/// ended: the next claim waits for the server's answer.
#[test]
fn a_lost_hold_has_ended_even_while_it_is_released() {
    let case = held().lose().yes().join().is(Joined::Gone).unlock().lost_last();
    assert!(case.claim.has_ended());
    assert!(!held().unlock().last().claim.has_ended());
}

#[test]
fn a_hold_is_lost_by_the_clock_even_if_no_thread_noticed() {
    let case = held().at(30 * S).count(0).loss(LostCause::NotRenewed).dog().loses(LostCause::NotRenewed);
    let case = case.join().is(Joined::Expired);
    let loss = case.claim.lose(LostCause::NotRenewed).expect("it is reported").lost;
    let said = "lock `x` was lost by `worker 3` (u:1, token 7): its lease could not be renewed in time";
    assert_eq!(loss.to_string(), said);
    let c = case.lose().no(); // reported once
    c.unlock().lost_last();
}

/// The answer took long: others may have been told that this hold is over.
#[test]
fn a_hold_whose_time_is_over_is_not_revived_by_an_answer() {
    let case = claim().caller().asks().answer(got(7));
    let (sent, over) = (case.start + 20 * S, case.claim.valid_until().expect("it is held"));
    let after = |now| case.claim.renewed(Ok(Renewal::Renewed), sent, LEASE, now);
    assert_eq!(after(over), AfterRenewal::Nothing);
    assert_eq!(case.claim.valid_until(), Some(over));
    assert!(matches!(after(over - Duration::from_millis(1)), AfterRenewal::Renewed(_)), "in time");
    assert!(case.claim.valid_until() > Some(over));
}

#[test]
fn a_fixed_lease_is_renewed_only_to_its_end() {
    let case = claim().fixed(30 * S).caller().asks().answer(rank(1)).at(S).push().yes();
    // The push is worth the rest of the place: one renewal raises it to the fixed lease, and there is no other.
    let WatchdogStep::RenewHold { lease, .. } = case.watchdog_step(4 * S) else { panic!() };
    assert_eq!(lease, LEASE - 4 * S);
    case.claim.renewed(Ok(Renewal::Renewed), case.start + 4 * S, lease, case.start + 4 * S);
    case.claim.renewal_done();
    let WatchdogStep::Wait(Some(at)) = case.watchdog_step(20 * S) else { panic!() };
    assert!(at <= case.start + LEASE && at > case.start + 29 * S);
    assert!(matches!(case.watchdog_step(at - case.start), WatchdogStep::Lose(LostCause::LeaseOver)));
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
    let case = claim().caller().asks().answer(got(7));
    for _ in 0..3 {
        let (guards, lost) = FirstLoss::new();
        case.claim.tell_when_lost(&guards);
        assert_eq!(case.claim.lock_state().held().unwrap().loss_channels.len(), 1);
        guards.close();
        assert!(lost.try_recv().is_err());
    }
    let [(first, heard), (second, heard_too)] = [FirstLoss::new(), FirstLoss::new()];
    case.claim.tell_when_lost(&first);
    case.claim.tell_when_lost(&second);
    case.claim.lose(LostCause::Taken).unwrap();
    assert!(heard.try_recv().is_ok() && heard_too.try_recv().is_ok(), "and all of the others");
}
