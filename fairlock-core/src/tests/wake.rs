//! What messages do: grants, hints, forced releases and gaps.

use super::scene::{Scene, THREADS, UNWATCHED, scenes};
use crate::FencingToken;
use crate::backend::{RequestId, Wake};

scenes! {
    fn a_grant_for_the_request_that_waits_is_believed() {
        THREADS "acquire says rank/0; a requests; a is-pushed 9; a decided; a waits gets 9; asked acquire
        stats ignored 0; stats woken 1"
    }

    fn a_stray_grant_is_left_to_its_lease_when_the_client_has_ended() {
        THREADS "a locks; a unlocks done; x shuts-down done; asked acquire release; stray 9 a; chores 0
        asked nothing"
    }

    /// A withdrawal of the shutdown may let the store grant a place that it could not be told to remove before.
    fn a_stray_grant_that_comes_during_a_shutdown_is_released_by_it() {
        THREADS "a locks; release takes 1s; x shuts-down; stray 9 b; x done; called release b 1"
    }

    /// The watchdog of a client that has asked for nothing yet does not run.
    fn a_stray_grant_for_a_client_that_has_asked_for_nothing_is_released() {
        THREADS "stray 9 a; asked release/9; pass 30s; asked nothing; stats ignored 1"
    }

    fn a_grant_that_is_told_again_is_ignored() {
        THREADS "acquire says rank/0; a requests; a is-pushed 9; a is-pushed 9; stats ignored 1; asked acquire"
    }

    /// A heartbeat finds the grant, and the message comes a moment later: it was only slower.
    fn a_grant_that_a_heartbeat_has_found_counts_as_told_when_its_message_comes() {
        THREADS "acquire says rank/0; a requests; renew says got/9; pass 1667ms; stats polled 1; a waits gets 9
        a is-pushed 9; stats woken 1; stats polled 0; stats ignored 0; called release 0"
        THREADS "acquire says rank/0; a requests; renew says got/9; pass 1667ms; stats polled 1; a waits gets 9
        a unlocks done; a is-pushed 9; stats woken 1; stats polled 0; stats ignored 0; called release 1"
    }

    /// Its token is not greater than what the server has said.
    fn a_grant_that_is_not_believed_is_a_reason_to_ask() {
        THREADS "acquire says rank/0 got/11; a requests; a is-pushed 1; asked acquire acquire; a waits gets 11"
    }

    fn a_hint_for_an_owner_has_that_request_asked_for() {
        THREADS "acquire says rank/0 rank/1 got/11; a requests; b@a requests; a is-woken; a decided; b pending"
    }

    fn a_hint_for_any_waiter_wakes_one_that_waits() {
        THREADS "a is plain; a locks; acquire says busy*3; b@a is plain; b requests; c@a is plain; c requests
        hint a; asked acquire*4; stats ignored 0; hint d; stats ignored 1"
    }

    fn a_hold_that_was_taken_before_its_grant_was_heard_of_is_not_believed() {
        THREADS "acquire says rank/0*2; a requests; a is-taken 9; stats ignored 0; a is-pushed 9; a pending
        asked acquire acquire (the server is asked instead)"
    }

    fn after_a_gap_holds_and_places_are_renewed_at_once() {
        THREADS "acquire says rank/0; a requests; b locks; pass 1s; asked acquire acquire; gap; asked renew/2@1s
        stats gaps 1; stats ignored 0"
    }

    /// The subscription is back, so the server is probably back as well.
    fn after_a_gap_what_waits_for_a_pause_is_repeated_at_once() {
        THREADS "a locks; release is-down; a drops; pass 3001ms; release is-up; asked ...; gap; asked release"
    }
}

#[test]
fn a_grant_that_names_another_request_or_owner_is_no_grant_and_is_released_once() {
    let mut scene = Scene::of(&THREADS);
    scene.play("acquire says rank/0; a requests");
    let claim = scene.world.claim("a");
    let (request, token) = (RequestId::new(claim.request.get().wrapping_add(1)), FencingToken::new(9));
    for owner in [claim.owner.as_str(), "another client:1"] {
        for _ in 0..2 {
            scene.world.store.wake(Wake::Granted { lock: "a", owner, request, token });
            scene.world.settle();
        }
    }
    scene.play("a pending; asked acquire release/9; stats ignored 4");
}

#[test]
fn a_message_that_names_another_lock_owner_or_token_is_ignored() {
    let mut scene = Scene::of(&THREADS);
    scene.play("a locks gets 1001");
    let (request, token) = (RequestId::new(1), FencingToken::new(1001));
    let owner = scene.world.claim("a").owner.clone();
    for wake in [
        Wake::Granted { lock: "", owner: "x:1", request, token },
        Wake::Recheck { lock: "a", owner: Some("x:1") },
        Wake::Taken { lock: "a", owner: owner.as_str(), token: FencingToken::new(1002) },
        Wake::Taken { lock: "a", owner: "x:1", token },
    ] {
        scene.world.store.wake(wake);
    }
    scene.play(
        "stats ignored 4; asked acquire; a is-held; a is-taken; a is-lost; a hears Taken; stats ignored 4",
    );
}

/// Its backend may not know yet that it is gone.
#[test]
fn a_message_for_a_client_that_is_gone_is_dropped() {
    let mut scene = Scene::of(&UNWATCHED);
    scene.play("release says down; a locks; a drops");
    let (store, ..) = scene.without_handles();
    store.ops();
    store.wake(Wake::Gap);
    assert!(store.ops().is_empty());
}
