//! How a hold is unlocked and released: once by its holder, and, where the server does not answer, again and again in the
//! background until it has answered or the lease is over. And how a holder lets the others go first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acquire::{Taken, Wish};
use crate::backend::{HoldCountSet, Released, Wait};
use crate::backoff;
use crate::claim::{Claim, Patience, Unlocked};
use crate::error::{Error, LostCause, Result};
use crate::ids::{FencingToken, LockKind};
use crate::logging::{log_line, ms};
use crate::shared::Shared;

/// How long the holder itself tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Once, in a drop.
    Once,
    /// Until the outage limit, in an explicit unlock.
    Persistent,
}

impl Shared {
    /// Gives up one hold of the claim, and releases the last one.
    pub(crate) fn unlock(&self, claim: &Arc<Claim>, effort: Effort) -> Result<()> {
        let _here = self.config.clock.attend();
        let now = self.now();
        let mut unlocked = claim.unlock(now);
        if let Unlocked::Expired = unlocked {
            // Marked as lost, it is released as such; or a renewal was quicker, and it is still held.
            self.lose_if_expired(claim);
            unlocked = claim.unlock(now);
        }
        match unlocked {
            Unlocked::StillHeld { token, count } => {
                match self.tell_hold_count(claim, token, count, "fairlock::release") {
                    // Another thread of this owner has unlocked the last hold, and the server heard of that first.
                    HoldCountSet::Lost if claim.is_unlocked() => Ok(()),
                    HoldCountSet::Lost => Err(self.lose_taken(claim)),
                    HoldCountSet::Set => Ok(()),
                }
            }
            Unlocked::Last { token, held_for, is_asking } => {
                if is_asking {
                    // Another thread sent it before a push granted the lock. The server must not carry it out after the release: it
                    // would grant the free lock to a request that is over. A repeat does no harm before.
                    self.wait_while(claim, Claim::is_asking);
                }
                let released = self.release(claim, token, held_for, now, effort);
                self.counters.held(&claim.lock.name, held_for);
                released
            }
            Unlocked::Lost { lost, last } => {
                match lost.cause {
                    _ if !last => {}
                    LostCause::Shutdown => self.retire(claim), // the shutdown tells the server
                    // Over by this process's clock, but the server may keep it from the others a while longer.
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

    /// Releases the lock and asks for it at the tail of the line, so that the others go first.
    ///
    /// Two steps, each repeatable by itself: an attempt of the release names the hold by its token, and one of the request has
    /// the request's number. So neither can touch what came after it. (One step for both could: its late attempt would
    /// release a hold that its repeat had left in place.)
    ///
    /// None, and no step, if the lock is held more than once, since the other guards rely on their hold, or if it has no line; and in a
    /// drain, which would not grant it again.
    ///
    /// # Errors
    /// The old hold is then over, and its loss was reported.
    pub(crate) fn bump(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Taken>> {
        let _here = self.config.clock.attend();
        if claim.lock.kind == LockKind::Plain || claim.hold_count(self.now()) > 1 || self.is_draining() {
            return Ok(None);
        }
        self.unlock(claim, Effort::Persistent)?;
        let patience = Patience { wait: Wait::Forever, deadline: None, cancel: None, keeps_place: false };
        let Claim { lock, owner, terms, takes, .. } = &**claim;
        self.obtain(Wish { lock, owner, terms: *terms, takes: *takes, patience: &patience })
    }

    /// Gives up a hold that its caller can't use, whatever comes of that.
    pub(crate) fn unlock_unused(&self, claim: &Arc<Claim>) {
        if let Err(error) = self.unlock(claim, Effort::Once) {
            log_line!(debug, "fairlock::release",
                event = "too late", lock = claim.lock.name.as_str(), error:% = error;
                "a hold that came too late was given back: {error}"
            );
        }
    }

    /// Tells the server the hold count. An error counts as `Set`: the hold is certain by its own deadline, and the next
    /// renewal tells the count.
    pub(super) fn tell_hold_count(
        &self,
        claim: &Claim,
        token: FencingToken,
        count: u32,
        target: &'static str,
    ) -> HoldCountSet {
        self.backend.set_hold_count(&claim.hold(token), count).unwrap_or_else(|error| {
            log_line!(debug, target,
                event = "count not told", lock = claim.lock.name.as_str(), error:% = error;
                "hold count of {} not told: {error}", claim.lock.name
            );
            HoldCountSet::Set
        })
    }

    /// Releases the last hold.
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
            match self.backend.release(&claim.hold(token)) {
                Ok(Released::NotHeld) if unanswered == 0 => {
                    self.lose(claim, LostCause::Taken);
                    break Err(Error::Lost(claim.lost(token, LostCause::Taken)));
                }
                // Released; or an earlier attempt was carried out, when the hold was valid, and its answer was lost.
                Ok(_) => break Ok(()),
                Err(error) => {
                    unanswered += 1;
                    claim.leaving_failed(error.clone());
                    let wait = backoff::pause(unanswered);
                    let hopeless = !error.kind().is_transient();
                    if hopeless || effort == Effort::Once || self.now() + wait >= give_up_at {
                        self.release_soon(claim);
                        self.settle_renewal(claim, effort);
                        return Err(Error::about(&claim.lock.name, error));
                    }
                    self.config.clock.sleep(wait);
                }
            }
        };
        self.schedule.heard();
        if result.is_ok() {
            self.log_release(claim, token, held_for);
        }
        self.retire(claim);
        self.settle_renewal(claim, effort);
        result
    }

    pub(super) fn log_release(&self, claim: &Claim, token: FencingToken, held_for: Duration) {
        let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*self.config.label);
        log_line!(debug, "fairlock::release",
            event = "released", lock = lock.as_str(), owner = owner.as_str(), label = label,
            token = token.get(), held_ms = ms(held_for);
            "lock {lock} given back by {label} after {held_for:.1?}, token {token} ({owner})"
        );
    }

    /// The server says that another client has the lock, or none.
    pub(super) fn lose_taken(&self, claim: &Arc<Claim>) -> Error {
        self.lose(claim, LostCause::Taken);
        claim.loss(self.now()).map_or_else(|| self.not_held(claim), Error::Lost)
    }

    pub(crate) fn not_held(&self, claim: &Claim) -> Error {
        let (lock, owner) = (claim.lock.name.clone(), claim.owner.clone());
        Error::NotHeld { lock, owner, label: Arc::clone(&self.config.label), guards: 0, held_by: None }
    }
}
