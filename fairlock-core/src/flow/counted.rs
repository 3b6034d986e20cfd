//! A call for a lock is counted when it ends without the lock.

use std::time::Instant;

use crate::backend::{LockId, Wait};
use crate::config::Config;
use crate::error::Error;
use crate::stats::{Counters, Outcome};

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
        counters.not_granted(lock, outcome, now.saturating_duration_since(began.unwrap_or(now)));
    }
}
