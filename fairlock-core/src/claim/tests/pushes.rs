//! Pushed grants, and the answers and heartbeats that they cross.

use super::*;

#[test]
fn a_push_that_overtakes_the_answer_waits_for_it() {
    let case = Case::new();
    case.step(NOW);
    assert!(!case.push(S));
    assert_eq!(case.queued(NOW), AfterAnswer::Granted(GrantedBy::WakeUp));
    // Valid from the time when the ask was sent, for the life of the place.
    let until = case.claim.valid_until().unwrap() - case.start;
    assert_eq!(until, PLACE - terms::margin(PLACE));
}

#[test]
fn a_late_answer_does_not_undo_a_push() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.claim.wake();
    case.step(S);
    assert!(case.push(S));
    assert_eq!(case.queued(S), AfterAnswer::Nothing);
    assert!(matches!(case.step(S), CallerStep::Take { token: TOKEN, count: 1 }));
}

#[test]
fn a_push_is_not_believed_past_the_place_it_was_for() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    assert!(!case.push(PLACE));
    assert!(matches!(case.step(PLACE), CallerStep::Ask), "the server is asked instead");
}

/// The process stood still until its grant was nearly over. It hears that from a heartbeat, and only then hears the push.
#[test]
fn a_grant_that_is_over_is_not_believed_because_its_push_comes_later() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let nearly_over = Renewal::Granted { token: TOKEN, lease: Duration::from_millis(2) };
    assert_eq!(case.renewed(PLACE, nearly_over), AfterRenewal::Nothing);
    assert!(!case.push(PLACE));
    assert_eq!(case.claim.hold_count(case.start + PLACE), 0);
}

#[test]
fn heartbeats_move_the_time_from_which_a_push_counts() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.renewed(4 * S, waiting(1));
    assert!(case.push(6 * S));
    assert_eq!(case.claim.valid_until().unwrap() - case.start, 9 * S - terms::margin(PLACE));
}

#[test]
fn a_heartbeats_answer_that_a_push_has_overtaken_changes_nothing() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    assert!(case.push(S));
    let due = case.claim.due_at();
    for late in [waiting(1), Renewal::Granted { token: TOKEN, lease: LEASE }] {
        assert_eq!(case.renewed(S, late), AfterRenewal::Nothing);
        assert_eq!(case.claim.due_at(), due, "no renewal is hurried by it");
    }
}

/// An operator takes the hold while the answer that tells of the grant is on its way.
#[test]
fn a_grant_that_was_taken_away_before_its_answer_came_is_not_believed() {
    let case = Case::new();
    case.step(NOW);
    assert!(case.claim.taken_early(TOKEN));
    assert_eq!(case.granted(NOW), AfterAnswer::Nothing);
    assert!(case.claim.token().is_none());
    assert!(matches!(case.step(NOW), CallerStep::Ask));
    // The message counts once: a forged one can't keep a claim from its grant.
    assert_eq!(case.granted(NOW), AfterAnswer::Granted(GrantedBy::WakeUp));
    assert!(!case.claim.taken_early(TOKEN));
}

/// An error would say that the lease is too short.
#[test]
fn a_grant_that_was_taken_away_is_no_error() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    assert!(case.claim.taken_early(TOKEN));
    assert_eq!(case.granted(NOW), AfterAnswer::Nothing);
    assert!(matches!(case.step(S), CallerStep::GiveUp(GiveUp { error: None, .. })));
}

#[test]
fn a_push_grants_no_more_than_the_lease_that_was_asked_for() {
    let case = Case::with(Wait::Forever, Terms::Fixed(2 * S));
    case.step(NOW);
    case.queued(NOW);
    assert!(case.push(S));
    assert_eq!(case.claim.valid_until(), Some(case.start + 2 * S - terms::margin(2 * S)));
}
