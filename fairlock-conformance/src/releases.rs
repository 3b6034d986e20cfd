//! Releases that reach the store late, by a backend that holds them up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fairlock_core::{Client, Error, LostCause};

use super::forward::*;
use super::{Harness, LEASE, lock, lock_of, until};

/// The harness's backend, but a release is held up.
struct Late {
    inner: Arc<dyn Backend>,
    clock: Clock,
    by: Duration,
    is_asked: Arc<AtomicBool>,
}

impl Late {
    /// A client whose releases are late by this, and whether it has asked for one.
    fn client(harness: &impl Harness, by: Duration) -> (Client, Arc<AtomicBool>) {
        let is_asked = Arc::new(AtomicBool::new(false));
        let (inner, clock) = (harness.backend(), harness.clock());
        let late = Late { inner, clock: clock.clone(), by, is_asked: Arc::clone(&is_asked) };
        (Client::builder(late).clock(clock).lease(LEASE).build().unwrap(), is_asked)
    }
}

impl Backend for Late {
    fn release(&self, holds: &[Hold<'_>]) -> Vec<Answer<Released>> {
        self.is_asked.store(true, Ordering::SeqCst);
        self.clock.sleep(self.by);
        self.inner.release(holds)
    }

    crate::forward_to_inner! { acquire renew withdraw force_release inspect subscribe supports store_clock }
}

/// The hold was certain when it was given up, and nobody has taken it: what was done under it counts.
pub fn a_hold_that_ends_while_it_is_released_was_not_lost(harness: &impl Harness) {
    let (client, is_asked) = Late::client(harness, LEASE);
    let ours = lock_of(harness, &client, "late").fixed_lease(LEASE);
    let waits = || until("the release is asked for", || is_asked.load(Ordering::SeqCst));
    thread::scope(|scope| {
        let work = scope.spawn(|| ours.with(|guard| guard.token()));
        waits();
        harness.pass(LEASE);
        let token = work.join().unwrap().expect("it was not lost");
        let guard = lock(harness, "late").try_lock().unwrap().granted().expect("it is free");
        assert!(token < guard.token());
        guard.unlock().unwrap();
    });
    assert_eq!(client.stats().lost, 0);
    harness.assert_nothing_is_left("late");
}

/// The release finds nothing while the lease lasts. Or a message has come before.
pub fn a_hold_that_is_taken_while_it_is_released_is_lost(harness: &impl Harness) {
    let (client, is_asked) = Late::client(harness, LEASE / 4);
    let ours = lock_of(harness, &client, "late and taken").fixed_lease(LEASE);
    thread::scope(|scope| {
        let work = scope.spawn(|| ours.with(|_| ()));
        until("the release is asked for", || is_asked.load(Ordering::SeqCst));
        lock(harness, "late and taken").admin().force_unlock().unwrap();
        harness.pass(LEASE / 4);
        match work.join().unwrap() {
            Err(Error::Lost(lost)) => assert_eq!(lost.cause, LostCause::Taken),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(client.stats().lost, 1);
}
