//! What messages do: grants, hints, forced releases and gaps.

use super::scene::*;
use crate::FencingToken;
use crate::backend::{RequestId, Wake};

#[test]
fn a_grant_for_the_request_that_waits_is_believed() {
    let s = threads().acquire().says(rank(0)).a().requests().is_pushed(9).decided().waits().gets(9);
    s.asked(ACQUIRE).stats(|s| s.wake_ups_ignored, 0).stats(|s| s.granted_by_wake_up, 1);
}

#[test]
fn a_stray_grant_is_left_to_its_lease_when_the_client_has_ended() {
    let s = threads().a().locks().unlocks().done().x().shuts_down().done().asked([ACQUIRE, RELEASE]);
    s.stray(9, A).backlog(0).asked_nothing();
}

/// A withdrawal of the shutdown may let the store grant a place that it could not be told to remove before.
#[test]
fn a_stray_grant_that_comes_during_a_shutdown_is_released_by_it() {
    let s = threads().a().locks().release().takes(S).x().shuts_down().stray(9, B).x().done();
    s.called(RELEASE.about(B), 1);
}

/// A stray grant for a client that has asked for nothing is released. The watchdog of a client that has asked for nothing yet
/// does not run.
#[test]
fn a_stray_grant_for_an_idle_client_is_released() {
    let s = threads().stray(9, A).asked(RELEASE.of(9)).pass(30 * S).asked_nothing();
    s.stats(|s| s.wake_ups_ignored, 1);
}

#[test]
fn a_grant_that_is_told_again_is_ignored() {
    let s = threads().acquire().says(rank(0)).a().requests().is_pushed(9).is_pushed(9);
    s.stats(|s| s.wake_ups_ignored, 1).asked(ACQUIRE);
}

/// A grant that a heartbeat has found counts as told when its message comes. A heartbeat finds the grant, and the message comes a
/// moment later: it was only slower.
#[test]
fn a_grant_found_by_a_heartbeat_counts_as_told_later() {
    let s = threads().acquire().says(rank(0)).a().requests().renew().says(got(9)).pass(ms(1667));
    s.stats(|s| s.granted_by_polling, 1).a().waits().gets(9).is_pushed(9).stats(|s| s.granted_by_wake_up, 1);
    s.stats(|s| s.granted_by_polling, 0).stats(|s| s.wake_ups_ignored, 0).called(RELEASE, 0);
    let s = threads().acquire().says(rank(0)).a().requests().renew().says(got(9)).pass(ms(1667));
    s.stats(|s| s.granted_by_polling, 1).a().waits().gets(9).unlocks().done().is_pushed(9);
    s.stats(|s| s.granted_by_wake_up, 1).stats(|s| s.granted_by_polling, 0).stats(|s| s.wake_ups_ignored, 0);
    s.called(RELEASE, 1);
}

/// Its token is not greater than what the server has said.
#[test]
fn a_grant_that_is_not_believed_is_a_reason_to_ask() {
    let s = threads().acquire().says([rank(0), got(11)]).a().requests().is_pushed(1);
    s.asked([ACQUIRE, ACQUIRE]).a().waits().gets(11);
}

#[test]
fn a_hint_for_an_owner_has_that_request_asked_for() {
    let s = threads().acquire().says([rank(0), rank(1), got(11)]).a().requests().b().on(A).requests();
    s.a().is_woken().decided().b().pending();
}

#[test]
fn a_hint_for_any_waiter_wakes_one_that_waits() {
    let s = threads().a().plain().locks().acquire().says(BUSY.times(3)).b().on(A).plain().requests();
    s.c().on(A).plain().requests().hint(A).asked(ACQUIRE.times(4)).stats(|s| s.wake_ups_ignored, 0).hint(D);
    s.stats(|s| s.wake_ups_ignored, 1);
}

/// A hold that was taken before its grant was heard of is not believed.
#[test]
fn a_hold_taken_before_its_grant_was_heard_is_not_believed() {
    let s = threads().acquire().says(rank(0).times(2)).a().requests().is_taken_with(9);
    // the server is asked instead
    s.stats(|s| s.wake_ups_ignored, 0).a().is_pushed(9).pending().asked([ACQUIRE, ACQUIRE]);
}

#[test]
fn after_a_gap_holds_and_places_are_renewed_at_once() {
    let s = threads().acquire().says(rank(0)).a().requests().b().locks().pass(S).asked([ACQUIRE, ACQUIRE]);
    s.gap().asked(RENEW.of(2).at(S)).stats(|s| s.gaps, 1).stats(|s| s.wake_ups_ignored, 0);
}

/// The subscription is back, so the server is probably back as well.
#[test]
fn after_a_gap_what_waits_for_a_pause_is_repeated_at_once() {
    let s = threads().a().locks().release().is_down().a().drops().pass(ms(3001)).release().is_up();
    s.forget_asked().gap().asked(RELEASE);
}

/// A grant that names another request or owner is no grant and is released once.
#[test]
fn a_grant_of_another_request_is_released_once() {
    let s = threads().acquire().says(rank(0)).a().requests();
    let claim = s.claim("a");
    let (request, token) = (RequestId::new(claim.request.get().wrapping_add(1)), FencingToken::new(9));
    for owner in [claim.owner.as_str(), "another client:1"] {
        for _ in 0..2 {
            s.store.wake(Wake::Granted { lock: "a", owner, request, token });
            s.settle();
        }
    }
    s.a().pending().asked([ACQUIRE, RELEASE.of(9)]).stats(|s| s.wake_ups_ignored, 4);
}

#[test]
fn a_message_that_names_another_lock_owner_or_token_is_ignored() {
    let s = threads().a().locks().gets(1001);
    let (request, token) = (RequestId::new(1), FencingToken::new(1001));
    let owner = s.claim("a").owner.clone();
    for wake in [
        Wake::Granted { lock: "", owner: "x:1", request, token },
        Wake::Recheck { lock: "a", owner: Some("x:1") },
        Wake::Taken { lock: "a", owner: owner.as_str(), token: FencingToken::new(1002) },
        Wake::Taken { lock: "a", owner: "x:1", token },
    ] {
        s.store.wake(wake);
    }
    s.stats(|s| s.wake_ups_ignored, 4).asked(ACQUIRE).a().is_held().is_taken().is_lost().hears(Taken);
    s.stats(|s| s.wake_ups_ignored, 4);
}

/// Its backend may not know yet that it is gone.
#[test]
fn a_message_for_a_client_that_is_gone_is_dropped() {
    let s = unwatched();
    s.release().says(DOWN).a().locks().drops();
    let (store, ..) = s.without_handles();
    store.ops();
    store.wake(Wake::Gap);
    assert!(store.ops().is_empty());
}
