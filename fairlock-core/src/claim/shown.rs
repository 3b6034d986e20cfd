//! What the program is shown of a claim: in the client's lists, and of a slow wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Claim, Phase};
use crate::error::{Busy, SlowWait};
use crate::snapshot::{HeldLock, WaitingRequest};

impl Claim {
    /// From when on the wait is slow, and is to be explained. None if nothing is to be explained: the claim does not wait, the server has not
    /// answered yet, or a line was written.
    pub(crate) fn slow_at(&self) -> Option<Instant> {
        let state = self.lock_state();
        let waits = matches!(state.phase, Phase::Waiting(_)) && state.contact.heard.is_some();
        let is_due = waits && !self.explained.load(Ordering::Relaxed);
        self.since.checked_add(self.config.slow_wait).filter(|_| is_due)
    }

    /// The slow wait is explained, or can't be.
    pub(crate) fn set_explained(&self) {
        self.explained.store(true, Ordering::Relaxed);
    }

    /// What the explanation of the slow wait has shown.
    pub(crate) fn set_seen(&self, seen: Arc<SlowWait>) {
        let _ = self.seen.set(seen); // each wait is explained once
    }

    /// For a caller or a task whose wait is over. A look that is under way is not waited for.
    pub(crate) fn busy(&self) -> Busy {
        Busy {
            lock: self.lock.name.clone(),
            waited: self.waited(self.config.now()),
            slow_wait: self.seen.get().cloned(),
        }
    }

    /// How long the hold is certain without another renewal; zero without a hold.
    pub(crate) fn valid_for(&self, now: Instant) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Its entry in the list of what a client holds.
    pub(crate) fn as_held(&self, now: Instant) -> Option<HeldLock> {
        let state = self.lock_state();
        state.certain(now).map(|held| HeldLock {
            lock: self.lock.name.clone(),
            kind: self.lock.kind,
            owner: self.owner.clone(),
            units: self.units,
            token: held.token,
            hold_count: held.count,
            leaked: held.leaked,
            held_for: now.saturating_duration_since(held.since),
            valid_for: held.valid_until.saturating_duration_since(now),
        })
    }

    /// Its entry in the list of what a client waits for.
    pub(crate) fn as_waiting(&self, now: Instant) -> Option<WaitingRequest> {
        let Phase::Waiting(waiting) = &self.lock_state().phase else { return None };
        Some(WaitingRequest {
            lock: self.lock.name.clone(),
            kind: self.lock.kind,
            owner: self.owner.clone(),
            units: self.units,
            rank: waiting.place.rank,
            waiting_for: now.saturating_duration_since(self.since),
        })
    }

    /// For how long its callers have waited, or did before they gave up just now.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}
