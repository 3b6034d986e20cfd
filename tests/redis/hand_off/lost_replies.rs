//! Executed commands whose replies are lost: a repeat changes nothing more.

use std::time::Duration;

use fairlock::{Client, Error};
use fairlock_tests::Monitor;
use fairlock_tests::monitor::{self, Queue};
use fairlock_tests::proxy::{Rule, Traffic};

use crate::support::*;

/// A client behind a proxy, another one that is not, and a record of what the server does.
struct World {
    ours: Client,
    theirs: Client,
    monitor: Monitor,
    proxy: Proxy,
    server: CleanServer, // the last to be dropped
}

impl World {
    /// Its server knows every script: a lost NOSCRIPT reply would mean that nothing was executed.
    fn new() -> World {
        let server = CleanServer::start();
        let theirs = client(&server.url());
        let guard = take(&theirs, "warm");
        guard.renew().unwrap();
        drop(request(&theirs, "warm"));
        until_in_queue(&server, "warm", 0);
        guard.unlock().unwrap();
        theirs.fair_lock("warm").unwrap().inspect().unwrap();
        let proxy = Proxy::start(server.port());
        World { ours: client(&proxy.url()), theirs, monitor: Monitor::start(&server), proxy, server }
    }

    /// The reply to the next command about the lock is lost.
    fn lose(&self) {
        self.proxy.lose_reply_to("lossy");
    }

    /// In the server's own record.
    fn grants(&self) -> usize {
        monitor::grants(&monitor::read(&self.monitor.until_now(&self.server), Queue::HandOff, "lossy"))
    }

    fn token(&self) -> Option<u64> {
        token_at(&self.server, "lossy")
    }

    fn hold_count(&self) -> u32 {
        self.ours.fair_lock("lossy").unwrap().inspect().unwrap().holder().unwrap().hold_count
    }
}

#[track_caller]
fn until_lost(proxy: &Proxy) {
    eventually(SOON, "the reply is lost", || proxy.lost() == 1);
}

#[test]
fn an_acquire_whose_reply_is_lost_is_one_hold_with_one_token() {
    let world = World::new();
    world.lose();
    let guard = take(&world.ours, "lossy");
    until_lost(&world.proxy);
    // Granted once; the repeat got the same grant.
    assert_eq!((world.grants(), world.token()), (1, Some(guard.token().get())));
    assert_eq!(world.hold_count(), 1);
    guard.unlock().unwrap();
    assert_eq!(world.server.query::<i64>(&["EXISTS", "lossy"]), 0);
}

/// One after the other: of a request for a place, of a renewal, and of a withdrawal.
#[test]
fn lost_replies_cost_no_place_and_no_hold_and_leave_no_ghost() {
    let world = World::new();
    let (holder, waits) = (world.ours.fair_lock("lossy").unwrap(), world.ours.fair_lock("lossy").unwrap());
    let (guard, again) = (holder.lock().unwrap(), holder.lock().unwrap());
    let token = guard.token();
    world.lose();
    let [waiting, behind] =
        [(); 2].map(|()| waits.owned_by(&world.ours.new_owner()).unwrap().request().unwrap());
    eventually(SOON, "the request was repeated", || behind.rank() == Some(1) && waiting.rank() == Some(0));
    assert_eq!((world.proxy.lost(), queue(&world.server, "lossy").len()), (1, 2));

    world.lose();
    let unanswered = guard.renew();
    assert!(matches!(unanswered, Err(Error::Unavailable { .. })), "{unanswered:?}");
    assert_eq!(world.proxy.lost(), 2);
    assert!(!guard.is_lost() && guard.token() == token);
    guard.renew().unwrap();
    assert_eq!(world.hold_count(), 2);

    world.lose();
    drop(waiting);
    eventually(SOON, "the reply is lost", || world.proxy.lost() == 3);
    until_in_queue(&world.server, "lossy", 1);
    again.unlock().unwrap();
    guard.unlock().unwrap();
    served(behind);
    // The same client may ask again, and so may all others.
    a_turn(&world.ours, "lossy");
    a_turn(&world.theirs, "lossy");
}

/// A release whose reply is lost takes nothing from the next holder.
#[test]
fn a_release_with_a_lost_reply_takes_nothing_from_others() {
    let world = World::new();
    let guard = take(&world.ours, "lossy");
    let waiting = request(&world.theirs, "lossy");
    world.lose();
    guard.unlock().unwrap();
    until_lost(&world.proxy);
    let next = granted(waiting, SOON);
    assert_eq!(world.token(), Some(next.token().get()));
    next.renew().unwrap();
    next.unlock().unwrap();
    assert_eq!(world.grants(), 2);
}

/// Its renewals are executed and their replies lost: the client gives up the hold while the server keeps it.
#[test]
fn an_owner_that_gave_up_a_hold_asks_again_behind_all_waiters() {
    let world = World::new();
    let ours = short_lease(&world.proxy.url(), Duration::from_millis(1500)).fair_lock("lossy").unwrap();
    let guard = ours.lock().unwrap();
    let waiting = request(&world.theirs, "lossy");
    world.proxy.set(Traffic::Replies, Rule::Swallow);
    guard.lost().recv_timeout(SOON).unwrap();
    world.proxy.set(Traffic::Replies, Rule::Pass);
    eventually(SOON, "the client has reconnected", || ours.is_locked().is_ok());
    assert!(ours.try_lock().unwrap().guard().is_none(), "the caller passed a waiter");
    drop(guard);
    let next = granted(waiting, SOON);
    assert!(ours.try_lock().unwrap().guard().is_none());
    next.unlock().unwrap();
    ours.try_lock_for(SOON).unwrap().guard().unwrap().unlock().unwrap();
}
