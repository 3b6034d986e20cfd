//! Places that are gone: how they are put back, and which pushes are old.

use super::*;

/// The process stood still past the end of its place, and asked again before the push for that place arrived. The place is
/// put back where it was, with the same ticket.
#[test]
fn a_push_of_an_earlier_place_is_not_believed() {
    let c = in_queue().at(10 * S).beat(GONE).is(AfterRenewal::PlaceGone).caller().asks().ticket(1);
    c.answer(rank(1).latest(8)).is(AfterAnswer::Nothing).push().no().push_with(9).yes();
}

/// The same when a heartbeat is answered later than the ask that put the place back, and the answer to that ask after it.
#[test]
fn a_heartbeat_of_a_restored_place_says_which_pushes_are_old() {
    let c = in_queue().wake().at(10 * S).caller().asks().beat(rank(0).latest(7)).is(AfterRenewal::Nothing);
    c.at(ms(0)).answer(rank(1)).at(10 * S).push().no();
}

#[test]
fn every_repeat_names_the_ticket_that_the_request_was_told() {
    let c = claim().ticket(0).caller().asks().answer(rank(1).ticket(5)).ticket(5).at(S).beat(GONE).ticket(5);
    c.caller().asks().answer(DOWN).ticket(5);
}

#[test]
fn a_place_that_is_not_put_back_is_lost() {
    let c = claim().caller().asks().answer(rank(1).ticket(5)).at(S).beat(GONE).caller().asks();
    c.answer(rank(1).ticket(9)).is(AfterAnswer::PlaceLost).ticket(9);
}

/// A store whose places have no tickets.
#[test]
fn a_lost_place_is_asked_for_again() {
    let c = claim().caller().asks().answer(rank(1).ticket(0)).at(2 * S);
    c.beat(GONE).is(AfterRenewal::PlaceLost).caller().asks();
}
