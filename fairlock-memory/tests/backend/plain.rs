//! Plain locks: there is no line, the first caller gets a free lock, and every waiting client is woken.

use std::time::Duration;

use fairlock_core::backend::{Acquired, Backend, ForceReleased, Renewal, Wait, Withdrawn};

use crate::support::{Fixture, Heard, LEASE};

#[test]
fn a_plain_lock_goes_to_the_first_caller_after_a_release() {
    let fixture = Fixture::plain();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    assert_eq!(b.acquire(Wait::Forever).unwrap(), Acquired::Busy { recheck_in: LEASE });
    assert!(fixture.line().is_empty());
    a.release(token).unwrap();
    assert!(fixture.holder().is_none());
    assert!(c.gets_it() > token);
    assert!(matches!(b.acquire(Wait::Forever).unwrap(), Acquired::Busy { .. }));
}

#[test]
fn a_release_wakes_each_waiting_client_once_and_no_other() {
    let fixture = Fixture::plain();
    let (one, two, other) = (fixture.client(), fixture.client(), fixture.client());
    let a = fixture.request(&other, 0);
    let token = a.gets_it();
    for number in [1, 2, 3] {
        fixture.request(&one, number).acquire(Wait::Forever).unwrap();
    }
    fixture.request(&two, 4).acquire(Wait::UpTo(Duration::from_secs(1))).unwrap();
    fixture.request(&other, 5).acquire(Wait::No).unwrap();
    a.release(token).unwrap();
    assert_eq!(one.heard(), [Heard::Recheck]);
    assert_eq!(two.heard(), [Heard::Recheck]);
    assert!(other.heard().is_empty());
}

#[test]
fn the_interest_ends_with_a_grant_a_withdrawal_or_an_attempt_without_wait() {
    let fixture = Fixture::plain();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let token = a.gets_it();
    for waiter in [&b, &c, &d] {
        waiter.acquire(Wait::Forever).unwrap();
    }
    a.release(token).unwrap();
    assert_eq!(client.heard(), [Heard::Recheck]);
    let token = b.gets_it();
    assert_eq!(c.withdraw(), Withdrawn::Left);
    assert!(matches!(d.acquire(Wait::No).unwrap(), Acquired::Busy { .. }));
    b.release(token).unwrap();
    assert!(client.heard().is_empty());
}

#[test]
fn a_renewed_plain_request_is_told_when_to_recheck_or_that_the_lock_is_free() {
    let fixture = Fixture::plain();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    a.gets_it();
    b.acquire(Wait::Forever).unwrap();
    fixture.clock.advance(Duration::from_secs(10));
    let recheck_in = LEASE - Duration::from_secs(10);
    assert_eq!(b.renew_place().unwrap(), Renewal::Waiting { rank: 0, recheck_in, latest: 0 });
    fixture.clock.advance(recheck_in);
    let at_once = Renewal::Waiting { rank: 0, recheck_in: Duration::ZERO, latest: 0 };
    assert_eq!(b.renew_place().unwrap(), at_once);
    let token = b.gets_it();
    assert_eq!(b.renew_place().unwrap(), Renewal::Granted { token, lease: LEASE });
    b.release(token).unwrap();
    assert!(client.heard().is_empty());
}

#[test]
fn a_renewal_registers_a_removed_interest_again() {
    let fixture = Fixture::plain();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.renew_place().unwrap();
    a.release(token).unwrap();
    assert_eq!(client.heard(), [Heard::Recheck]);
}

#[test]
fn force_on_a_plain_lock_tells_the_holder_and_the_waiters() {
    let fixture = Fixture::plain();
    let (victim, client) = (fixture.client(), fixture.client());
    let (a, b) = (fixture.request(&victim, 1), fixture.request(&client, 2));
    let token = a.gets_it();
    b.acquire(Wait::Forever).unwrap();
    assert_eq!(fixture.backend.force_release(&fixture.lock).unwrap(), ForceReleased::Taken);
    assert_eq!(victim.heard(), [Heard::Taken(a.owner.clone(), token)]);
    assert_eq!(client.heard(), [Heard::Recheck]);
}
