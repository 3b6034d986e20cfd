//! How a holder lets the others go first: it passes the lock to the next in line and queues behind the last.

use std::sync::Arc;
use std::time::Instant;

use super::acquire::{Taken, Wish};
use super::leave::Waited;
use super::release::Effort;
use crate::backend::{Acquire, Acquired, BackendError, BackendErrorKind, Released, Wait};
use crate::claim::{AfterRetiring, BumpStart, Claim, Failure, Patience};
use crate::shared::Shared;
use crate::{Error, FencingToken, LostCause, Result, backoff};

/// What the server said to a release that asks for the lock again.
enum Bumped {
    /// No other request waits.
    Kept,
    /// The old hold is over, and the new request has this answer. The attempt that was answered was sent then.
    Again(Acquired, Instant),
    /// An earlier attempt ended the old hold, and the server has nothing of the new request (any more).
    Gone,
    /// The old hold was over before.
    Lost,
    /// No answer.
    Unknown(BackendError),
    /// The client was shut down meanwhile.
    Shutdown,
}

impl Shared {
    /// Passes the lock on if another request waits, and waits for it again. Returns the new hold. None if no other request
    /// waits, if the lock is held more than once, or if it has no line.
    ///
    /// # Errors
    /// The old hold is then over, and its loss was reported unless the hold was passed on.
    pub(crate) fn bump(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Taken>> {
        let _here = self.config.clock.attend();
        self.wait_for_ask(claim);
        let next = match claim.start_bump(self.now()) {
            BumpStart::Leaving(token) => self.bump_to_the_tail(claim, token)?,
            BumpStart::Stays => return Ok(None),
            BumpStart::NotHeld => return Err(self.unlock_lost(claim)),
        };
        let Some(next) = next else { return Ok(None) };
        let patience = Patience { wait: Wait::Forever, deadline: None, cancel: None, keeps_place: false };
        match self.wait_attending(&next, &patience, self.now())? {
            Waited::Granted(token) => Ok(Some(Taken { claim: next, token })),
            Waited::NotGranted | Waited::Again => {
                let Claim { lock, owner, terms, takes, .. } = &*next;
                self.obtain(Wish { lock, owner, terms: *terms, takes: *takes, patience: &patience })
            }
        }
    }

    /// The new claim is in the registry before the request is sent: the lock may come back, by a push to the new request,
    /// before the answer does.
    fn bump_to_the_tail(&self, claim: &Arc<Claim>, token: FencingToken) -> Result<Option<Arc<Claim>>> {
        let next = self.successor_of(claim);
        self.registry.replace(claim, &next);
        let first_sent = self.now();
        match self.ask_to_bump(claim, token, &next, first_sent) {
            Bumped::Kept => {
                claim.cancel_bump();
                self.registry.replace(&next, claim);
                // A shutdown that began meanwhile may have listed the claims before this one was back.
                if !self.is_running() {
                    self.abandon_both(claim, LostCause::Shutdown, &next, Failure::Shutdown);
                    return Err(Error::Shutdown { lock: Some(claim.lock.name.clone()) });
                }
                self.retire(&next); // callers that joined it meanwhile come back to the hold
                self.schedule.due_by(claim.due_at());
                self.schedule.ends_by(claim.valid_until());
                // It was not renewed meanwhile.
                if claim.loss(self.now()).is_some() { Err(self.unlock_lost(claim)) } else { Ok(None) }
            }
            Bumped::Again(answer, sent) => {
                self.retire_bumped(claim);
                // A push is good for what is left of the place, which may exist since the first attempt. What is left of a
                // grant counts from the attempt that was answered.
                let counts_from = match answer {
                    Acquired::Granted { .. } => sent,
                    Acquired::Queued { .. } | Acquired::Busy { .. } => first_sent,
                };
                let after = next.answered(Ok(answer), counts_from, self.now(), self.config.outage_limit);
                self.follow(&next, after);
                Ok(Some(next))
            }
            Bumped::Gone => {
                self.retire_bumped(claim);
                next.ask_anew();
                next.signal.raise();
                Ok(Some(next))
            }
            Bumped::Lost => {
                self.retire(&next);
                self.lose(claim, LostCause::Taken);
                self.retire_bumped(claim);
                Err(Error::Lost(claim.lost(token, LostCause::Taken)))
            }
            Bumped::Unknown(error) => {
                let failure = Failure::Backend(error.clone());
                self.abandon_both(claim, LostCause::NotRenewed, &next, failure);
                Err(Error::about(&claim.lock.name, error))
            }
            Bumped::Shutdown => {
                self.abandon_both(claim, LostCause::Shutdown, &next, Failure::Shutdown);
                Err(Error::Shutdown { lock: Some(claim.lock.name.clone()) })
            }
        }
    }

    /// The one round trip, repeated while it is not answered: with the same numbers it takes effect once.
    fn ask_to_bump(&self, claim: &Claim, token: FencingToken, next: &Claim, first_sent: Instant) -> Bumped {
        let give_up_at = first_sent + self.config.outage_limit;
        let again: Acquire<'_> = next.acquire(&self.config.label);
        let (mut sent, mut unanswered) = (first_sent, 0);
        loop {
            let error = match self.backend.release(&claim.hold(token), Some(&again)) {
                Ok(Released::Kept) => return Bumped::Kept,
                Ok(Released::Again(answer)) => return Bumped::Again(answer, sent),
                Ok(Released::NotHeld | Released::Released) if unanswered > 0 => return Bumped::Gone,
                Ok(Released::NotHeld | Released::Released) => return Bumped::Lost,
                Err(error) => error,
            };
            unanswered += 1;
            let wait = backoff::pause(unanswered);
            if error.kind() != BackendErrorKind::Unavailable || self.now() + wait >= give_up_at {
                return Bumped::Unknown(error);
            }
            self.config.clock.sleep(wait);
            if !self.is_running() {
                return Bumped::Shutdown;
            }
            sent = self.now();
        }
    }

    /// The old hold is over, and another client may have the lock.
    fn retire_bumped(&self, claim: &Claim) {
        self.count_hold(claim);
        if claim.retire() == AfterRetiring::Renewing {
            self.wait_for_renewal(claim);
        }
    }

    /// Whether the old hold was passed on is not known: it is over for its holder, and that is reported. The server is told
    /// that neither the hold nor the new request is wanted. In this order: a late attempt then finds no hold to pass on, and
    /// makes no place.
    fn abandon_both(&self, claim: &Arc<Claim>, cause: LostCause, next: &Arc<Claim>, failure: Failure) {
        self.lose(claim, cause);
        self.count_hold(claim);
        self.release_soon(claim);
        next.fail(failure);
        self.withdraw_soon(next);
        next.signal.raise();
    }

    /// The hold has expired or was lost: that is reported unless it was before, and the hold is released.
    fn unlock_lost(&self, claim: &Arc<Claim>) -> Error {
        match self.unlock(claim, Effort::Once) {
            Err(error) => error,
            Ok(()) => self.not_held(claim), // can't be: it had expired
        }
    }

    fn successor_of(&self, claim: &Claim) -> Arc<Claim> {
        let now = self.now();
        let (lock, owner) = (claim.lock.clone(), claim.owner.clone());
        let next = Claim::new(lock, owner, Wait::Forever, claim.terms, claim.takes, &self.config, now);
        next.asked_by_release();
        Arc::new(next)
    }
}
