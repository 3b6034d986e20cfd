//! A backend that records what a program is not told of its requests: their tickets.

use fairlock_conformance::forward::*;

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
}

impl<B: Backend> Backend for Recording<B> {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>> {
        let answers = self.inner.acquire(asks);
        for (Acquire { place, .. }, answer) in asks.iter().zip(&answers) {
            match answer {
                // A repeat names its ticket. Redisson's queue has none: 0.
                Ok(Acquired::Queued { ticket, .. }) if *ticket != place.ticket => {
                    let what = What::InQueue { ticket: Some(*ticket) };
                    self.recorder.note(now_ns(), place.owner.client(), what, place.lock.name.as_str());
                }
                _ => {}
            }
        }
        answers
    }

    fairlock_conformance::forward_to_inner! { adopt renew release withdraw force_release inspect subscribe reconnects
    store_clock response_timeout attempt_ttl keeps_place_by_owner longest_lease }
}
