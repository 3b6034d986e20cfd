//! Repeats after lost replies, and withdrawals that meet a grant: each request does the same only once.

use std::time::Duration;

use fairlock_core::backend::{Acquired, BackendErrorKind, Released, Renewal, Wait, Withdrawn};
use fairlock_memory::Operation;

use crate::support::{Fixture, LEASE, TTL};

#[test]
fn a_repeated_acquire_of_the_holder_is_granted_with_the_same_token_and_the_rest_of_the_lease() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    fixture.faults().lose_reply(Operation::Acquire, 1);
    assert_eq!(a.acquire(Wait::Forever).unwrap_err().kind(), BackendErrorKind::Unavailable);
    let token = fixture.inspect().holder().unwrap().token.unwrap();
    fixture.clock.advance(Duration::from_secs(10));
    let lease = LEASE - Duration::from_secs(10);
    assert_eq!(a.acquire(Wait::Forever).unwrap(), Acquired::Granted { token, lease });
    assert_eq!(fixture.inspect().holder().unwrap().hold_count, 1);
}

#[test]
fn a_repeated_acquire_of_a_waiter_keeps_its_one_place() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    a.gets_it();
    fixture.faults().lose_reply(Operation::Acquire, 1);
    assert!(b.acquire(Wait::Forever).is_err());
    c.queues(1);
    b.queues(0);
    assert_eq!(fixture.line(), [b.owner, c.owner]);
}

#[test]
fn a_repeated_release_takes_nothing_from_the_next_holder() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    fixture.faults().lose_reply(Operation::Release, 1);
    assert!(a.release(token).is_err());
    let next = b.told_by(&client);
    assert_eq!(a.release(token).unwrap(), Released::NotHeld);
    assert_eq!(fixture.inspect().holder().unwrap().token, Some(next));
}

#[test]
fn a_late_release_does_not_end_the_next_hold_of_the_same_owner() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let a = fixture.request(&client, 1);
    let again = fixture.request_of(&client, a.owner.clone(), 2);
    let token = a.gets_it();
    a.release(token).unwrap();
    let second = again.gets_it();
    assert_eq!(a.release(token).unwrap(), Released::NotHeld);
    assert_eq!(fixture.inspect().holder().unwrap().token, Some(second));
}

#[test]
fn a_repeated_release_removes_the_place_of_a_late_acquire() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    a.release(token).unwrap();
    b.gets_it();
    a.queues(0); // its first attempt arrives
    c.queues(1);
    assert_eq!(a.release(token).unwrap(), Released::NotHeld);
    assert_eq!(fixture.line(), [c.owner]);
}

/// Or a waiter that is silent because its process stands still would lose its turn.
#[test]
fn a_release_that_changes_nothing_is_no_heartbeat_of_the_line() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, stranger] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    for _ in 0..3 {
        fixture.clock.advance(Duration::from_secs(2));
        assert_eq!(stranger.release(token).unwrap(), Released::NotHeld);
    }
    a.release(token).unwrap();
    b.told_by(&client);
}

#[test]
fn a_repeated_renewal_of_a_place_that_became_a_hold_says_so_with_the_same_token() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    fixture.faults().lose_wake_ups(1);
    a.release(token).unwrap();
    assert!(client.heard().is_empty());
    let Renewal::Granted { token, lease } = b.renew_place().unwrap() else { panic!("not granted") };
    assert_eq!(lease, TTL);
    assert_eq!(b.renew_place().unwrap(), Renewal::Granted { token, lease });
    assert_eq!(b.gets_it(), token);
}

#[test]
fn a_withdrawal_leaves_no_trace_and_can_be_repeated() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.faults().lose_reply(Operation::Withdraw, 1);
    assert!(b.try_withdraw().is_err());
    assert_eq!(b.withdraw(), Withdrawn::Left);
    assert_eq!(fixture.line(), std::slice::from_ref(&c.owner));
    a.release(token).unwrap();
    c.told_by(&client);
}

#[test]
fn a_withdrawal_that_meets_a_grant_says_so_and_the_hold_can_be_released() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let first = a.gets_it();
    b.queues(0);
    c.queues(1);
    a.release(first).unwrap();
    let pushed = b.told_by(&client);
    let Withdrawn::WasGranted { token, lease } = b.withdraw() else { panic!("left") };
    assert_eq!((token, lease), (pushed, TTL));
    assert_eq!(b.withdraw(), Withdrawn::WasGranted { token, lease });
    assert_eq!(b.release(token).unwrap(), Released::Released);
    c.told_by(&client);
}

#[test]
fn a_withdrawal_never_makes_the_leaving_request_the_holder() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.faults().lose_hold("orders");
    assert_eq!(b.withdraw(), Withdrawn::Left);
    c.told_by(&client);
}

#[test]
fn a_place_that_was_granted_and_expired_is_lost_for_its_old_request() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    a.release(token).unwrap();
    let token = b.told_by(&client);
    fixture.clock.advance(TTL);
    assert_eq!(b.renew_hold(token, 1).unwrap(), Renewal::Lost);
    assert_eq!(b.renew_place().unwrap(), Renewal::Lost);
    assert_eq!(b.release(token).unwrap(), Released::NotHeld);
    assert!(b.gets_it() > token);
}
