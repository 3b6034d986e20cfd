//! Places that are gone: how they are put back, and which pushes are old.

use super::*;

/// The process stood still past the end of its place, and asked again before the push for that place arrived. The place is
/// put back where it was, with the same ticket.
#[test]
fn a_push_of_an_earlier_place_is_not_believed() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    assert_eq!(case.renewed(2 * PLACE, Renewal::Lost), AfterRenewal::PlaceGone);
    case.step(2 * PLACE);
    assert_eq!(case.claim.place().ticket, 1);
    assert_eq!(case.queued_as(2 * PLACE, 1, TOKEN.get() + 1), AfterAnswer::Nothing);
    assert!(!case.push(2 * PLACE));
    assert!(case.claim.pushed(FencingToken::new(9), case.start + 2 * PLACE));
}

/// The same when a heartbeat puts the place back, and the answer to an earlier ask comes after it.
#[test]
fn a_heartbeat_that_puts_a_place_back_says_which_pushes_are_old() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.claim.wake();
    case.step(2 * PLACE);
    assert_eq!(case.renewed(2 * PLACE, waiting(TOKEN.get())), AfterRenewal::Nothing);
    case.queued_as(NOW, 1, 1);
    assert!(!case.push(2 * PLACE));
}

#[test]
fn every_repeat_names_the_ticket_that_the_request_was_told() {
    let case = Case::new();
    assert_eq!(case.claim.acquire("").place.ticket, 0);
    case.step(NOW);
    case.queued_as(NOW, 5, 5);
    assert_eq!(case.claim.acquire("").place.ticket, 5);
    case.renewed(S, Renewal::Lost);
    assert_eq!(case.claim.place().ticket, 5);
    case.step(S);
    case.answer(S, Err(unavailable()));
    assert_eq!(case.claim.place().ticket, 5);
}

#[test]
fn a_place_that_is_not_put_back_is_lost() {
    let case = Case::new();
    case.step(NOW);
    case.queued_as(NOW, 5, 5);
    case.renewed(S, Renewal::Lost);
    case.step(S);
    assert_eq!(case.queued_as(S, 9, 9), AfterAnswer::PlaceLost);
    assert_eq!(case.claim.place().ticket, 9);
}

#[test]
fn a_lost_place_is_asked_for_again() {
    let case = Case::new();
    case.step(NOW);
    case.queued_as(NOW, 0, 0); // a store whose places have no tickets
    assert_eq!(case.renewed(2 * S, Renewal::Lost), AfterRenewal::PlaceLost);
    assert!(matches!(case.step(2 * S), CallerStep::Ask));
}
