//! Pushed grants, and the answers and heartbeats that they cross.

use super::*;

stories! {
    /// Valid from the time when the ask was sent, for the life of the place.
    fn a_push_that_overtakes_the_answer_waits_for_it() {
        "caller asks; at 1s; push no; at 0s; answer rank/1 Granted WakeUp; until 4948ms"
    }

    fn a_late_answer_does_not_undo_a_push() {
        "caller asks; answer rank/1; wake; at 1s; caller asks; push yes; answer rank/1 Nothing; caller takes 7 1"
    }

    /// The server is asked instead.
    fn a_push_is_not_believed_past_the_place_it_was_for() {
        "caller asks; answer rank/1; at 5s; push no; caller asks"
    }

    /// The process stood still until its grant was nearly over. It hears that from a heartbeat, and only then hears the push.
    fn a_grant_that_is_over_is_not_believed_because_its_push_comes_later() {
        "caller asks; answer rank/1; at 5s; beat got/7/2ms Nothing; push no; count 0"
    }

    fn heartbeats_move_the_time_from_which_a_push_counts() {
        "caller asks; answer rank/1; at 4s; beat rank/0/1; at 6s; push yes; until 8948ms"
    }

    /// No renewal is hurried by it.
    fn a_heartbeats_answer_that_a_push_has_overtaken_changes_nothing() {
        "caller asks; answer rank/1; at 1s; push yes; due 1100ms; beat rank/0/1 Nothing; due 1100ms; beat got/7 Nothing
        due 1100ms"
    }

    /// An operator takes the hold while the answer that tells of the grant is on its way. The message counts once: a forged one
    /// can't keep a claim from its grant.
    fn a_grant_that_was_taken_away_before_its_answer_came_is_not_believed() {
        "caller asks; taken yes; answer got/7 Nothing; token None; caller asks; answer got/7 Granted WakeUp; taken no"
    }

    /// An error would say that the lease is too short.
    fn a_grant_that_was_taken_away_is_no_error() {
        "waits 1s; caller asks; taken yes; answer got/7 Nothing; at 1s; caller gives-up Withdraw quietly"
    }

    fn a_push_grants_no_more_than_the_lease_that_was_asked_for() {
        "is fixed 2s; caller asks; answer rank/1; at 1s; push yes; until 1978ms"
    }
}
