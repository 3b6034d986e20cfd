//! The kinds of one name, and requests that no lock could grant.

use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, LockId, Released, Renewal, Wait,
    Withdrawn,
};

use crate::support::{Fixture, LEASE, TTL};

const FIVE: LockKind = LockKind::Semaphore { permits: 5 };
const EIGHT: LockKind = LockKind::Semaphore { permits: 8 };
const ONE: LockKind = LockKind::Semaphore { permits: 1 };

fn mismatch<T: std::fmt::Debug>(answer: Result<T, BackendError>) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Mismatch);
    error.message().to_owned()
}

impl Fixture {
    fn is_now(&mut self, kind: LockKind) {
        self.lock.kind = kind;
    }
}

#[test]
fn the_backend_keeps_all_kinds() {
    let fixture = Fixture::fair();
    for kind in [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, FIVE] {
        assert!(fixture.backend.keeps(kind), "{kind}");
    }
}

#[test]
fn a_name_that_is_held_as_another_kind_is_refused_with_both_kinds() {
    let number = "all clients name the same number; for another one use a new name";
    let pairs = [
        (FIVE, EIGHT, &*format!("it is a semaphore of 5 permits, and you asked for 8: {number}")),
        (FIVE, ONE, &*format!("it is a semaphore of 5 permits, and you asked for 1: {number}")),
        (
            FIVE,
            LockKind::ReadWrite,
            "it is a semaphore of 5 permits, and you asked for a read-write lock: use another name",
        ),
        (
            FIVE,
            LockKind::Fair,
            "it is a semaphore of 5 permits, and you asked for an exclusive lock: use another name",
        ),
        (
            LockKind::ReadWrite,
            LockKind::Plain,
            "it is a read-write lock, and you asked for an exclusive lock: use another name",
        ),
        (
            LockKind::ReadWrite,
            ONE,
            "it is a read-write lock, and you asked for a semaphore of 1 permit: use another name",
        ),
        (
            LockKind::Fair,
            FIVE,
            "it is an exclusive lock, and you asked for a semaphore of 5 permits: use another name",
        ),
    ];
    for (kind, asked, message) in pairs {
        let mut fixture = Fixture::fair();
        let client = fixture.client();
        fixture.is_now(kind);
        let token = fixture.request(&client, 1).gets_it();
        fixture.is_now(asked);
        let other = fixture.request(&client, 2);
        assert_eq!(mismatch(other.acquire(Wait::Forever)), message);
        assert_eq!(mismatch(other.acquire(Wait::No)), message);
        let shown = fixture.backend.inspect(&fixture.lock, 0..100);
        match kind.capacity() > 1 && asked.capacity() > 1 {
            true => assert_eq!(shown.unwrap().capacity, Some(kind.capacity())),
            false => assert_eq!(mismatch(shown), message),
        }
        assert_eq!(mismatch(fixture.backend.force_release(&fixture.lock)), message);
        assert_eq!(other.renew_place().unwrap(), Renewal::Lost);
        assert_eq!(other.withdraw(), Withdrawn::Left);
        assert_eq!(other.release(token).unwrap(), Released::NotHeld);
        fixture.is_now(kind);
        assert_eq!(fixture.inspect().holders[0].token, Some(token));
        assert!(fixture.line().is_empty());
    }
}

#[test]
fn a_name_that_is_waited_for_as_another_kind_is_refused() {
    let mut fixture = Fixture::fair();
    let client = fixture.client();
    fixture.is_now(FIVE);
    let holder = fixture.request(&client, 1).taking(5).gets_it();
    fixture.request(&client, 2).queues(0);
    fixture.faults().lose_hold("orders");
    fixture.is_now(EIGHT);
    // It finds the first waiter in line, and makes it the holder.
    mismatch(fixture.request(&client, 3).acquire(Wait::Forever));
    fixture.is_now(FIVE);
    assert!(fixture.request(&client, 2).told_by(&client) > holder);
}

#[test]
fn an_idle_name_takes_the_kind_of_the_next_request() {
    let mut fixture = Fixture::fair();
    let client = fixture.client();
    for kind in [LockKind::Fair, FIVE, EIGHT, LockKind::ReadWrite, LockKind::Plain, ONE] {
        fixture.is_now(kind);
        let asker = fixture.request(&client, 1);
        let token = asker.gets_it();
        let capacity = fixture.inspect().capacity;
        assert_eq!(capacity.unwrap_or(1), kind.capacity());
        asker.release(token).unwrap();
        assert_eq!(fixture.inspect().capacity, None);
    }
    // So does one whose last hold has ended.
    fixture.request(&client, 2).gets_it();
    fixture.clock.advance(LEASE);
    fixture.is_now(EIGHT);
    fixture.request(&client, 3).taking(8).gets_it();
}

