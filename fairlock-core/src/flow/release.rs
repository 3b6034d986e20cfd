//! How a hold is unlocked and released: once by its holder, and, where the server does not answer, again and again in the
//! background until it has answered or the lease is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Parts;
use super::counted::end_of;
use crate::backend::{Released, only};
use crate::claim::{Claim, Unlocked};
use crate::error::{Error, LostCause, Result};
use crate::ids::FencingToken;
use crate::ledger::log_release;
use crate::logging::log_line;
use crate::time;

/// For how long an unlock waits for a call of its claim that is under way.
const CALL_WAIT: Duration = Duration::from_millis(500);

/// How long the holder itself tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Once, in a drop.
    Once,
    /// Until the outage limit, in an explicit unlock.
    Persistent,
}

/// A hold that its holder has given up. The server is still to be told: what is not, as in a panic, is left to the watchdog.
#[must_use = "the server has to be told"]
pub(crate) struct GivenUp<'a> {
    parts: Parts<'a>,
    claim: &'a Arc<Claim>,
    now: Instant,
    unlocked: Option<Unlocked>,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(Unlocked::Last { .. } | Unlocked::Lost { last: true, .. }) = self.unlocked
            && self.claim.leaving().is_some()
        {
            self.parts.ledger.release_soon(self.claim);
        }
    }
}

impl GivenUp<'_> {
    /// Tells the server, and waits for its answer.
    pub(crate) fn tell(mut self, effort: Effort) -> Result<()> {
        let Some(unlocked) = self.unlocked.clone() else { return Ok(()) };
        let told = self.parts.tell_unlocked(self.claim, unlocked, self.now, effort);
        self.unlocked = None; // not before: the backend may panic
        self.claim.end_hold(end_of(&told, "released"));
        told
    }
}

impl<'a> Parts<'a> {
    /// Gives up one hold of the claim, and releases the last one.
    pub(crate) fn unlock(self, claim: &Arc<Claim>, effort: Effort) -> Result<()> {
        let _here = claim.config.clock.attend();
        self.give_up(claim).tell(effort)
    }

    /// Gives up one hold of the claim, here alone. From now on its lease may end: that is no loss.
    pub(crate) fn give_up<'b>(self, claim: &'b Arc<Claim>) -> GivenUp<'b>
    where
        'a: 'b,
    {
        let now = claim.config.now();
        let mut unlocked = claim.unlock(now);
        if let Unlocked::Expired = unlocked {
            // Marked as lost, it is released as such; or a renewal was quicker, and it is still held.
            self.ledger.lose_if_expired(claim);
            unlocked = claim.unlock(now);
        }
        GivenUp { parts: self, claim, now, unlocked: Some(unlocked) }
    }

    fn tell_unlocked(
        self,
        claim: &Arc<Claim>,
        unlocked: Unlocked,
        now: Instant,
        effort: Effort,
    ) -> Result<()> {
        match unlocked {
            Unlocked::StillHeld => Ok(()), // the next renewal tells the store the count
            Unlocked::Last { token, held_for, is_asking } => {
                if is_asking {
                    // Another thread sent it before a push granted the lock. The server must not carry it out after the release: it
                    // would grant the free lock to a request that is over. A repeat does no harm before.
                    wait_while(claim, Claim::is_asking);
                }
                let released = self.release(claim, token, held_for, now, effort);
                self.ledger.counters.held(&claim.lock, held_for);
                released
            }
            Unlocked::Lost { lost, last } => {
                match lost.cause {
                    _ if !last => {}
                    LostCause::Shutdown => self.ledger.retire(claim), // the shutdown tells the server
                    // Over by this process's clock, but the server may keep it from the others a while longer.
                    _ => {
                        self.ledger.release_soon(claim);
                        settle_renewal(claim, effort);
                    }
                }
                Err(Error::Lost(lost))
            }
            Unlocked::NotHeld | Unlocked::Expired => Err(claim.not_held()),
        }
    }

    /// Gives up a hold that its caller can't use, whatever comes of that.
    pub(crate) fn unlock_unused(self, claim: &Arc<Claim>) {
        if let Err(error) = self.unlock(claim, Effort::Once) {
            log_line!(debug, "fairlock::release",
                event = "too late", lock = claim.lock.name.as_str(), error:% = error;
                "a hold that came too late was released: {error}"
            );
        }
    }

    /// Releases the last hold.
    fn release(
        self,
        claim: &Arc<Claim>,
        token: FencingToken,
        held_for: Duration,
        now: Instant,
        effort: Effort,
    ) -> Result<()> {
        let give_up_at = now + claim.config.outage_limit;
        let mut unanswered = 0;
        let result = loop {
            match only(self.backend.release(&[claim.hold(token)])) {
                Ok(Released::NotHeld) => {
                    // No loss: an earlier attempt released the valid hold, and its answer was lost; or the lease has ended
                    // since.
                    let found = claim.loss_found_by_release(unanswered > 0, claim.config.now());
                    let Some(cause) = found else { break Ok(()) };
                    self.ledger.lose(claim, cause);
                    break Err(Error::Lost(claim.lost(token, cause)));
                }
                Ok(Released::Released) => break Ok(()),
                Err(error) => {
                    unanswered += 1;
                    claim.leaving_failed(error.clone());
                    let wait = time::pause(unanswered);
                    let hopeless = !error.kind().is_transient();
                    if hopeless || effort == Effort::Once || claim.config.now() + wait >= give_up_at {
                        self.ledger.release_soon(claim);
                        settle_renewal(claim, effort);
                        return Err(Error::about(&claim.lock.name, error));
                    }
                    claim.config.clock.sleep(wait);
                }
            }
        };
        self.outage.heard();
        if result.is_ok() {
            log_release(claim, token, held_for);
        }
        self.ledger.retire(claim);
        settle_renewal(claim, effort);
        result
    }
}

/// Normally no renewal of a hold is sent after its explicit unlock has returned: the unlock waits for a renewal that is under
/// way. It does not wait for long: the watchdog renews all due holds by one call, which other holds may delay. A late renewal is
/// harmless: it names owner, request and token, and finds nothing to prolong.
pub(super) fn settle_renewal(claim: &Claim, effort: Effort) {
    if effort == Effort::Persistent {
        wait_while(claim, Claim::is_renewing);
    }
}

pub(super) fn wait_while(claim: &Claim, is_under_way: impl Fn(&Claim) -> bool) {
    let mut until = None;
    loop {
        let seen = claim.signal.generation();
        if !is_under_way(claim) {
            return; // the usual case, without reading the clock
        }
        let now = claim.config.now();
        let until = *until.get_or_insert(now + CALL_WAIT);
        if now >= until {
            return;
        }
        claim.signal.wait(seen, Some(until));
    }
}
