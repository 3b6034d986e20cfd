//! How a hold is given back: once by its holder, and if the server did not answer, again and again in the
//! background until it has heard or the lease is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BackendErrorKind, HoldCountSet, Released};
use crate::claim::{AfterRetiring, Claim, Unlocked};
use crate::logging::{log_safely, ms};
use crate::shared::Shared;
use crate::{Error, FencingToken, LostCause, Result, backoff};

/// How long the holder himself tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A drop: once.
    Once,
    /// An explicit unlock: until the outage limit.
    Persistent,
}

impl Shared {
    /// Gives back one hold of the claim.
    pub(crate) fn unlock(&self, claim: &Arc<Claim>, effort: Effort) -> Result<()> {
        let _here = self.config.clock.attend();
        let now = self.now();
        let given = match claim.unlock(now) {
            // It is marked as lost, and given back as such; or a renewal was quicker, and it is held.
            Unlocked::Expired => {
                self.lose_if_expired(claim);
                claim.unlock(now)
            }
            given => given,
        };
        match given {
            Unlocked::StillHeld { token, count } => {
                match self.backend.set_hold_count(&claim.hold(token), count) {
                    // Another thread of this owner has given the last one back, and the server heard of that first.
                    Ok(HoldCountSet::Lost) if claim.is_unlocked() => Ok(()),
                    Ok(HoldCountSet::Lost) => Err(self.taken(claim)),
                    Ok(HoldCountSet::Set) => Ok(()),
                    // It is still held for certain, and the count rides on the next renewal.
                    Err(error) => {
                        log_safely(|| {
                            log::debug!(
                                target: "fairlock::release",
                                event = "count not told", lock = claim.lock.name.as_str(), error:% = error;
                                "hold count of {} not told: {error}", claim.lock.name
                            );
                        });
                        Ok(())
                    }
                }
            }
            Unlocked::Last { token, held_for } => self.release(claim, token, held_for, now, effort),
            Unlocked::Lost { lost, last } => {
                match lost.cause {
                    _ if !last => {}
                    LostCause::Shutdown => _ = self.retire(claim), // the shutdown itself tells the server
                    // Over by our clock, but the server may still keep it from the others for a while.
                    _ => {
                        self.release_soon(claim);
                        self.settle_renewal(claim, effort);
                    }
                }
                Err(Error::Lost(lost))
            }
            Unlocked::NotHeld | Unlocked::Expired => Err(self.not_held(claim)),
        }
    }

    /// Gives back a hold that its caller can't use; what comes of it is of no interest to him.
    pub(crate) fn unlock_unused(&self, claim: &Arc<Claim>) {
        if let Err(error) = self.unlock(claim, Effort::Once) {
            log_safely(|| {
                log::debug!(
                    target: "fairlock::release",
                    event = "too late", lock = claim.lock.name.as_str(), error:% = error;
                    "a hold that came too late was given back: {error}"
                );
            });
        }
    }

    fn release(
        &self,
        claim: &Arc<Claim>,
        token: FencingToken,
        held_for: Duration,
        now: Instant,
        effort: Effort,
    ) -> Result<()> {
        let give_up_at = now + self.config.outage_limit;
        let mut unanswered = 0;
        let result = loop {
            match self.backend.release(&claim.hold(token), None) {
                Ok(Released::NotHeld) if unanswered == 0 => {
                    self.lose(claim, LostCause::Taken);
                    break Err(Error::Lost(claim.lost(token, LostCause::Taken)));
                }
                // Released, or an earlier try was carried out and only its answer was lost: it was valid then.
                Ok(_) => break Ok(()),
                Err(error) => {
                    unanswered += 1;
                    claim.leaving_failed(error.clone());
                    let wait = backoff::pause(unanswered);
                    let hopeless = error.kind() != BackendErrorKind::Unavailable;
                    if hopeless || effort == Effort::Once || self.now() + wait >= give_up_at {
                        self.release_soon(claim);
                        self.settle_renewal(claim, effort);
                        return Err(Error::about(&claim.lock.name, error));
                    }
                    self.config.clock.sleep(wait);
                }
            }
        };
        if result.is_ok() {
            let (lock, owner) = (&claim.lock.name, &claim.owner);
            log_safely(|| {
                log::debug!(
                    target: "fairlock::release",
                    event = "released", lock = lock.as_str(), owner = owner.as_str(), token = token.get(),
                    held_ms = ms(held_for);
                    "lock {lock} given back by {owner}"
                );
            });
        }
        if self.retire(claim) == AfterRetiring::Renewing {
            self.settle_renewal(claim, effort);
        }
        result
    }

    fn settle_renewal(&self, claim: &Claim, effort: Effort) {
        match effort {
            Effort::Once => {}
            Effort::Persistent => self.wait_for_renewal(claim),
        }
    }

    pub(super) fn taken(&self, claim: &Arc<Claim>) -> Error {
        self.lose(claim, LostCause::Taken);
        claim.loss(self.now()).map_or_else(|| self.not_held(claim), Error::Lost)
    }

    pub(crate) fn not_held(&self, claim: &Claim) -> Error {
        Error::NotHeld { lock: claim.lock.name.clone(), owner: claim.owner.clone(), guards: 0 }
    }
}
