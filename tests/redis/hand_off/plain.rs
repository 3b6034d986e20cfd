//! Waiters for plain locks, which subscribe when they wait, and miss no release.

use std::thread;
use std::time::Duration;

use fairlock_tests::proxy::{Rule, Traffic};

use super::support::*;

/// A plain lock that is released while its waiter subscribes is granted at once. Waiters for plain locks subscribe when they
/// wait, and a release before that wakes no waiter.
#[test]
fn a_plain_lock_released_during_a_subscribe_is_granted() {
    let server = CleanServer::start();
    let proxy = Proxy::start(server.port());
    let (holder, waiter) = (client(&server.url()), with_places(&proxy.url(), 60 * LONG));
    let guard = holder.plain_lock("gap").unwrap().try_lock().unwrap().granted().expect("the lock is free");
    proxy.set(Traffic::Subscriptions, Rule::Delay(Duration::from_millis(300)));
    thread::scope(|scope| {
        let lock = waiter.plain_lock("gap").unwrap();
        let asked = scripts_run(&server);
        let waiting = scope
            .spawn(move || lock.try_lock_for(LONG).unwrap().granted().map(|guard| guard.unlock().unwrap()));
        eventually("the waiter has no answer", || scripts_run(&server) > asked);
        guard.unlock().unwrap();
        assert!(join(waiting).is_some(), "its heartbeats come later than {LONG:?}");
    });
    assert_eq!(waiter.stats().granted_by_polling, 0, "nor is it granted at the end of its time");
}

/// A waiter for a plain lock is notified when the fair one is free.
#[test]
fn a_plain_waiter_is_notified_when_the_fair_lock_is_free() {
    let server = CleanServer::start();
    let (holder, waiter) = (client(&server.url()), client(&server.url()));
    let lock = holder.fair_lock("both").unwrap();
    for by_force in [false, true] {
        let guard = take(&holder, "both");
        let plain = waiter.plain_lock("both").unwrap();
        let waiting = plain.owned_by(&waiter.new_owner()).unwrap().request().unwrap();
        let unlocked = if by_force { lock.admin().force_unlock().map(drop) } else { guard.unlock() };
        unlocked.unwrap();
        served(waiting); // its heartbeats would come later
    }
    assert_eq!(waiter.stats().granted_by_polling, 0);
}
