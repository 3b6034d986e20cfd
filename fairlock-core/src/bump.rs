//! How a holder lets the others go first: he gives the lock to the next in line and stands behind the last.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Waited, Wish};
use crate::backend::{Acquired, BackendErrorKind, Released, Wait};
use crate::claim::{AfterAnswer, Claim, Patience};
use crate::shared::Shared;
use crate::time::Signal;
use crate::{Error, FencingToken, LostCause, Result, backoff};

impl Shared {
    /// Passes the lock on if somebody waits, and waits for it again. Returns the new claim, of which one hold is the
    /// caller's; none if nobody waits, or it is held more than once.
    ///
    /// # Errors
    /// Then the old hold is over.
    pub(crate) fn bump(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Arc<Claim>>> {
        let _here = self.config.clock.attend();
        self.lose_if_over(claim);
        let Some((token, count, _)) = claim.renewal(self.now()) else {
            return Err(claim.loss(self.now()).map_or_else(|| self.not_held(claim), Error::Lost));
        };
        if count > 1 {
            return Ok(None);
        }
        // A renewal that crosses the release would be answered "lost", and taken for a loss.
        self.stop_renewals(claim);
        let next = self.pass_on_to_the_line(claim, token);
        claim.renewal_done();
        let Some(next) = next? else { return Ok(None) };
        let patience = Patience { wait: Wait::Forever, deadline: None, cancel: None, keeps_place: false };
        match self.wait_attending(&next, &patience, self.now())? {
            Waited::Granted => Ok(Some(next)),
            Waited::NotGranted | Waited::Again => {
                let wish =
                    Wish { lock: &next.lock, owner: &next.owner, terms: next.terms, patience: &patience };
                self.obtain(wish)
            }
        }
    }

    /// The one trip, repeated while it is not answered: with the same numbers it does the same once.
    ///
    /// The new claim stands in the registry before the request is sent: the lock may be back, pushed to the new
    /// request, before the answer has arrived.
    fn pass_on_to_the_line(&self, claim: &Arc<Claim>, token: FencingToken) -> Result<Option<Arc<Claim>>> {
        let next = self.successor_of(claim);
        self.registry.replace(claim, &next);
        let give_up_at = self.now() + self.config.outage_limit;
        let mut unanswered = 0;
        loop {
            let sent = self.now();
            let again = next.acquire(&self.config.label);
            let (rank, look_again_in, ticket) = match self.backend.release(&claim.hold(token), Some(&again)) {
                Ok(Released::Kept) => {
                    self.registry.replace(&next, claim);
                    self.forget(&next); // whoever has joined it meanwhile comes back to the hold
                    return Ok(None);
                }
                // The first place of a new request: no push can be of an earlier one.
                Ok(Released::Queued { rank, look_again_in }) => (rank, look_again_in, 0),
                // An earlier attempt was carried out, and only its answer was lost. What has become of its place is not
                // known, so no push is believed before the server has been asked.
                Ok(Released::NotHeld | Released::Released) if unanswered > 0 => (0, Duration::ZERO, u64::MAX),
                Ok(Released::NotHeld | Released::Released) => {
                    self.forget(&next);
                    self.lose(claim, LostCause::Taken);
                    return Err(Error::Lost(claim.lost(token, LostCause::Taken)));
                }
                Err(error) => {
                    unanswered += 1;
                    let wait = backoff::pause(unanswered);
                    if error.kind() != BackendErrorKind::Unavailable || self.now() + wait >= give_up_at {
                        claim.end();
                        next.leave_line(error.clone());
                        self.withdraw_soon(&next); // in case it was carried out
                        return Err(Error::about(&claim.lock.name, error));
                    }
                    self.config.clock.sleep(wait);
                    continue;
                }
            };
            claim.end();
            let answer = Ok(Acquired::Queued { rank, look_again_in, ticket });
            let now = self.now();
            if let AfterAnswer::Granted(by) = next.answered(answer, sent, now, self.config.outage_limit) {
                self.granted(&next, by);
            }
            self.watchdog.due_by(next.due_at());
            return Ok(Some(next));
        }
    }

    fn successor_of(&self, claim: &Claim) -> Arc<Claim> {
        let (now, signal) = (self.now(), Signal::new(&self.config.clock));
        let (lock, owner) = (claim.lock.clone(), claim.owner.clone());
        let next = Claim::new(lock, owner, Wait::Forever, claim.terms, &self.config, signal, now);
        next.asked_by_release();
        Arc::new(next)
    }
}
