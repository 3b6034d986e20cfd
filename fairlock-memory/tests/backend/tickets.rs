//! Waiters whose places are gone, but that know their tickets.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquired, Backend, LockId, Renew, Renewal, Wait, Withdrawn};

use crate::support::{Asker, Fixture, LEASE, TTL};

fn owners(askers: &[&Asker<'_>]) -> Vec<fairlock_core::OwnerId> {
    askers.iter().map(|asker| asker.owner.clone()).collect()
}

/// Their heartbeats may come in any order.
#[test]
fn lost_places_are_restored_in_the_order_of_their_tickets() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c, mut d, e] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    d.queues_and_knows(2);
    fixture.faults().lose_line("orders");
    d.queues(0);
    e.queues(1);
    assert!(matches!(b.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    c.queues(1);
    assert_eq!(fixture.line(), owners(&[&b, &c, &d, &e]));
    fixture.advance_with(TTL, &[&b, &c, &d, &e]);
    a.release(token).unwrap();
    b.told_by(&client);
}

/// The first heartbeat does not get the lock: waiters that stood ahead are heard within a place's time, or are absent.
#[test]
fn a_line_that_was_lost_with_its_hold_is_served_in_its_former_order() {
    let fixture = Fixture::fair();
    let (client, other) = (fixture.client(), fixture.client());
    let [a] = fixture.requests(&client);
    let mut b = fixture.request(&client, 1);
    let mut c = fixture.request(&other, 2);
    a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    fixture.faults().lose_line("orders");
    fixture.faults().lose_hold("orders");
    let looks_in = |asker: &Asker<'_>| match asker.renew_place().unwrap() {
        Renewal::Waiting { rank: 0, recheck_in, .. } => recheck_in,
        other => panic!("{other:?}"),
    };
    assert_eq!(looks_in(&c), TTL);
    let moment = Duration::from_millis(1);
    fixture.advance_with(TTL - moment, &[&c]);
    assert_eq!(looks_in(&b), moment); // the last moment of a living waiter
    // Nor does a newcomer, or an attempt without wait.
    let [d] = [fixture.request(&other, 3)];
    d.queues(2);
    assert!(matches!(a.acquire(Wait::No), Ok(Acquired::Busy { .. })));
    assert_eq!(fixture.holder(), None);
    fixture.clock.advance(moment);
    c.queues(0);
    b.told_by(&client);
}

/// Its process was stopped when its turn came.
#[test]
fn a_waiter_whose_grant_has_expired_is_served_next() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c, mut d] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    d.queues_and_knows(2);
    a.release(token).unwrap();
    let stale = b.told_by(&client);
    fixture.advance_with(TTL + Duration::from_secs(1), &[&c, &d]);
    let next = c.gets_it();
    // A late heartbeat of a request that was granted and released would look the same.
    assert_eq!(b.renew_place().unwrap(), Renewal::Lost);
    match b.acquire(Wait::Forever).unwrap() {
        Acquired::Queued { rank, ticket, latest, .. } => {
            assert_eq!((rank, ticket), (0, b.ticket));
            assert!(latest > stale.get() && latest > next.get());
        }
        other => panic!("{other:?}"),
    }
    c.release(next).unwrap();
    assert!(b.told_by(&client) > next);
}

/// The heartbeat was sent before its client learnt of the grant.
#[test]
fn a_heartbeat_that_comes_after_the_release_of_its_hold_leaves_nothing() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    a.release(token).unwrap();
    let token = b.told_by(&client);
    b.release(token).unwrap();
    assert_eq!(b.renew_place().unwrap(), Renewal::Lost);
    assert!(fixture.line().is_empty());
}

#[test]
fn a_ticket_that_was_never_given_out_is_not_restored() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c] = fixture.requests(&client);
    a.gets_it();
    b.queues_and_knows(0);
    for forged in [b.ticket + 1, b.ticket, u64::MAX, 1] {
        c.ticket = forged;
        assert_eq!(c.renew_place().unwrap(), Renewal::Lost);
        c.queues(1);
        assert_eq!(c.withdraw(), Withdrawn::Left);
    }
}

#[test]
fn a_waiter_that_was_kicked_goes_to_the_tail_and_no_further() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c, d] = fixture.requests(&client);
    a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    assert_eq!(fixture.backend.kick(&b.place()).unwrap(), Withdrawn::Left);
    assert_eq!(b.renew_place().unwrap(), Renewal::Lost);
    b.queues_and_knows(1);
    d.queues(2);
    // Its new place is like any other.
    fixture.faults().lose_line("orders");
    assert!(matches!(b.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    assert!(matches!(c.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    assert_eq!(fixture.line(), owners(&[&c, &b]));
}

/// Each of their calls is a heartbeat of the line, whose clock would stand still.
#[test]
fn a_lost_line_whose_waiters_are_silent_gives_way_to_others_that_ask() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, c] = fixture.requests(&client);
    a.gets_it();
    b.queues_and_knows(0);
    fixture.faults().lose_line("orders");
    fixture.faults().lose_hold("orders");
    assert!(matches!(b.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    for _ in 0..2 {
        fixture.clock.advance(Duration::from_secs(2));
        assert!(matches!(c.acquire(Wait::No), Ok(Acquired::Busy { .. })), "it may still be heard");
    }
    fixture.clock.advance(Duration::from_secs(1));
    assert!(matches!(c.acquire(Wait::No), Ok(Acquired::Granted { .. })));
}

#[test]
fn a_waiter_that_was_granted_the_lock_is_kicked_no_more() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c, d] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    d.queues(2);
    a.release(token).unwrap();
    let token = b.told_by(&client);
    let kicked = fixture.backend.kick(&b.place()).unwrap();
    assert!(matches!(kicked, Withdrawn::WasGranted { token: same, .. } if same == token), "{kicked:?}");
    fixture.advance_with(TTL + Duration::from_secs(1), &[&c, &d]);
    c.gets_it();
    b.queues(0); // its hold is over, and its ticket is still the first
}

#[test]
fn a_line_that_rests_beside_a_hold_is_looked_at_when_the_hold_ends() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b] = fixture.requests(&client);
    a.gets_it();
    b.queues_and_knows(0);
    fixture.faults().lose_line("orders");
    let Renewal::Waiting { rank: 0, recheck_in, .. } = b.renew_place().unwrap() else { panic!() };
    assert!(recheck_in > LEASE, "{recheck_in:?}");
}

/// It would ask again and again without a pause, since the lock is not held.
#[test]
fn a_waiter_without_a_place_looks_when_the_line_has_rested() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues_and_knows(0);
    fixture.faults().lose_line("orders");
    a.release(token).unwrap();
    assert!(matches!(b.renew_place().unwrap(), Renewal::Waiting { recheck_in: TTL, .. }));
    let plain = LockId::new(fixture.lock.name.clone(), LockKind::Plain);
    let mut ask = c.ask(Wait::Forever);
    ask.place.lock = &plain;
    assert_eq!(fixture.backend.acquire(&ask).unwrap(), Acquired::Busy { recheck_in: TTL });
}

/// All are refreshed before the lock is handed on.
#[test]
fn one_call_restores_all_places_of_a_client() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, mut b, mut c] = fixture.requests(&client);
    a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    fixture.faults().lose_line("orders");
    let items =
        [Renew::Place { place: c.place(), lease: LEASE }, Renew::Place { place: b.place(), lease: LEASE }];
    let answers = fixture.backend.renew(client.id, &items);
    assert!(matches!(
        answers[..],
        [Ok(Renewal::Waiting { rank: 1, .. }), Ok(Renewal::Waiting { rank: 0, .. })]
    ));
}
