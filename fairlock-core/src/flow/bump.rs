//! How a holder lets the others go first: it releases the lock and asks for it at the tail of the line.

use std::sync::Arc;

use super::acquire::{Taken, Wish};
use super::release::Effort;
use crate::backend::Wait;
use crate::claim::{Claim, Patience};
use crate::shared::Shared;
use crate::{LockKind, Result};

impl Shared {
    /// Two steps, each repeatable by itself: an attempt of the release names the hold by its token, and one of the request has
    /// the request's number. So neither can touch what came after it. (One step for both could: its late attempt would
    /// release a hold that its repeat had left in place.)
    ///
    /// None, and no step, if the lock is held more than once, since the other guards rely on their hold, or if it has no line.
    ///
    /// # Errors
    /// The old hold is then over, and its loss was reported.
    pub(crate) fn bump(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Taken>> {
        let _here = self.config.clock.attend();
        if claim.lock.kind == LockKind::Plain || claim.hold_count(self.now()) > 1 {
            return Ok(None);
        }
        self.unlock(claim, Effort::Persistent)?;
        let patience = Patience { wait: Wait::Forever, deadline: None, cancel: None, keeps_place: false };
        let Claim { lock, owner, terms, takes, .. } = &**claim;
        self.obtain(Wish { lock, owner, terms: *terms, takes: *takes, patience: &patience })
    }
}
