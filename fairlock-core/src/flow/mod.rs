//! The flows that do I/O on the thread of their caller: how a lock is acquired, passed on, renewed and released, and how a
//! caller leaves the queue.
//!
//! `acquire.rs` gets a lock, `release.rs` gives a hold or a wait up, `cleanup.rs` sends what callers have left. Here: how a holder renews
//! its hold, and how a call is counted.

mod acquire;
mod cleanup;
mod release;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use acquire::{Taken, Wish, error_of};
pub(crate) use cleanup::{CleanupRun, STEP_LIMIT};
pub(crate) use release::{Effort, GivenUp, WaitOutcome};

use crate::backend::{Answer, Backend, BackendError, LockId, Renew, Renewal, Wait, or_missing};
use crate::backlog::Backlog;
use crate::claim::{AfterRenewal, Claim};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::ids::ClientId;
use crate::ledger::Ledger;
use crate::outage::Outage;
use crate::stats::{Counters, Event, Outcome};
use crate::timers::Timers;

/// The parts of a client that the flows use.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) id: ClientId,
    pub(crate) config: &'a Arc<Config>,
    pub(crate) backend: &'a dyn Backend,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timers: &'a Timers,
    pub(crate) backlog: &'a Backlog,
    pub(crate) outage: &'a Outage,
}

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
                ledger.counters.happened(&claim.lock, Event::Renewed(punctuality));
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

/// A call has ended, with the lock or without it. `began`: when it did, if that is known.
pub(crate) fn count(
    counters: &Counters,
    config: &Config,
    lock: &LockId,
    wait: Wait,
    is_granted: std::result::Result<bool, &Error>,
    began: Option<Instant>,
) {
    let outcome = match is_granted {
        Ok(true) => None,
        Ok(false) => Some(without(wait)),
        Err(error) => Outcome::of(error),
    };
    if let Some(outcome) = outcome {
        let now = config.now();
        let waited = now.saturating_duration_since(began.unwrap_or(now));
        counters.happened(lock, Event::NotGranted(outcome, waited));
    }
}

/// The outcome of a wait that was answered, and ended without the lock.
pub(crate) fn without(wait: Wait) -> Outcome {
    if wait == Wait::No { Outcome::Busy } else { Outcome::TimedOut }
}

/// What the span of a wait or a hold says of its end; `done` unless that was an error.
pub(crate) fn end_of<T>(ended: &Result<T>, done: &'static str) -> &'static str {
    match ended {
        Ok(_) => done,
        Err(Error::Lost(_) | Error::NotHeld { .. }) => "lost",
        Err(Error::Shutdown { .. }) => "shutdown",
        Err(error) => Outcome::of(error).map_or("refused", Outcome::name),
    }
}
