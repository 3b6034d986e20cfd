//! How a holder renews its hold itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Parts;
use crate::backend::{Answer, BackendError, Renew, Renewal, or_missing};
use crate::claim::{AfterRenewal, Claim};
use crate::error::{Error, Result};
use crate::ledger::Ledger;

impl Parts<'_> {
    /// Renews the holds now, in one call. Returns for how long all of them are certain, or the first error. None is renewed if
    /// one is lost already.
    pub(crate) fn renew_now(self, claims: &[&Arc<Claim>]) -> Result<Duration> {
        let Parts { id, config, backend, ledger, .. } = self;
        let _here = config.clock.attend();
        let (mut items, mut leases) = (Vec::with_capacity(claims.len()), Vec::with_capacity(claims.len()));
        let sent = config.now();
        for claim in claims {
            ledger.lose_if_expired(claim);
            let Some((token, holds, lease)) = claim.renewal(sent) else {
                return Err(claim.loss(sent).map_or_else(|| claim.not_held(), Error::Lost));
            };
            items.push(Renew::Hold { hold: claim.hold(token), holds, lease });
            leases.push(lease);
        }
        let answers = backend.renew(id, &items);
        let renewed = claims.iter().zip(leases).zip(or_missing(answers));
        // Each answer is taken, even after an error.
        let renewed = renewed.map(|((claim, lease), answer)| renewed_now(ledger, claim, answer, sent, lease));
        renewed.reduce(|all, one| Ok(all?.min(one?))).unwrap_or(Ok(Duration::ZERO))
    }
}

fn renewed_now(
    ledger: &Ledger,
    claim: &Arc<Claim>,
    answer: Answer<Renewal>,
    sent: Instant,
    lease: Duration,
) -> Result<Duration> {
    match answer {
        Ok(Renewal::Renewed) => {
            let after = claim.renewed(Ok(Renewal::Renewed), sent, lease, claim.config.now());
            if let AfterRenewal::Renewed(punctuality) = after {
                ledger.counters.renewed(&claim.lock, punctuality);
            }
            // The answer may have come after the end of the new lease, or after the hold was marked as lost.
            let now = claim.config.now();
            match claim.valid_until().filter(|until| now < *until) {
                Some(until) => Ok(until - now),
                None => Err(ledger.lose_if_expired(claim).map_or_else(|| claim.not_held(), Error::Lost)),
            }
        }
        Ok(Renewal::Lost) => Err(ledger.lose_taken(claim)),
        Err(error) => Err(Error::about(&claim.lock.name, error)),
        Ok(_) => Err(Error::about(&claim.lock.name, BackendError::senseless())),
    }
}
