//! When holds and waits end, also in the same moment as something else.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Duration;

use fairlock::Error;

use crate::World;

/// The longest wait for a message.
const SOON: Duration = Duration::from_secs(60);

/// The receiver reports each grant, even if the first grant was lost before the caller took it.
#[test]
fn the_receiver_reports_each_grant_even_after_a_loss() {
    let world = World::new();
    let (ours, theirs) = (world.client(), world.client());
    let (mine, other) = (ours.fair_lock("twice").unwrap(), theirs.fair_lock("twice").unwrap());
    let guard = other.lock().unwrap();
    let mut waiting = mine.request().unwrap();
    guard.unlock().unwrap();
    waiting.decided().recv_timeout(SOON).unwrap();
    // The grant was not taken by the caller, and is then taken away.
    assert!(other.admin().force_unlock().unwrap());
    let guard = other.lock().unwrap();
    assert!(waiting.wait_for(Duration::ZERO).unwrap().granted().is_none());
    assert_eq!(waiting.decided().try_recv(), Err(TryRecvError::Empty), "a `select!` would spin");
    guard.unlock().unwrap();
    waiting.decided().recv_timeout(SOON).unwrap();
    waiting.wait().unwrap().unlock().unwrap();
}

/// Timed waits of a client that is cut off end when their time has been advanced. Every thread of the client has tried and sleeps
/// when the clock stops, exactly at the end of the waits.
#[test]
fn timed_waits_of_a_client_that_is_cut_off_end_on_time() {
    let waits = [Duration::from_millis(300), Duration::from_secs(5), Duration::from_secs(3600)];
    for (wait, waiters, cut_off_first) in waits.into_iter().flat_map(|wait| {
        [1, 2, 5].into_iter().flat_map(move |waiters| [true, false].map(|first| (wait, waiters, first)))
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
            thread::spawn(move || ended.send(lock.try_lock_for(wait).map(|tried| tried.granted().is_some())));
        }
        world.clock.wait_for_waiters(waiters);
        cut_off();
        world.clock.advance(wait);
        for _ in 0..waiters {
            let ended = ends.recv_timeout(SOON).expect("it ends without more");
            assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
        }
    }
}
