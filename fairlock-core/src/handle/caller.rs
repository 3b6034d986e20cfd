//! Which owner asks for which lock, and how: what a handle shares with its requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{LockId, Wait};
use crate::cancel::Cancel;
use crate::claim::{Claim, Patience, Terms};
use crate::config::LONGEST;
use crate::error::Result;
use crate::flow::Wish;
use crate::handle::guard::{Guard, TryLock};
use crate::handle::owner::Ownership;
use crate::ids::OwnerId;
use crate::shared::Handles;

#[derive(Clone, Debug)]
pub(super) struct Caller<O> {
    pub(super) shared: Arc<Handles>,
    pub(super) lock: LockId,
    pub(super) owner: O,
    pub(super) terms: Terms,
    /// How many of the lock's units the caller wants.
    pub(super) units: u32,
    pub(super) cancel: Option<Cancel>,
}

impl<O: Ownership> Caller<O> {
    pub(super) fn owner_id(&self) -> OwnerId {
        self.owner.owner_id(self.shared.id)
    }

    pub(super) fn obtain(&self, wait: Wait) -> Result<TryLock<Guard<O>>> {
        let (owner, patience) = (self.owner_id(), self.patience(wait));
        let taken = self.shared.parts().obtain(self.wish(&owner, &patience)?)?;
        Ok(match taken {
            Ok(taken) => TryLock::Granted(Guard::new(Arc::clone(&self.shared), taken)),
            Err(busy) => TryLock::Busy(busy),
        })
    }

    /// Makes a request, and takes a share of its claim.
    pub(super) fn begin(&self) -> Result<Arc<Claim>> {
        let (owner, patience) = (self.owner_id(), self.patience(Wait::Forever));
        loop {
            // Always some: a wait without limit ends with a claim or an error.
            if let Some(claim) = self.shared.parts().begin(self.wish(&owner, &patience)?)? {
                return Ok(claim);
            }
        }
    }

    pub(super) fn patience(&self, wait: Wait) -> Patience {
        let deadline = match wait {
            Wait::UpTo(time) => self.shared.now().checked_add(time),
            Wait::No | Wait::Forever => None,
        };
        Patience { wait, deadline, cancel: self.cancel.clone(), keeps_place: false }
    }

    pub(super) fn wish<'a>(&'a self, owner: &'a OwnerId, patience: &'a Patience) -> Result<Wish<'a>> {
        Ok(Wish { lock: &self.lock, owner, terms: self.terms.check()?, units: self.units, patience })
    }

    pub(super) fn time_to(&self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(self.shared.now())
    }
}

/// A wait that is longer than any program runs has no limit.
pub(super) fn wait_of(timeout: Duration) -> Wait {
    match timeout {
        Duration::ZERO => Wait::No,
        time if time > LONGEST => Wait::Forever,
        time => Wait::UpTo(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_more_than_100_years_has_no_limit() {
        let moment = Duration::from_nanos(1);
        let waits = [Duration::ZERO, moment, LONGEST, LONGEST + moment, Duration::MAX].map(wait_of);
        let limits = [Wait::No, Wait::UpTo(moment), Wait::UpTo(LONGEST), Wait::Forever, Wait::Forever];
        assert_eq!(waits, limits);
    }
}
