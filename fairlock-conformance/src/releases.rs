//! Releases that reach the store late, by a backend that holds them up.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, HoldKept, LockId, LockState,
    Place, Released, Renew, Renewal, RequestId, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{Client, ClientId, Clock, Error, LockKind, LostCause};

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
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        self.inner.acquire(ask)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.inner.set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        self.is_asked.store(true, Ordering::SeqCst);
        self.clock.sleep(self.by);
        self.inner.release(hold)
    }

    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        self.inner.keep(hold, keeper, lease)
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        self.inner.renew(client, items)
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.inner.withdraw(place)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.inner.kick(place)
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.inner.force_release(lock)
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.inner.inspect(lock, part)
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        self.inner.subscribe(client, sink)
    }

    fn keeps(&self, kind: LockKind) -> bool {
        self.inner.keeps(kind)
    }

    fn store_clock(&self) -> Option<Clock> {
        self.inner.store_clock()
    }
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
        let guard = lock(harness, "late").try_lock().unwrap().guard().expect("it is free");
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
        lock(harness, "late and taken").force_unlock().unwrap();
        harness.pass(LEASE / 4);
        match work.join().unwrap() {
            Err(Error::Lost(lost)) => assert_eq!(lost.cause, LostCause::Taken),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(client.stats().lost, 1);
}
