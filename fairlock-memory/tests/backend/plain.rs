//! Plain locks: there is no queue, the first caller gets a free lock, and every waiting client is woken.

use crate::story::*;

#[test]
fn a_plain_lock_goes_to_the_first_caller_after_a_release() {
    let s = plain().a().gets().b().knocks().looking_in(30 * S).queue(&[]).a().releases();
    s.client(0).hears(RECHECK).held_by(&[]).c().gets().b().knocks();
}

#[test]
fn a_release_wakes_each_waiting_client_once_and_no_other() {
    let s = plain().a().of_client(2).gets().b().knocks().c().knocks().d().knocks().e().of_client(1).knocks();
    s.f().of_client(2).is_busy().a().releases().client(0).hears(RECHECK).client(1).hears(RECHECK);
}

/// The interest ends with a grant a withdrawal or an attempt without wait.
#[test]
fn the_interest_ends_with_the_request() {
    let s = plain().a().gets().b().knocks().c().knocks().d().knocks().a().releases().client(0).hears(RECHECK);
    s.b().gets().c().leaves().d().is_busy().b().releases();
}

/// A renewed plain request is told when to recheck or that the lock is free.
#[test]
fn a_renewed_plain_request_is_told_when_to_look() {
    let s = plain().a().gets().b().knocks().pass(10 * S).b().beats(0).looking_in(20 * S).pass(20 * S);
    s.b().beats(0).looking_in(ms(0)).gets().beat_once().keeps().lasting(30 * S).releases();
}

#[test]
fn a_renewal_registers_a_removed_interest_again() {
    plain().a().gets().b().beats(0).a().releases().client(0).hears(RECHECK);
}

#[test]
fn force_on_a_plain_lock_tells_the_holder_and_the_waiters() {
    plain().a().of_client(1).gets().b().knocks().forced().a().hears_taken().client(0).hears(RECHECK);
}
