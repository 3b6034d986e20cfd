//! How a hold is given back: once by its holder, and if the server did not answer, again and again in the
//! background until it has heard or the lease is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, BackendErrorKind, HoldCountSet, Released, Renew, Renewal};
use crate::claim::{AfterEnd, AfterRenewal, Claim, Given};
use crate::say::say;
use crate::shared::{Shared, ms};
use crate::{Error, FencingToken, LostCause, Result, backoff};

/// For how long an explicit release waits for a renewal of its hold that is under way.
const QUIET: Duration = Duration::from_millis(500);

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
    pub(crate) fn give_back(&self, claim: &Arc<Claim>, effort: Effort) -> Result<()> {
        let _here = self.config.clock.attend();
        let now = self.now();
        let given = match claim.give_back(now) {
            // It is marked as lost, and given back as such; or a renewal was quicker, and it is held.
            Given::Over => {
                self.lose_if_over(claim);
                claim.give_back(now)
            }
            given => given,
        };
        match given {
            Given::Inner { token, count } => match self.backend.set_hold_count(&claim.hold(token), count) {
                // Another thread of this owner has given the last one back, and the server heard of that first.
                Ok(HoldCountSet::Lost) if claim.is_given_back() => Ok(()),
                Ok(HoldCountSet::Lost) => Err(self.taken(claim)),
                Ok(HoldCountSet::Set) => Ok(()),
                // It is still held for certain, and the count rides on the next renewal.
                Err(error) => {
                    say(|| {
                        log::debug!(
                            target: "fairlock::release",
                            event = "count not told", lock = claim.lock.name.as_str(), error:% = error;
                            "hold count of {} not told: {error}", claim.lock.name
                        );
                    });
                    Ok(())
                }
            },
            Given::Last { token, held_for } => self.release(claim, token, held_for, now, effort),
            Given::Lost { lost, last } => {
                match lost.cause {
                    _ if !last => {}
                    LostCause::Shutdown => _ = self.forget(claim), // the shutdown itself tells the server
                    // Over by our clock, but the server may still keep it from the others for a while.
                    _ => {
                        self.release_soon(claim);
                        self.settle_renewal(claim, effort);
                    }
                }
                Err(Error::Lost(lost))
            }
            Given::NotHeld | Given::Over => Err(self.not_held(claim)),
        }
    }

    /// Gives back a hold that its caller can't use; what comes of it is of no interest to him.
    pub(crate) fn return_hold(&self, claim: &Arc<Claim>) {
        if let Err(error) = self.give_back(claim, Effort::Once) {
            say(|| {
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
            say(|| {
                log::debug!(
                    target: "fairlock::release",
                    event = "released", lock = lock.as_str(), owner = owner.as_str(), token = token.get(),
                    held_ms = ms(held_for);
                    "lock {lock} given back by {owner}"
                );
            });
        }
        if self.forget(claim) == AfterEnd::Renewing {
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

    /// As a rule no renewal of a hold is sent after an explicit release has returned: one that the watchdog has begun is
    /// waited for, but not for long. It is part of one call for all holds that are due, and others may keep it waiting.
    /// A late one is harmless: it names owner, request and token, and so finds nothing to prolong.
    pub(crate) fn wait_for_renewal(&self, claim: &Claim) {
        let mut until = None;
        loop {
            let seen = claim.signal.epoch();
            if !claim.is_renewing() {
                return; // as a rule: without a look at the clock
            }
            let now = self.now();
            let until = *until.get_or_insert(now + QUIET);
            if now >= until {
                return;
            }
            claim.signal.wait(seen, Some(until));
        }
    }

    /// Asks the server now, and prolongs the hold. Returns for how long it is certain.
    pub(crate) fn renew_now(&self, claim: &Arc<Claim>) -> Result<Duration> {
        let _here = self.config.clock.attend();
        self.lose_if_over(claim);
        let sent = self.now();
        let Some((token, holds, lease)) = claim.renewal(sent) else {
            return Err(claim.loss(sent).map_or_else(|| self.not_held(claim), Error::Lost));
        };
        let item = Renew::Hold { hold: claim.hold(token), holds, lease };
        match self.backend.renew(self.id, &[item]).pop() {
            Some(Ok(Renewal::Renewed)) => {
                let after = claim.renewed(Ok(Renewal::Renewed), sent, lease, self.now());
                if let AfterRenewal::Renewed(punctuality) = after {
                    self.counters.renewed(punctuality);
                }
                // The answer may have come when the new lease was over too, or when the hold had been given up for lost.
                let now = self.now();
                match claim.valid_until().filter(|until| now < *until) {
                    Some(until) => Ok(until - now),
                    None => {
                        self.lose_if_over(claim);
                        Err(claim.loss(now).map_or_else(|| self.not_held(claim), Error::Lost))
                    }
                }
            }
            Some(Ok(Renewal::Lost)) => Err(self.taken(claim)),
            Some(Err(error)) => Err(Error::about(&claim.lock.name, error)),
            Some(Ok(_)) | None => {
                let error = BackendError::new(BackendErrorKind::Unavailable, "the answer makes no sense");
                Err(Error::about(&claim.lock.name, error))
            }
        }
    }

    fn taken(&self, claim: &Arc<Claim>) -> Error {
        self.lose(claim, LostCause::Taken);
        claim.loss(self.now()).map_or_else(|| self.not_held(claim), Error::Lost)
    }

    pub(crate) fn not_held(&self, claim: &Claim) -> Error {
        Error::NotHeld { lock: claim.lock.name.clone(), owner: claim.owner.clone(), guards: 0 }
    }
}
