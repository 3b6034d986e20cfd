//! What becomes of a claim that ends while an attempt of it may still arrive at the server.
//!
//! A network can deliver an attempt after its repeat was answered, and even after the request was withdrawn or its hold
//! released. The server would then make a place, or grant the lock, for nobody. An attempt has an end at the server, see
//! [`Backend::attempt_ttl`](crate::backend::Backend::attempt_ttl): after it nothing begins any more. So the request is
//! withdrawn once more after that end, and a grant that this finds is released.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::claim::Claim;
use crate::shared::Shared;

impl Shared {
    /// An attempt to ask for this claim, or to keep its place, has failed.
    pub(crate) fn attempt_failed(&self, claim: &Arc<Claim>, error: &BackendError) {
        // The claim has ended while the attempt was under way.
        if claim.attempt_failed(error, self.now()) {
            self.forget(claim);
        }
    }

    /// The claim has ended: its owner's next call makes a new one.
    pub(crate) fn forget(&self, claim: &Arc<Claim>) {
        let now = self.now();
        let Some(until) = claim.take_late_until() else { return self.registry.remove(claim) };
        let once_more = claim.once_more(now);
        // Where owners name places, an attempt may make a place that is taken for that of the owner's next request, and the
        // withdrawal would then remove it. So that request waits until the withdrawal is done. The claim is replaced and not
        // removed, or a next one could come in between.
        if self.backend.keeps_place_by_owner(&claim.lock) {
            self.registry.replace(claim, &once_more);
        } else {
            self.registry.remove(claim);
        }
        self.schedule.chores.add_late(once_more, until);
        self.schedule.due_by(Some(until));
    }
}
