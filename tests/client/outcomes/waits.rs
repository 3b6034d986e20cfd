//! How a timed wait ends: "not granted" means that the lock was busy, and nothing else.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, Operation, Result};

use crate::support::World;

const WAIT: Duration = Duration::from_secs(5);

/// Another client holds the lock; `client` waits for it so long. `meanwhile` is called when half a second of that is over.
fn timed_wait(world: &World, client: &Client, wait: Duration, meanwhile: impl FnOnce()) -> Result<bool> {
    let holder = world.client();
    let held = holder.fair_lock("timed").unwrap().lock().unwrap();
    let lock = client.fair_lock("timed").unwrap();
    let ended = thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(wait).map(|tried| tried.guard().is_some()));
        world.clock.wait_for_waiters(1);
        world.clock.advance(Duration::from_millis(500));
        meanwhile();
        while !waiter.is_finished() {
            world.clock.advance(Duration::from_millis(10));
            thread::yield_now();
        }
        waiter.join().unwrap()
    });
    drop(held);
    ended
}

#[test]
fn a_timed_wait_for_a_busy_lock_says_so() {
    let world = World::new();
    assert!(!timed_wait(&world, &world.client(), WAIT, || {}).unwrap());
}

#[test]
fn a_timed_wait_does_not_say_busy_when_the_server_is_dead() {
    let world = World::new();
    let client = world.client();
    let ended = timed_wait(&world, &client, WAIT, || world.faults().cut_off(client.id()));
    assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
}

/// No heartbeat is due any more: the withdrawal finds out.
#[test]
fn a_timed_wait_does_not_say_busy_when_the_server_dies_just_before_its_end() {
    let world = World::new();
    let client = world.client();
    let ended =
        timed_wait(&world, &client, Duration::from_millis(600), || world.faults().cut_off(client.id()));
    assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
}

/// No error either: whatever is asked hangs.
#[test]
fn a_timed_wait_does_not_say_busy_when_the_server_is_silent() {
    let world = World::new();
    let client = world.client();
    let ended = timed_wait(&world, &client, WAIT, || {
        world.faults().delay_next(Operation::Renew, 10, Duration::from_secs(20));
        world.faults().delay_next(Operation::Withdraw, 1, Duration::from_secs(20));
    });
    assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
}

#[test]
fn a_timed_wait_whose_withdrawal_is_slow_says_busy_if_the_server_was_heard_lately() {
    let world = World::new();
    let ended = timed_wait(&world, &world.client(), Duration::from_secs(1), || {
        world.faults().delay_next(Operation::Withdraw, 1, Duration::from_secs(1));
    });
    assert!(!ended.unwrap());
}

/// Every thread of the client has tried in vain and sleeps when the clock stops, exactly at the end of the waits.
#[test]
fn timed_waits_of_a_client_that_is_cut_off_end_when_their_time_has_been_advanced() {
    let waits = [Duration::from_millis(300), WAIT, Duration::from_secs(3600)];
    for (waiters, wait, cut_off_first) in waits.into_iter().flat_map(|wait| {
        [1, 2, 5].into_iter().flat_map(move |waiters| [true, false].map(|first| (waiters, wait, first)))
    }) {
        let world = World::new();
        let client = world.client();
        let _held = world.client().fair_lock("timed").unwrap().lock().unwrap();
        // The watchdog runs, and an earlier outage has left nothing behind.
        client.fair_lock("other").unwrap().lock().unwrap().unlock().unwrap();
        let cut_off = || world.faults().cut_off(client.id());
        if cut_off_first {
            cut_off();
        }
        let (ended, ends) = mpsc::channel();
        for _ in 0..waiters {
            let (lock, ended) = (client.fair_lock("timed").unwrap(), ended.clone());
            thread::spawn(move || ended.send(lock.try_lock_for(wait).map(|tried| tried.guard().is_some())));
        }
        world.clock.wait_for_waiters(waiters);
        cut_off();
        world.clock.advance(wait);
        for _ in 0..waiters {
            let ended = ends.recv_timeout(Duration::from_secs(10)).expect("it ends without more");
            assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
        }
    }
}
