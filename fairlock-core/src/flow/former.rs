//! The end of an owner's former claim, which the owner's next call waits for. Where owners name places, a late withdrawal of the
//! former claim would take the place of the next one.

use std::sync::Arc;
use std::time::Instant;

use super::Parts;
use super::acquire::error_of;
use super::cleanup::CleanupRun;
use crate::backend::{BackendError, BackendErrorKind, Wait};
use crate::cancel::Cancel;
use crate::claim::{Claim, Failure, Patience};
use crate::error::{Error, Result};
use crate::time;

impl Parts<'_> {
    /// Waits until the server knows of the end of the former claim, and tells the server if no other thread does. False: the
    /// caller's time is over. `began`: when the call began.
    ///
    /// # Errors
    /// As for an ask: after one attempt for a caller that does not wait, at the end of a timed wait whose last attempt was
    /// not answered, else after the outage limit.
    pub(super) fn settle_former(
        self,
        claim: &Arc<Claim>,
        patience: &Patience,
        began: Instant,
    ) -> Result<bool> {
        let _listening = patience.cancel.as_ref().map(|cancel| cancel.listen(claim));
        // An attempt of the former claim may still arrive: the server is told of its end after that, and not before.
        let by_owner = self.backend.keeps_place_by_owner(&claim.lock);
        let late_at = by_owner.then(|| self.backlog.late_at(claim)).flatten();
        if late_at.is_some() && patience.wait == Wait::No {
            return Err(unsettled(claim, None));
        }
        let give_up_at = late_at.map_or(began, |at| began.max(at)) + self.config.outage_limit;
        let until = patience.deadline.map_or(give_up_at, |deadline| deadline.min(give_up_at));
        let Some((failed_before, _)) = claim.leaving() else { return Ok(true) };
        let (mut attempts, mut try_at) = (0, self.config.now());
        loop {
            let seen = claim.signal.generation();
            let Some((failed, error)) = claim.leaving() else { return Ok(true) };
            if self.config.stop.is_closed() {
                return Err(error_of(&claim.lock.name, Failure::Shutdown));
            }
            if patience.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Err(Error::Cancelled { lock: claim.lock.name.clone() });
            }
            let now = self.config.now();
            if now >= until || patience.wait == Wait::No && failed > failed_before {
                // Another thread is telling the server; until then nobody knows whether the lock is busy.
                let is_busy = error.is_none() && late_at.is_none() && patience.deadline == Some(until);
                return if is_busy { Ok(false) } else { Err(unsettled(claim, error)) };
            }
            if now < try_at {
                claim.signal.wait(seen, Some(until.min(try_at)));
            } else if CleanupRun::new(self).settle(claim) {
                attempts += 1;
                try_at = self.config.now() + time::pause(attempts);
            } else {
                // Another thread is telling the server, or has another call of this claim under way that has to end before. That
                // thread raises the signal when it has an answer.
                claim.signal.wait(seen, Some(until));
            }
        }
    }
}

fn unsettled(claim: &Claim, error: Option<BackendError>) -> Error {
    let error = error.unwrap_or_else(|| {
        let message = "an earlier release or withdrawal of this owner is not acknowledged yet";
        BackendError::new(BackendErrorKind::Unavailable, message)
    });
    Error::about(&claim.lock.name, error)
}