#[test]
fn absent_waiters_keep_no_name_and_hear_of_the_new_kind_when_they_come_back() {
    let mut fixture = Fixture::fair();
    let (client, mut dead) = (fixture.client(), fixture.client());
    fixture.is_now(EIGHT);
    let token = fixture.request(&client, 1).taking(8).gets_it();
    fixture.request(&dead, 2).taking(7).queues(0);
    dead.hangs_up();
    fixture.request(&client, 1).release(token).unwrap();
    fixture.is_now(FIVE);
    let token = fixture.request(&client, 3).taking(5).gets_it();
    fixture.is_now(EIGHT);
    let absent = fixture.request(&dead, 2).taking(7);
    assert_eq!(absent.renew_place().unwrap(), Renewal::Lost);
    mismatch(absent.acquire(Wait::Forever));
    fixture.is_now(FIVE);
    fixture.request(&client, 3).release(token).unwrap();
    assert_eq!(fixture.holders().1, 0, "it was granted nothing");
    fixture.is_now(EIGHT);
    assert!(matches!(fixture.request(&dead, 2).taking(7).renew_place().unwrap(), Renewal::Granted { .. }));
}

/// It would get seven units of five.
#[test]
fn an_absent_waiter_is_granted_nothing_of_the_new_kind_before_it_asks() {
    let mut fixture = Fixture::fair();
    let (client, absent) = (fixture.client(), fixture.client());
    fixture.is_now(EIGHT);
    fixture.request(&client, 1).taking(8).gets_it();
    fixture.request(&absent, 2).taking(7).queues(0);
    fixture.faults().cut_off(absent.id);
    fixture.faults().lose_hold("orders");
    fixture.is_now(FIVE);
    let token = fixture.request(&client, 3).taking(5).gets_it();
    fixture.faults().bring_back(absent.id);
    fixture.request(&client, 3).release(token).unwrap();
    assert_eq!(fixture.holders().1, 0);
    fixture.request(&client, 4).taking(5).gets_it();
}

#[test]
fn plain_waiters_keep_the_name_while_they_are_heard() {
    let mut fixture = Fixture::plain();
    let client = fixture.client();
    fixture.request(&client, 1).gets_it();
    fixture.request(&client, 2).acquire(Wait::Forever).unwrap();
    fixture.faults().lose_hold("orders");
    fixture.is_now(FIVE);
    mismatch(fixture.request(&client, 3).acquire(Wait::No));
    fixture.clock.advance(TTL);
    fixture.request(&client, 3).gets_it();
}

#[test]
fn a_request_for_no_units_or_too_many_is_refused_and_leaves_nothing() {
    let kinds =
        [(LockKind::Fair, 2), (LockKind::Plain, 2), (FIVE, 6), (LockKind::Semaphore { permits: 0 }, 1)];
    for (kind, too_many) in kinds {
        let mut fixture = Fixture::fair();
        let client = fixture.client();
        fixture.is_now(kind);
        for takes in [0, too_many, u32::MAX] {
            for wait in [Wait::No, Wait::Forever] {
                let error = fixture.request(&client, 1).taking(takes).acquire(wait).unwrap_err();
                assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
                let message = format!("a request for {takes} units of lock `orders`, which is a {kind}");
                assert_eq!(error.message(), message);
            }
            assert_eq!(fixture.request(&client, 1).taking(takes).renew_place().unwrap(), Renewal::Lost);
        }
        let state = fixture.inspect();
        assert_eq!((state.holders.len(), state.line_length), (0, 0), "{kind}");
    }
}

#[test]
fn one_request_for_too_many_units_leaves_the_line_as_it_is() {
    let fixture = Fixture::semaphore(2);
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    a.gets_it();
    b.clone().taking(2).queues(0);
    assert!(c.taking(3).acquire(Wait::Forever).is_err());
    assert_eq!(fixture.line(), [b.owner]);
}

#[test]
fn force_on_an_idle_name_takes_nothing() {
    let fixture = Fixture::semaphore(2);
    let other = LockId::new(fixture.lock.name.clone(), EIGHT);
    assert_eq!(fixture.backend.force_release(&other).unwrap(), ForceReleased::NotHeld);
    let client = fixture.client();
    let [a] = fixture.requests(&client);
    assert!(matches!(a.acquire(Wait::No), Ok(Acquired::Granted { .. })));
    mismatch(fixture.backend.force_release(&other));
}
