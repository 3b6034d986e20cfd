//! What becomes of a claim that ends while an attempt of it may still arrive at the server.
//!
//! A network can deliver an attempt after its repeat was answered, and even after the request was withdrawn or its hold released.
//! The server would then make a place, or grant the lock, for nobody. The server refuses an attempt after its end, see
//! [`Backend::attempt_ttl`](crate::backend::Backend::attempt_ttl). So the request is withdrawn once more after this end, and a
//! grant is released.

use std::sync::Arc;
use std::time::Instant;

use super::Ledger;
use crate::backend::{Acquired, Answer, BackendError, Renewal};
use crate::backlog::{Cleanup, PendingCleanup};
use crate::claim::Claim;

impl Acquired {
    /// The token of the grant, or the least that a grant to the place may have.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Acquired::Granted { token, .. } => Some(token.get()),
            Acquired::Queued { latest, .. } => Some(latest.saturating_add(1)),
            Acquired::Busy { .. } => None,
        }
    }
}

impl Renewal {
    /// The number of [`Acquired::number`], for the answer to a heartbeat.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Renewal::Granted { token, .. } => Some(token.get()),
            Renewal::Waiting { latest, .. } => Some(latest.saturating_add(1)),
            Renewal::Renewed | Renewal::Lost => None,
        }
    }
}

impl Ledger {
    /// An attempt to ask for this claim, or to keep its place, has ended: with an answer of this number, or without an answer.
    pub(crate) fn attempt_ended(&self, claim: &Arc<Claim>, outcome: Answer<Option<u64>>, now: Instant) {
        let is_over = match outcome {
            Ok(number) => number.is_some_and(|number| claim.told_of(number, now)),
            Err(error) => claim.attempt_failed(&error, now),
        };
        // The claim has ended while the attempt was under way, and nobody else will look.
        if is_over {
            self.forget(claim);
        }
    }

    /// An attempt to tell the server of the claim's end has failed. Where owners name places, a withdrawal that arrives late would
    /// remove the place of the owner's next request, which waits for that as for a late ask.
    pub(crate) fn cleanup_failed(&self, pending: &PendingCleanup, error: &BackendError) {
        if pending.cleanup == Cleanup::Withdraw && self.backend.keeps_place_by_owner(&pending.claim.lock) {
            self.attempt_ended(&pending.claim, Err(error.clone()), self.config.now());
        }
    }

    /// The claim has ended: its owner's next call makes a new one.
    pub(crate) fn forget(&self, claim: &Arc<Claim>) {
        let Some(until) = claim.take_late_until() else { return self.registry.remove(claim) };
        let once_more = claim.once_more(self.config.now());
        // If places are named by owners, a late attempt may make a place that looks like the place of the owner's next request,
        // and the withdrawal would remove it. So the next request waits until the withdrawal is done. The claim is replaced and
        // not removed: otherwise another claim could come in between. The claim has ended, so the next request may have come
        // before this: then the late attempt and the next request have one name at the server, and the end of that request
        // withdraws once more.
        if !self.backend.keeps_place_by_owner(&claim.lock) {
            self.registry.remove(claim);
        } else if let Some(next) = self.registry.replace(claim, &once_more) {
            if next.withdraw_again_at(until) {
                self.forget(&next); // has ended, too
            }
            return;
        }
        self.backlog.add_late(once_more, until);
        self.timers.due_by(Some(until));
    }
}
