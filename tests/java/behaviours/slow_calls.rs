//! An unlock while another call of that request is under way.

use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fairlock::{Client, ClientId, MemoryBackend};
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};

use crate::world::SOON;

#[derive(Clone, Copy, PartialEq)]
enum Halts {
    Renewals,
    /// Asks of a request that is in line already.
    Repeats,
}

/// A backend that reports when a call of this kind begins, and continues when told.
struct Halting {
    inner: MemoryBackend,
    halts: Halts,
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Halting {
    fn halt(&self) {
        let _ = self.begun.send(());
        let _ = self.go.lock().unwrap().recv_timeout(SOON);
    }
}

impl Backend for Halting {
    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        if self.halts == Halts::Renewals {
            self.halt();
        }
        self.inner.renew(client, items)
    }

    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        if self.halts == Halts::Repeats && ask.place.ticket > 0 {
            self.halt();
        }
        self.inner.acquire(ask)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.inner.set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        self.inner.release(hold)
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
}

#[test]
fn unlock_returns_after_a_renewal_that_has_begun() {
    let _alone = fairlock_tests::Alone::here();
    let ((begun, begins), (go_on, go), (done, is_done)) = (channel(), channel(), channel());
    let backend = Halting { inner: MemoryBackend::new(), halts: Halts::Renewals, begun, go: Mutex::new(go) };
    let client = Client::builder(backend).lease(Duration::from_secs(3)).build().unwrap();
    let lock = client.fair_lock("slow").unwrap();
    thread::scope(|scope| {
        let guard = lock.owned_by(&client.new_owner()).unwrap().lock().unwrap();
        begins.recv_timeout(SOON).expect("a renewal after a third of the lease");
        scope.spawn(move || done.send(guard.unlock()));
        // The silence is tested: the release is executed, but the unlock must not return.
        let returned = is_done.recv_timeout(Duration::from_millis(300));
        assert!(matches!(returned, Err(RecvTimeoutError::Timeout)), "{returned:?}");
        go_on.send(()).unwrap();
        is_done.recv_timeout(SOON).expect("the unlock returns then").unwrap();
    });
    assert!(begins.try_recv().is_err(), "there was no other renewal");
}

/// Its hold came by a push, while it asked again since the holder's lease was over.
#[test]
fn a_release_is_sent_after_the_answer_to_an_ask_that_has_begun() {
    let _alone = fairlock_tests::Alone::here();
    let ((begun, begins), (go_on, go), (done, is_done)) = (channel(), channel(), channel());
    let store = MemoryBackend::new();
    let backend = Halting { inner: store.clone(), halts: Halts::Repeats, begun, go: Mutex::new(go) };
    let (ours, others) = (Client::new(backend).unwrap(), Client::new(store).unwrap());
    let [lock, theirs] = [&ours, &others].map(|client| client.fair_lock("crossed").unwrap());
    let holder = theirs.owned_by(&others.new_owner()).unwrap().fixed_lease(Duration::from_millis(300));
    let over = holder.lock().unwrap();
    let request = lock.owned_by(&ours.new_owner()).unwrap().request().unwrap();
    begins.recv_timeout(SOON).expect("it asks when the lease is over");
    assert!(theirs.try_lock().unwrap().guard().is_none(), "the free lock is handed to the first in line");
    let guard = request.wait().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || done.send(guard.unlock()));
        // Sent first, the release would leave the lock to be granted to the ask, which nobody waits for.
        let returned = is_done.recv_timeout(Duration::from_millis(100));
        assert!(matches!(returned, Err(RecvTimeoutError::Timeout)), "{returned:?}");
        go_on.send(()).unwrap();
        is_done.recv_timeout(SOON).expect("the unlock returns then").unwrap();
    });
    theirs.try_lock().unwrap().guard().expect("the lock is free").unlock().unwrap();
    assert!(over.unlock().is_err());
}
