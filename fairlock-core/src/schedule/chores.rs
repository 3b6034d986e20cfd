//! The queue of what callers left to be told to the server: releases and withdrawals.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::claim::Claim;

/// In the order in which they are to be tried.
#[derive(Default)]
pub(crate) struct Chores(Mutex<VecDeque<Chore>>);

pub(crate) struct Chore {
    pub(crate) claim: Arc<Claim>,
    pub(crate) task: Task,
    since: Instant,
    /// By then lease and place have run out at the server.
    until: Instant,
    pub(crate) tried: bool,
}

/// What the server is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// That the hold is given up.
    Release,
    /// That the request is given up, also if it was granted.
    Withdraw,
}

impl Chores {
    pub(crate) fn add(&self, claim: &Arc<Claim>, task: Task, now: Instant) {
        let until = now + claim.terms.first_lease() + claim.place_ttl;
        let chore = Chore { claim: Arc::clone(claim), task, since: now, until, tried: false };
        self.0.lock().push_back(chore);
        claim.signal.raise(); // a caller may wait for the claim's end, and do it itself
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether one is left that was tried.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.lock().iter().any(|chore| chore.tried)
    }

    /// Takes the chore of this claim, if no thread has taken it before.
    pub(crate) fn take(&self, claim: &Arc<Claim>) -> Option<ChoreInHand<'_>> {
        self.take_first(|chore| Arc::ptr_eq(&chore.claim, claim))
    }

    /// Callers that wait for an answer look again whether to go on waiting.
    pub(crate) fn tell_callers(&self) {
        self.0.lock().iter().for_each(|chore| chore.claim.signal.raise());
    }

    pub(crate) fn take_all(&self) -> VecDeque<Chore> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Takes out the chores that failed before and whose time is over.
    pub(crate) fn take_over(&self, now: Instant) -> VecDeque<Chore> {
        let mut chores = self.0.lock();
        let (over, left) = chores.drain(..).partition(|chore: &Chore| chore.tried && chore.until <= now);
        *chores = left;
        over
    }

    /// First attempts go before retries.
    pub(super) fn next(&self, may_retry: bool) -> Option<ChoreInHand<'_>> {
        self.take_first(|chore| !chore.tried).or_else(|| self.take_first(|_| may_retry))
    }

    pub(super) fn due_at(&self, retries: Option<Instant>) -> Option<Instant> {
        let chores = self.0.lock();
        chores.iter().map(|chore| retries.filter(|_| chore.tried).unwrap_or(chore.since)).min()
    }

    fn take_first(&self, is_wanted: impl Fn(&Chore) -> bool) -> Option<ChoreInHand<'_>> {
        let mut chores = self.0.lock();
        let at = chores.iter().position(is_wanted)?;
        Some(ChoreInHand { chores: self, chore: chores.remove(at) })
    }
}

/// A chore in a thread's hands. What is left in it goes back to the queue when it is dropped, also by a panic.
pub(crate) struct ChoreInHand<'a> {
    chores: &'a Chores,
    pub(crate) chore: Option<Chore>,
}

impl Drop for ChoreInHand<'_> {
    fn drop(&mut self) {
        if let Some(chore) = self.chore.take() {
            let signal = Arc::clone(&chore.claim.signal);
            self.chores.0.lock().push_back(chore);
            signal.raise(); // a caller may wait for its turn to do it
        }
    }
}
