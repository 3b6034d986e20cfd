//! A backend that records what a program is not told of its requests: their tickets, and when heartbeats were sent.

use fairlock_conformance::forward::*;
use fairlock_core::OwnerId;

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

    fn note_place(&self, place: &Place<'_>, sent: u64, answer: &Answer<Acquired>) {
        match answer {
            // A repeat.
            Ok(Acquired::Queued { ticket, .. }) if *ticket > 0 && *ticket == place.ticket => {
                self.note(place.owner, place.lock, What::PlaceKept { sent });
            }
            // Redisson's queue has no tickets: 0.
            Ok(Acquired::Queued { ticket, .. }) => {
                let ticket = Some(*ticket).filter(|ticket| *ticket > 0);
                self.note(place.owner, place.lock, What::InQueue { ticket });
            }
            _ => {}
        }
    }
}

impl<B: Backend> Backend for Recording<B> {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>> {
        let sent = now_ns();
        let answers = self.inner.acquire(asks);
        asks.iter().zip(&answers).for_each(|(ask, answer)| self.note_place(&ask.place, sent, answer));
        answers
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
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

    fairlock_conformance::forward_to_inner! { set_hold_count release withdraw kick force_release inspect subscribe reconnects
    store_clock response_timeout attempt_ttl keeps_place_by_owner longest_lease }
}
