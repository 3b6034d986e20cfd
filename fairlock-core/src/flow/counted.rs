//! The calls for a lock, each counted if it ends without the lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acquire::{Acquiring, Taken, Wish};
use super::leave::Waited;
use crate::backend::{LockId, Wait};
use crate::claim::{Claim, Patience};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::stats::{Counters, Outcome};

/// Waits for the lock as long as the patience lasts.
pub(crate) fn obtain(acquiring: &Acquiring<'_>, wish: Wish<'_>) -> Result<Option<Taken>> {
    let _here = acquiring.config.clock.attend();
    let mut began = None;
    let obtained = acquiring.obtain_uncounted(wish, &mut began);
    let is_granted = obtained.as_ref().map(Option::is_some);
    count(&acquiring.ledger.counters, acquiring.config, wish.lock, wish.patience.wait, is_granted, began);
    obtained
}

/// Makes a request and asks once; the watchdog goes on with it while no caller waits. The result has one caller's share of
/// the claim. None only if an earlier claim of the owner was not settled in time.
pub(crate) fn begin(acquiring: &Acquiring<'_>, wish: Wish<'_>) -> Result<Option<Arc<Claim>>> {
    let _here = acquiring.config.clock.attend();
    let begun = acquiring.begin_uncounted(wish);
    if let Some(outcome) = begun.as_ref().err().and_then(Outcome::of) {
        not_granted(&acquiring.ledger.counters, wish.lock, outcome, Duration::ZERO);
    }
    begun
}

/// Waits on a claim of which the caller has a share.
pub(crate) fn wait_for(acquiring: &Acquiring<'_>, claim: &Arc<Claim>, patience: &Patience) -> Result<Waited> {
    let _here = acquiring.config.clock.attend();
    let waited = acquiring.wait_uncounted(claim, patience);
    let outcome = match &waited {
        // A request that keeps its place goes on.
        Ok(Waited::NotGranted) if !patience.keeps_place => Some(Outcome::TimedOut),
        Ok(_) => None,
        Err(error) => Outcome::of(error),
    };
    if let Some(outcome) = outcome {
        not_granted(&acquiring.ledger.counters, &claim.lock, outcome, claim.waited(claim.config.now()));
    }
    waited
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
        Ok(false) if wait == Wait::No => Some(Outcome::Busy),
        Ok(false) => Some(Outcome::TimedOut),
        Err(error) => Outcome::of(error),
    };
    if let Some(outcome) = outcome {
        let now = config.now();
        not_granted(counters, lock, outcome, now.saturating_duration_since(began.unwrap_or(now)));
    }
}

fn not_granted(counters: &Counters, lock: &LockId, outcome: Outcome, waited: Duration) {
    counters.not_granted(lock, outcome, waited);
}
