//! How a hold is given up while its lock stays taken for a time, without a holder.
//!
//! | the hold | its claim | what the server has | moved by |
//! | --- | --- | --- | --- |
//! | held once, and certain | `Held` | the hold of the request | `keep`: the claim leaves, and no renewal begins |
//! | being kept | `Leaving` | that hold, or the same under the keeper's number | an attempt; each repeats the last one's number |
//! | kept | `Over` | the hold under the keeper's number, with an end | its end, or an operator |
//! | lost, or held more than once | as it is | | an ordinary unlock |
//!
//! Earlier messages name the former request, and do not touch the kept hold: a renewal under way, a late ask, a withdrawal. A
//! late attempt to keep finds the hold kept, or gone; only if no attempt was answered can it still take effect, within the
//! store's `attempt_ttl`. A shutdown leaves the kept hold alone, since the claim is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Parts;
use super::counted::end_of;
use super::release::{Effort, settle_renewal, wait_while};
use crate::backend::{BackendError, BackendErrorKind, HoldKept, RequestId};
use crate::claim::{Claim, Unlocked};
use crate::config::LONGEST;
use crate::error::{Error, LostCause, Result};
use crate::ids::FencingToken;
use crate::ledger::Ledger;
use crate::logging::{log_line, ms};
use crate::time;

/// The lease that an attempt names after `at_least` is over. The attempt is made all the same: an earlier one may have been
/// carried out.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The end of the claim here, even if the backend panics: whether the lock is kept is not known then, and a release could free it.
struct End<'a>(&'a Ledger, &'a Arc<Claim>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.retire(self.1);
    }
}

impl Parts<'_> {
    /// Gives up the claim's only hold, and has the server keep the lock taken until `at_least` after the grant.
    pub(crate) fn keep(self, claim: &Arc<Claim>, at_least: Duration) -> Result<()> {
        let _here = claim.config.clock.attend();
        let now = claim.config.now();
        // Counts from when this client learned of the grant, which is no earlier than the grant.
        let held_for = claim.held_for(now).unwrap_or_default();
        let left = at_least.min(LONGEST).saturating_sub(held_for);
        if left.is_zero() {
            return self.unlock(claim, Effort::Persistent);
        }
        match claim.unlock_only(now) {
            Some(Unlocked::Last { token, held_for, is_asking }) => {
                if is_asking {
                    wait_while(claim, Claim::is_asking); // as an unlock does
                }
                let kept = self.keep_until(claim, token, held_for, now + left);
                self.ledger.counters.held(&claim.lock, held_for);
                claim.end_hold(end_of(&kept, "kept"));
                kept
            }
            _ => {
                self.unlock(claim, Effort::Persistent)?;
                let reason = "it is held more than once: only the last guard of an owner can keep it, and this one was unlocked";
                Err(Error::Misuse { lock: claim.lock.name.clone(), reason: reason.to_owned() })
            }
        }
    }

    fn keep_until(
        self,
        claim: &Arc<Claim>,
        token: FencingToken,
        held_for: Duration,
        until: Instant,
    ) -> Result<()> {
        let end = End(self.ledger, claim);
        let keeper = RequestId::fresh();
        let give_up_at = claim.config.now() + claim.config.outage_limit;
        let mut unanswered = 0;
        let result = loop {
            let left = until.saturating_duration_since(claim.config.now()).max(AT_ONCE);
            match self.backend.keep(&claim.hold(token), keeper, left) {
                // An earlier attempt was carried out, and its time is over.
                Ok(HoldKept::NotHeld) if unanswered > 0 && until <= claim.config.now() => break Ok(()),
                Ok(HoldKept::NotHeld) => {
                    self.ledger.lose(claim, LostCause::Taken);
                    break Err(Error::Lost(claim.lost(token, LostCause::Taken)));
                }
                Ok(HoldKept::Kept) => break Ok(()),
                Err(error) => {
                    unanswered += 1;
                    claim.leaving_failed(error.clone());
                    let wait = time::pause(unanswered);
                    // A right that the hold was granted by may come back.
                    let hopeless = !error.kind().is_transient() && error.kind() != BackendErrorKind::Denied;
                    if hopeless || claim.config.now() + wait >= give_up_at {
                        break Err(Error::about(&claim.lock.name, unknown(error)));
                    }
                    claim.config.clock.sleep(wait);
                }
            }
        };
        if matches!(result, Ok(()) | Err(Error::Lost(_))) {
            self.outage.heard();
        }
        if result.is_ok() {
            let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*claim.config.label);
            let left = until.saturating_duration_since(claim.config.now());
            log_line!(debug, "fairlock::release",
                event = "kept", lock = lock.as_str(), owner = owner.as_str(), label = label,
                token = token.get(), held_ms = ms(held_for), left_ms = ms(left);
                "lock {lock} released by {label} after {held_for:.1?}, but kept for {left:.1?} more, token {token} ({owner})"
            );
        }
        drop(end);
        settle_renewal(claim, Effort::Persistent);
        result
    }
}

/// Says what may have become of the hold. It is not released: the lock would be free too early.
fn unknown(error: BackendError) -> BackendError {
    let may_be = match error.kind() {
        BackendErrorKind::Unavailable => {
            "; the lock may be kept for the time that was asked, or be free when its lease ends"
        }
        _ => "; the lock is free when its lease ends",
    };
    error.and(may_be)
}
