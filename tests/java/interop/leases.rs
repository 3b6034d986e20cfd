//! A lease that ends lets the other side in, and each side sees the other's watchdog.

use std::time::Duration;

use fairlock::Error;
use fairlock_tests::eventually;
use fairlock_tests::history::now_ns;
use fairlock_tests::locks::lock_of;

use crate::world::{KINDS, LONG, SLACK, World, since, wait_for_turn, word};

const LEASE: Duration = Duration::from_millis(1000);

/// A lease of Java that ends lets ours in, and the late unlock takes nothing from our hold.
#[test]
fn a_lease_of_java_that_ends_lets_ours_in() {
    let world = World::new();
    for kind in KINDS {
        let (name, lock) = (word(kind), world.lock_that_hears(kind, word(kind)));
        let taken = world.java.expect("j", &format!("lock {name} {name} {}", LEASE.as_millis()), "ok");
        let guard = lock.lock().unwrap();
        let got = now_ns();
        // The lease began between the call and its return.
        assert!(since(taken.began, got) >= LEASE, "{:?}", since(taken.began, got));
        assert!(since(taken.ended, got) <= LEASE + SLACK, "{:?}", since(taken.ended, got));
        world.java.expect_not_held("j", &format!("unlock {name} {name}"));
        guard.renew().unwrap();
        guard.unlock().unwrap();
    }
}

/// A lease of ours that ends lets Java in, and the late unlock takes nothing from Java's hold.
#[test]
fn a_lease_of_ours_that_ends_lets_java_in() {
    let world = World::new();
    for kind in KINDS {
        let (name, lock) = (word(kind), world.lock(kind, word(kind)).fixed_lease(LEASE));
        let asked = now_ns();
        let guard = lock.lock().unwrap();
        let granted = now_ns();
        let waiter = world.java.tell("j", &format!("lock {name} {name}"));
        let (helper, late) = world.help_java(kind, name);
        let taken = waiter.expect("ok");
        assert!(since(asked, taken.ended) >= LEASE, "{:?}", since(asked, taken.ended));
        assert!(since(granted, taken.ended) <= LEASE + late, "{:?}", since(granted, taken.ended));
        assert!(guard.is_lost());
        let error = guard.unlock().unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
        world.java.expect("j", &format!("count {name} {name}"), "1");
        world.java.expect("j", &format!("unlock {name} {name}"), "ok");
        helper.map(|turn| turn.soon());
    }
}

/// How often the other side must see the lease go up, and how long that is: a JVM may be late by two thirds of it.
const RENEWALS: usize = 3;
const RENEWED: Duration = Duration::from_millis(2400);

#[test]
fn java_sees_our_watchdog_renew_and_keeps_waiting() {
    let world = World::new();
    for kind in KINDS {
        let (name, lock) = (word(kind), world.lock_with(kind, word(kind), RENEWED));
        let guard = lock.lock().unwrap();
        let waiter = world.java.tell("waits", &format!("lock {name} {name}"));
        count_renewals(|| world.java.number("looks", &format!("ttl {name} {name}")));
        assert!(waiter.is_quiet() && !guard.is_lost());
        guard.unlock().unwrap();
        waiter.expect("ok");
        world.java.expect("waits", &format!("unlock {name} {name}"), "ok");
    }
}

#[test]
fn we_see_javas_watchdog_renew_and_keep_waiting() {
    let world = World::with_watchdog(RENEWED);
    for kind in KINDS {
        let (name, client) = (word(kind), world.client_with(fairlock::settings::Discipline::Redisson, LONG));
        let lock = lock_of(&client, kind, name);
        world.java.expect("j", &format!("lock {name} {name}"), "ok");
        let turn = wait_for_turn(&lock);
        count_renewals(|| {
            let left = lock.admin().inspect().unwrap().holder().expect("Java holds it").lease_left;
            left.expect("with a lease").as_millis() as i64
        });
        assert!(turn.is_quiet());
        world.java.expect("j", &format!("unlock {name} {name}"), "ok");
        turn.soon();
        assert_eq!(client.stats().places_lost, 0);
    }
}

/// Waits until the remaining lease has gone up [`RENEWALS`] times, without ending.
#[track_caller]
fn count_renewals(mut lease_left: impl FnMut() -> i64) {
    let (mut last, mut renewals) = (lease_left(), 0);
    eventually("renewals", || {
        let left = lease_left();
        assert!((1..=RENEWED.as_millis() as i64).contains(&left), "{left} ms left");
        renewals += usize::from(left > last);
        last = left;
        renewals == RENEWALS
    });
}
