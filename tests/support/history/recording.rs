//! A backend that records what a program is not told of its requests: their tickets, and when heartbeats were sent.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Clock, OwnerId};

use super::{Recorder, What, now_ns};

/// Another backend, and the recorder of this process. The events are those of the owner's client.
#[derive(Debug)]
pub struct Recording<B> {
    inner: B,
    recorder: Recorder,
}

impl<B: Backend> Recording<B> {
    /// Records the answers of `inner`.
    pub fn new(inner: B, recorder: Recorder) -> Recording<B> {
        Recording { inner, recorder }
    }

    fn note(&self, owner: &OwnerId, lock: &LockId, what: What) {
        self.recorder.note(now_ns(), owner.client(), what, lock.name.as_str());
    }

    fn note_place(&self, place: &Place<'_>, sent: u64, answer: &Result<Acquired, BackendError>) {
        match answer {
            // A repeat.
            Ok(Acquired::Queued { ticket, .. }) if *ticket > 0 && *ticket == place.ticket => {
                self.note(place.owner, place.lock, What::PlaceKept { sent });
            }
            // Redisson's line has no tickets: 0.
            Ok(Acquired::Queued { ticket, .. }) => {
                let ticket = Some(*ticket).filter(|ticket| *ticket > 0);
                self.note(place.owner, place.lock, What::InLine { ticket });
            }
            _ => {}
        }
    }
}

impl<B: Backend> Backend for Recording<B> {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let sent = now_ns();
        let answer = self.inner.acquire(ask);
        self.note_place(&ask.place, sent, &answer);
        answer
    }

    fn acquire_all(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let sent = now_ns();
        let answers = self.inner.acquire_all(asks);
        asks.iter().zip(&answers).for_each(|(ask, answer)| self.note_place(&ask.place, sent, answer));
        answers
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let sent = now_ns();
        let answers = self.inner.renew(client, items);
        for pair in items.iter().zip(&answers) {
            match pair {
                (Renew::Hold { hold, .. }, Ok(Renewal::Renewed)) => {
                    self.note(hold.owner, hold.lock, What::Renewed { sent });
                }
                (Renew::Place { place, .. }, Ok(Renewal::Waiting { .. })) => {
                    self.note(place.owner, place.lock, What::PlaceKept { sent });
                }
                _ => {}
            }
        }
        answers
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.inner.set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        self.inner.release(hold)
    }

    fn release_all(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        self.inner.release_all(holds)
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.inner.withdraw(place)
    }

    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        self.inner.withdraw_all(places)
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

    fn reconnects(&self) -> u64 {
        self.inner.reconnects()
    }

    fn store_clock(&self) -> Option<Clock> {
        self.inner.store_clock()
    }

    fn response_timeout(&self) -> Option<Duration> {
        self.inner.response_timeout()
    }

    fn attempt_ttl(&self) -> Option<Duration> {
        self.inner.attempt_ttl()
    }

    fn keeps_place_by_owner(&self, lock: &LockId) -> bool {
        self.inner.keeps_place_by_owner(lock)
    }

    fn longest_lease(&self) -> Option<Duration> {
        self.inner.longest_lease()
    }
}
