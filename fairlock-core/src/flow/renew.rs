//! How a holder renews its hold itself, and how an unlock waits for a call that is under way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::release::Effort;
use crate::backend::{Answer, BackendError, Renew, Renewal, or_missing};
use crate::claim::{AfterRenewal, Claim};
use crate::error::{Error, Result};
use crate::shared::Shared;

/// For how long an unlock waits for a call of its claim that is under way.
const CALL_WAIT: Duration = Duration::from_millis(500);

impl Shared {
    /// Renews the holds now, in one call. Returns for how long all of them are certain, or the first error. None is renewed if
    /// one is lost already.
    pub(crate) fn renew_now(&self, claims: &[&Arc<Claim>]) -> Result<Duration> {
        let _here = self.config.clock.attend();
        let (mut items, mut leases) = (Vec::with_capacity(claims.len()), Vec::with_capacity(claims.len()));
        let sent = self.now();
        for claim in claims {
            self.lose_if_expired(claim);
            let Some((token, holds, lease)) = claim.renewal(sent) else {
                return Err(claim.loss(sent).map_or_else(|| self.not_held(claim), Error::Lost));
            };
            items.push(Renew::Hold { hold: claim.hold(token), holds, lease });
            leases.push(lease);
        }
        let answers = self.backend.renew(self.id, &items);
        let renewed = claims.iter().zip(leases).zip(or_missing(answers));
        // Each answer is taken, also after an error.
        let renewed = renewed.map(|((claim, lease), answer)| self.renewed_now(claim, answer, sent, lease));
        renewed.reduce(|all, one| Ok(all?.min(one?))).unwrap_or(Ok(Duration::ZERO))
    }

    fn renewed_now(
        &self,
        claim: &Arc<Claim>,
        answer: Answer<Renewal>,
        sent: Instant,
        lease: Duration,
    ) -> Result<Duration> {
        match answer {
            Ok(Renewal::Renewed) => {
                let after = claim.renewed(Ok(Renewal::Renewed), sent, lease, self.now());
                if let AfterRenewal::Renewed(punctuality) = after {
                    self.counters.renewed(&claim.lock.name, punctuality);
                }
                // The answer may have come after the end of the new lease, or after the hold was marked as lost.
                let now = self.now();
                match claim.valid_until().filter(|until| now < *until) {
                    Some(until) => Ok(until - now),
                    None => {
                        Err(self.lose_if_expired(claim).map_or_else(|| self.not_held(claim), Error::Lost))
                    }
                }
            }
            Ok(Renewal::Lost) => Err(self.lose_taken(claim)),
            Err(error) => Err(Error::about(&claim.lock.name, error)),
            Ok(_) => Err(Error::about(&claim.lock.name, BackendError::senseless())),
        }
    }

    /// As a rule no renewal of a hold is sent after its explicit unlock has returned: the unlock waits for one that the
    /// watchdog has begun, but not for long, since that is one call for all holds that are due, and others may delay it. A
    /// late renewal is harmless: it names owner, request and token, and finds nothing to prolong.
    pub(super) fn settle_renewal(&self, claim: &Claim, effort: Effort) {
        if effort == Effort::Persistent {
            self.wait_while(claim, Claim::is_renewing);
        }
    }

    pub(super) fn wait_while(&self, claim: &Claim, is_under_way: impl Fn(&Claim) -> bool) {
        let mut until = None;
        loop {
            let seen = claim.signal.epoch();
            if !is_under_way(claim) {
                return; // the usual case, without reading the clock
            }
            let now = self.now();
            let until = *until.get_or_insert(now + CALL_WAIT);
            if now >= until {
                return;
            }
            claim.signal.wait(seen, Some(until));
        }
    }
}
