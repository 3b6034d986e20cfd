//! A call for a lock is counted when it ends without the lock.

use std::time::Instant;

use crate::backend::{LockId, Wait};
use crate::config::Config;
use crate::error::{Error, Result};
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
        Ok(false) => Some(without(wait)),
        Err(error) => Outcome::of(error),
    };
    if let Some(outcome) = outcome {
        let now = config.now();
        counters.not_granted(lock, outcome, now.saturating_duration_since(began.unwrap_or(now)));
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
