//! Attempts that the server may carry out long after their repeats were answered: for six seconds.

use super::scene::{LATE, Scene, play, scenes};
use super::store::Op;
use super::support::{OUTAGE, S, World};
use crate::Client;

scenes! {
    /// Before that another attempt might still arrive.
    fn a_request_with_an_unanswered_attempt_is_withdrawn_once_more_when_that_can_begin_nothing_any_more() {
        LATE "acquire says down got/5000; a locks; a unlocks done; pass 5s; called withdraw 0; pass 2s
        called withdraw 1; pass 60s; called withdraw 1; called release 1"
    }

    fn a_grant_that_only_a_late_attempt_was_given_is_released() {
        LATE "acquire says down got/5000; a locks; a unlocks done; withdraw says got/6000; pass 7s
        asked acquire acquire release/5000 withdraw release/6000; chores 0"
    }

    fn an_attempt_that_was_answered_or_refused_leads_to_no_withdrawal() {
        LATE "a locks; a unlocks done; acquire says denied; b locks fails Denied; asked acquire release acquire ...
        pass 60s; asked nothing"
    }

    /// It may have been granted the lock between the release and its answer.
    fn a_request_with_an_old_unanswered_attempt_is_withdrawn_at_once() {
        LATE "acquire says down got/5000; a locks; pass 7s; a unlocks done; called withdraw 1; pass 60s
        called withdraw 1"
    }

    fn one_attempt_that_ends_busy_is_withdrawn_later_if_its_first_try_was_not_answered() {
        LATE "acquire says down busy; a tries is-busy; called withdraw 0; pass 7s; called withdraw 1"
    }

    /// At once, and after the attempt's end.
    fn a_request_that_left_the_line_is_withdrawn_once_more() {
        LATE "acquire says down rank/0; a requests; pass 1s; a drops; called withdraw 1; pass 6s; called withdraw 2"
    }

    fn a_lost_hold_is_withdrawn_once_more_though_its_guard_is_kept() {
        LATE "acquire says down got/5000; a locks; renew says lost; a renews lost Taken; pass 7s; called withdraw 1
        a drops; pass 60s; called withdraw 1"
    }

    fn an_unanswered_heartbeat_begins_nothing() {
        LATE "acquire says rank/0; a requests; renew says down; pass 1667ms; called renew 1..2; a is-pushed 5000
        a waits gets 5000; a unlocks done; pass 7s; called withdraw 0"
    }

    fn an_unanswered_renewal_of_a_hold_begins_nothing() {
        LATE "a locks; renew says down; a renews fails Unavailable; a unlocks done; pass 7s; called withdraw 0"
    }

    fn an_owners_next_call_does_not_wait_where_places_are_named_by_requests() {
        LATE "acquire says down got/5000; a locks; a unlocks done; a locks gets 1001 0s; pass 7s; called withdraw 1
        a is-held"
    }

    /// One attempt does not wait for that; and the lock may be free.
    fn an_owners_next_call_waits_for_the_withdrawal_where_places_are_named_by_owners() {
        LATE_BY_OWNER "acquire says down got/5000; a locks; a unlocks done; a tries fails Unavailable 0s
        a tries-for 1s fails Unavailable 1s; a locks gets 1001 4s..8s; a unlocks done
        asked acquire acquire release withdraw acquire ..."
    }

    /// A late withdrawal would remove the place of the owner's next request. A release names its hold.
    fn a_withdrawal_that_was_not_answered_is_made_once_more_where_places_are_named_by_owners() {
        LATE "acquire says rank/0; a requests; withdraw says down; a drops; pass 18s; called withdraw 2; b locks
        release says down*2; b drops; pass 18s; called withdraw 2"
        LATE_BY_OWNER "acquire says rank/0; a requests; withdraw says down; a drops; pass 18s; called withdraw 3
        b locks; release says down*2; b drops; pass 18s; called withdraw 3"
    }

    /// It would remove the place of the owner's next request.
    fn an_owners_next_call_waits_for_an_unanswered_withdrawal_where_places_are_named_by_owners() {
        LATE "acquire says rank/0; withdraw says down; a tries-for 1s is-busy; a locks gets 1001 0s..5s"
        LATE_BY_OWNER "acquire says rank/0; withdraw says down; a tries-for 1s is-busy; a locks gets 1001 5001ms..9s"
    }

    /// The server may have granted the lock at the very end of the attempt, for a lease.
    fn a_withdrawal_is_repeated_for_as_long_as_what_a_late_attempt_began_may_last() {
        LATE "acquire says down*2; withdraw is-down; a tries fails Unavailable; pass 36s; called withdraw 9..99
        asked ...; pass 4s; called withdraw 1..99; pass 2s; asked ...; pass 60s; called withdraw 0"
    }

    fn a_shutdown_withdraws_at_once_what_may_still_arrive() {
        LATE "acquire says down got/5000; a locks; a unlocks done; x shuts-down done 0s..999ms; called withdraw 1"
    }
}

#[test]
fn a_client_learns_from_its_backend_for_how_long_an_attempt_may_be_late() {
    let world = World::new();
    world.store.plan().attempt_ttl = Some(6 * S);
    let client = Client::builder(world.store.clone()).clock(world.clock.clone()).build().unwrap();
    let mut scene = Scene::of_client(world, client);
    scene.play("acquire says down got/5000; a locks; a unlocks done; pass 7s; called withdraw 1");
    scene.ends();
}

#[test]
fn an_owners_next_call_waits_for_a_withdrawal_that_comes_after_the_outage_limit() {
    let world = World::with_late_attempts(OUTAGE + 5 * S);
    world.store.plan().keeps_place_by_owner = true;
    let client = world.client.clone();
    let mut scene = Scene::of_client(world, client);
    scene.play(
        "acquire says down got/5000; a locks; a unlocks done; a locks gets 1001 13s..17s; a unlocks done",
    );
    scene.ends();
}

/// An answer or a heartbeat is under way while a push grants the lock with token 9. The hold was over when that attempt was
/// carried out, so a release of it leaves what the attempt was given.
#[test]
fn a_holder_that_hears_of_another_grant_of_its_request_has_it_withdrawn() {
    for (asked, renewed, times) in [
        ("got/9", "got/9", 0),
        ("got/10", "got/10", 1),
        ("rank/0/ever/1/8", "rank/0/8", 0),
        ("rank/0/ever/1/9", "rank/0/9", 1),
    ] {
        let then =
            format!("a is-pushed 9; a waits gets 9; a unlocks done; pass 60s; called withdraw {times}");
        let asks = format!("acquire says {asked}; acquire takes 300ms; a is-woken; a is-asking");
        let beats = format!("renew says {renewed}; renew takes 300ms; pass 1667ms; a is-renewing");
        for crossed in [asks, beats] {
            play(&LATE, &format!("acquire says rank/0; a requests; {crossed}; {then}"));
        }
    }
}

/// A round of the watchdog may own the client.
#[test]
fn a_client_that_is_dropped_withdraws_at_once_what_may_still_arrive() {
    let mut scene = Scene::of(&LATE);
    scene.play("acquire says down got/5000; a locks; a unlocks done");
    let (store, ..) = scene.without_handles();
    assert_eq!(store.times(Op::Withdraw).len(), 1);
}
