//! Holds: counts, renewals, force, and tokens.

use crate::story::*;

/// A renewal prolongs the hold sets its count and never shortens it.
#[test]
fn a_renewal_sets_the_count_and_never_shortens_the_hold() {
    let s = fair().a().gets().pass(20 * S).a().renews(3).lease(5 * S).a().renews(3).has(30 * S, 3);
    s.pass(30 * S).held_by(&[]).a().renew(1).gone();
}

#[test]
fn the_hold_count_is_set_only_for_the_hold_that_is_named() {
    let s = fair().a().gets().counts(2).b().naming(A).count(1).gone().a().has(30 * S, 2).releases().gets();
    s.a().naming_its_first().count(1).gone().counts(2).has(30 * S, 2);
}

#[test]
fn a_new_request_of_the_holder_waits_until_the_old_hold_is_over() {
    let s = fair().a().gets().a2().waits(0).a().renews(1); // it takes nothing from the old one
    s.a().releases().a2().hears().keeps().a().release().gone().a2().has(5 * S, 1);
}

#[test]
fn a_release_with_a_wrong_token_or_request_touches_nothing() {
    let s = fair().a().gets().releases().gets().naming_its_first().release().gone();
    s.b().naming(A).release().gone().a().has(30 * S, 1);
}

#[test]
fn force_takes_the_lock_tells_the_holder_and_hands_on() {
    let s = fair().a().of_client(1).gets().b().waits(0).forced().a().hears_taken().b().hears();
    s.a().release().gone().b().releases().force_finds_nothing();
}

#[test]
fn a_lease_may_be_endless() {
    fair().lease(EVER).ttl(EVER).a().tries().pass(3_600 * S).held_by(&[A]);
}

/// A fair and a plain handle of one name exclude each other and the queue comes first.
#[test]
fn fair_and_plain_handles_of_one_name_exclude_each_other() {
    let s = fair().as_plain().a().gets().b().knocks().as_fair().c().waits(0);
    s.a().releases().c().hears().releases().client(0).hears(RECHECK);
}

/// A hold that is taken goes to no waiter that would not hear of it. A place that was asked for in another call is not granted as
/// if its owner had the answer.
#[test]
fn a_taken_hold_goes_to_no_waiter_that_would_not_hear() {
    let s = fair().a().gets().b().of_client(1).waits(0).client(1).hangs_up().z().leaves().a().is_taken();
    s.held_by(&[]).a().hears_taken();
}

#[test]
fn the_next_waiter_is_told_when_a_hold_stays_for_a_time_only() {
    let s = fair().a().gets().b().waits(0).looking_in(ms(30_001)).a().stays(10 * S);
    s.client(0).hears(RECHECK_OF_ONE).b().waits(0).looking_in(ms(10_001)).a().release().gone().pass(10 * S);
    s.b().gets();
    let s = plain().a().gets().b().knocks().looking_in(30 * S).a().stays(10 * S).client(0).hears(RECHECK);
    s.b().knocks().looking_in(10 * S).a().release().gone();
}

/// Each token is greater than all before even those of removed locks. `gets` and `hears` tell of a greater token than any before.
#[test]
fn each_token_is_greater_than_all_before() {
    let s = fair().a().gets();
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    assert!(u128::from(s.greatest().get()).abs_diff(wall) < 60_000_000);
    for _ in 0..3 {
        s.b().waits(0).a().releases().b().hears().releases().held_by(&[]).a().gets();
    }
    let last = s.greatest().get();
    s.a().releases().pass(S).a().gets();
    assert!(s.greatest().get() >= last + 999_000);
}
