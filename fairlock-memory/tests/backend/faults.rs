//! The faults that tests inject.

use std::thread;
use std::time::Duration;

use fairlock_core::backend::{
    Acquired, Backend, BackendErrorKind, Released, Renew, Renewal, RequestId, Wait, Wake, WakeSink, Withdrawn,
};
use fairlock_memory::Operation;

use crate::support::{Fixture, Heard, LEASE};

struct Nothing;

impl WakeSink for Nothing {
    fn wake(&self, _: Wake<'_>) {}
}

#[test]
fn a_call_that_is_made_to_fail_is_not_carried_out() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    fixture.faults().fail_next(Operation::Acquire, 2);
    for _ in 0..2 {
        assert_eq!(a.acquire(Wait::Forever).unwrap_err().kind(), BackendErrorKind::Unavailable);
        assert!(fixture.holder().is_none());
    }
    a.gets_it();
}

#[test]
fn a_renewal_fails_as_a_whole_with_one_answer_for_each_item() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    fixture.faults().fail_next(Operation::Renew, 1);
    let items = [
        Renew::Hold { hold: a.hold(token), holds: 1, lease: LEASE },
        Renew::Place { place: b.place(), lease: LEASE },
    ];
    assert!(fixture.backend.renew(client.id, &items).iter().all(Result::is_err));
    let answers: Vec<_> = fixture.backend.renew(client.id, &items).into_iter().map(Result::unwrap).collect();
    assert!(matches!(answers[..], [Renewal::Renewed, Renewal::Waiting { rank: 0, .. }]));
}

#[test]
fn every_operation_can_be_made_to_fail() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    let token = a.gets_it();
    let operations = [
        Operation::Acquire,
        Operation::SetHoldCount,
        Operation::Release,
        Operation::Keep,
        Operation::Renew,
        Operation::Withdraw,
        Operation::ForceRelease,
        Operation::Inspect,
        Operation::Subscribe,
    ];
    for operation in operations {
        fixture.faults().fail_next(operation, 1);
    }
    assert!(a.acquire(Wait::No).is_err());
    assert!(fixture.backend.set_hold_count(&a.hold(token), 2).is_err());
    assert!(a.release(token).is_err());
    assert!(fixture.backend.keep(&a.hold(token), RequestId::new(9), LEASE).is_err());
    assert!(a.renew_hold(token, 1).is_err());
    assert!(a.try_withdraw().is_err());
    assert!(fixture.backend.force_release(&fixture.lock).is_err());
    assert!(fixture.backend.inspect(&fixture.lock, 0..0).is_err());
    assert!(fixture.backend.subscribe(client.id, std::sync::Arc::new(Nothing)).is_err());
    assert_eq!(a.gets_it(), token);
}

#[test]
fn a_delayed_call_is_carried_out_after_its_delay() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    fixture.faults().delay_next(Operation::Acquire, 1, Duration::from_secs(3));
    thread::scope(|scope| {
        let late = scope.spawn(|| a.acquire(Wait::No).unwrap());
        fixture.clock.wait_for_waiters(1);
        b.gets_it();
        fixture.clock.advance(Duration::from_secs(3));
        let recheck_in = LEASE - Duration::from_secs(3);
        assert_eq!(late.join().unwrap(), Acquired::Busy { recheck_in });
    });
}

#[test]
fn a_renewal_finds_what_a_lost_wake_up_said() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.faults().lose_wake_ups(1);
    a.release(token).unwrap();
    assert!(client.heard().is_empty());
    let Renewal::Granted { token, .. } = b.renew_place().unwrap() else { panic!("not granted") };
    b.release(token).unwrap();
    c.told_by(&client);
}

#[test]
fn a_lost_hold_causes_no_wake_up_and_the_next_call_hands_the_lock_on() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    fixture.faults().lose_hold("another lock");
    fixture.faults().lose_hold("");
    fixture.faults().lose_hold("orders");
    assert!(client.heard().is_empty());
    assert!(fixture.holder().is_none());
    assert_eq!(fixture.line(), std::slice::from_ref(&b.owner));
    // It is about the hold only; a call about the line hands the lock on.
    assert_eq!(a.renew_hold(token, 1).unwrap(), Renewal::Lost);
    assert!(client.heard().is_empty());
    c.withdraw();
    b.told_by(&client);
}

#[test]
fn a_client_that_is_cut_off_neither_calls_nor_gets_wake_ups() {
    let fixture = Fixture::fair();
    let (client, cut) = (fixture.client(), fixture.client());
    let (a, b, c) = (fixture.request(&client, 1), fixture.request(&cut, 2), fixture.request(&client, 3));
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.faults().cut_off(cut.id);
    fixture.faults().fail_next(Operation::Acquire, 1);
    assert!(b.acquire(Wait::Forever).is_err() && b.renew_place().is_err() && b.try_withdraw().is_err());
    assert!(fixture.backend.subscribe(cut.id, std::sync::Arc::new(Nothing)).is_err());
    assert!(a.acquire(Wait::Forever).is_err(), "the failure was kept for a call that gets through");
    assert_eq!(fixture.inspect().line.len(), 2);
    a.release(token).unwrap();
    let token = c.told_by(&client);
    fixture.faults().bring_back(cut.id);
    assert_eq!(cut.heard(), [Heard::Gap]);
    assert!(matches!(b.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    assert_eq!(c.release(token).unwrap(), Released::Released);
    b.told_by(&cut);
}

#[test]
fn a_client_that_was_not_cut_off_gets_no_gap() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    fixture.faults().bring_back(client.id);
    assert!(client.heard().is_empty());
}

#[test]
fn a_call_whose_client_is_cut_off_during_its_delay_fails() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    fixture.faults().delay_next(Operation::Acquire, 1, Duration::from_secs(3));
    thread::scope(|scope| {
        let late = scope.spawn(|| a.acquire(Wait::Forever).is_err());
        fixture.clock.wait_for_waiters(1);
        fixture.faults().cut_off(client.id);
        fixture.clock.advance(Duration::from_secs(3));
        assert!(late.join().unwrap());
    });
    assert!(fixture.holder().is_none());
}

#[test]
fn a_granted_waiter_that_is_cut_off_keeps_the_lock_only_as_long_as_its_place() {
    let fixture = Fixture::fair();
    let (client, cut) = (fixture.client(), fixture.client());
    let (a, b, c) = (fixture.request(&client, 1), fixture.request(&cut, 2), fixture.request(&client, 3));
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    a.release(token).unwrap();
    b.told_by(&cut);
    fixture.faults().cut_off(cut.id);
    let mut granted = None;
    for _ in 0..4 {
        fixture.clock.advance(Duration::from_millis(1_250));
        if let Renewal::Granted { token, .. } = c.renew_place().unwrap() {
            granted = Some(token);
        }
    }
    assert!(granted > Some(token));
    fixture.faults().bring_back(cut.id);
    assert_eq!(b.withdraw(), Withdrawn::Left);
}
