//! Places that are gone: how they are put back, and which pushes are old.

use super::*;

stories! {
    /// The process stood still past the end of its place, and asked again before the push for that place arrived. The place is
    /// put back where it was, with the same ticket.
    fn a_push_of_an_earlier_place_is_not_believed() {
        "caller asks; answer rank/1; at 10s; beat lost PlaceGone; caller asks; ticket 1; answer rank/1/ever/1/8 Nothing
        push no; push 9 yes"
    }

    /// The same when a heartbeat is answered later than the ask that put the place back, and the answer to that ask after it.
    fn a_heartbeat_of_a_restored_place_says_which_pushes_are_old() {
        "caller asks; answer rank/1; wake; at 10s; caller asks; beat rank/0/7 Nothing; at 0s; answer rank/1; at 10s
        push no"
    }

    fn every_repeat_names_the_ticket_that_the_request_was_told() {
        "ticket 0; caller asks; answer rank/1/ever/5/5; ticket 5; at 1s; beat lost; ticket 5; caller asks; answer down
        ticket 5"
    }

    fn a_place_that_is_not_put_back_is_lost() {
        "caller asks; answer rank/1/ever/5/5; at 1s; beat lost; caller asks; answer rank/1/ever/9/9 PlaceLost; ticket 9"
    }

    /// A store whose places have no tickets.
    fn a_lost_place_is_asked_for_again() {
        "caller asks; answer rank/1/ever/0/0; at 2s; beat lost PlaceLost; caller asks"
    }
}
