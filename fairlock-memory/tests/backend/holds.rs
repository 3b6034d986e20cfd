//! Holds: counts, renewals, force, and tokens.

use std::time::Duration;

use fairlock_core::backend::{
    Acquired, Backend, ForceReleased, HoldCountSet, Released, Renew, Renewal, Wait,
};
use fairlock_core::{LockKind, LockName};

use crate::support::{Fixture, Heard, LEASE};

#[test]
fn a_renewal_prolongs_the_hold_sets_its_count_and_never_shortens_it() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    let token = a.gets_it();
    fixture.clock.advance(Duration::from_secs(20));
    assert_eq!(a.renew_hold(token, 3).unwrap(), Renewal::Renewed);
    let late = Renew::Hold { hold: a.hold(token), holds: 3, lease: Duration::from_secs(5) };
    assert_eq!(*fixture.backend.renew(client.id, &[late])[0].as_ref().unwrap(), Renewal::Renewed);
    let holder = fixture.inspect().holder().cloned().unwrap();
    assert_eq!((holder.hold_count, holder.lease_left), (3, Some(LEASE)));
    fixture.clock.advance(LEASE);
    assert!(fixture.holder().is_none());
    assert_eq!(a.renew_hold(token, 3).unwrap(), Renewal::Lost);
}

#[test]
fn the_hold_count_is_set_only_for_the_hold_that_is_named() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    assert_eq!(fixture.backend.set_hold_count(&a.hold(token), 2).unwrap(), HoldCountSet::Set);
    assert_eq!(fixture.backend.set_hold_count(&b.hold(token), 9).unwrap(), HoldCountSet::Lost);
    assert_eq!(fixture.inspect().holder().unwrap().hold_count, 2);
    a.release(token).unwrap();
    let second = a.gets_it();
    assert_eq!(fixture.backend.set_hold_count(&a.hold(token), 9).unwrap(), HoldCountSet::Lost);
    assert_eq!(fixture.backend.set_hold_count(&a.hold(second), 2).unwrap(), HoldCountSet::Set);
}

#[test]
fn each_token_is_greater_than_all_before_even_those_of_removed_locks() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let first = a.gets_it();
        b.queues(0);
        a.release(first).unwrap();
        let second = b.told_by(&client);
        b.release(second).unwrap();
        assert!(fixture.holder().is_none());
        tokens.extend([first, second]);
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    assert!(u128::from(tokens[0].get()).abs_diff(wall) < 60_000_000);
    fixture.clock.advance(Duration::from_secs(1));
    assert!(a.gets_it().get() >= tokens[5].get() + 999_000);
}

#[test]
fn a_new_request_of_the_holder_waits_until_the_old_hold_is_over() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let a = fixture.request(&client, 1);
    let again = fixture.request_of(&client, a.owner.clone(), 2);
    let old = a.gets_it();
    again.queues(0);
    assert_eq!(a.renew_hold(old, 1).unwrap(), Renewal::Renewed, "it takes nothing from the old one");
    assert_eq!(a.release(old).unwrap(), Released::Released);
    let Acquired::Granted { token, .. } = again.acquire(Wait::Forever).unwrap() else { panic!() };
    assert!(token > old);
    assert_eq!(a.release(old).unwrap(), Released::NotHeld);
    assert_eq!(fixture.inspect().holder().unwrap().token, Some(token));
}

#[test]
fn a_release_with_a_wrong_token_or_request_touches_nothing() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let first = a.gets_it();
    a.release(first).unwrap();
    let token = a.gets_it();
    assert_eq!(a.release(first).unwrap(), Released::NotHeld);
    assert_eq!(b.release(token).unwrap(), Released::NotHeld);
    assert_eq!(fixture.inspect().holder().unwrap().token, Some(token));
}

#[test]
fn force_takes_the_lock_tells_the_holder_and_hands_on() {
    let fixture = Fixture::fair();
    let (victim, client) = (fixture.client(), fixture.client());
    let (a, b) = (fixture.request(&victim, 1), fixture.request(&client, 2));
    let token = a.gets_it();
    b.queues(0);
    assert_eq!(fixture.backend.force_release(&fixture.lock).unwrap(), ForceReleased::Taken);
    assert_eq!(victim.heard(), [Heard::Taken(a.owner.clone(), token)]);
    let next = b.told_by(&client);
    assert_eq!(a.release(token).unwrap(), Released::NotHeld);
    b.release(next).unwrap();
    assert_eq!(fixture.backend.force_release(&fixture.lock).unwrap(), ForceReleased::NotHeld);
}

#[test]
fn a_lease_may_be_endless() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    let mut ask = a.ask(Wait::No);
    ask.lease = Duration::MAX;
    ask.place.ttl = Duration::MAX;
    assert!(matches!(fixture.backend.acquire(&ask).unwrap(), Acquired::Granted { .. }));
    fixture.clock.advance(Duration::from_secs(3600));
    assert_eq!(fixture.holder(), Some(a.owner));
}

#[test]
fn a_fair_and_a_plain_handle_of_one_name_exclude_each_other_and_the_line_comes_first() {
    let mut fixture = Fixture::fair();
    let client = fixture.client();
    fixture.lock.kind = LockKind::Plain;
    let plain_lock = fixture.lock.clone();
    assert_eq!(plain_lock.name, LockName::new("orders").unwrap());
    let token = fixture.request(&client, 1).gets_it();
    assert!(matches!(fixture.request(&client, 2).acquire(Wait::Forever), Ok(Acquired::Busy { .. })));
    fixture.lock.kind = LockKind::Fair;
    let fair = fixture.request(&client, 3);
    fair.queues(0);
    fixture.request(&client, 1).release(token).unwrap();
    let token = fair.told_by(&client);
    fair.release(token).unwrap();
    assert_eq!(client.heard(), [Heard::Recheck]);
}

/// Each call has its own number: a place that was asked for in another one is not granted as if its owner had the answer.
#[test]
fn a_hold_that_is_taken_goes_to_no_waiter_that_would_not_hear_of_it() {
    let fixture = Fixture::fair();
    let (client, mut other) = (fixture.client(), fixture.client());
    let (a, stranger, b) =
        (fixture.request(&client, 1), fixture.request(&client, 2), fixture.request(&other, 3));
    let token = a.gets_it();
    b.queues(0);
    other.hangs_up();
    stranger.withdraw();
    assert_eq!(fixture.backend.take_hold(&a.hold(token)).unwrap(), ForceReleased::Taken);
    assert_eq!(fixture.holder(), None);
}
