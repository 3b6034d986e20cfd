//! What callers leave to other threads: releases and withdrawals to the watchdog, and the first attempts of tasks to the thread for
//! tasks (`errands.rs`). `flow/turn.rs` does these chores.

mod errands;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::backoff::Retries;
use crate::claim::Claim;
use crate::config::MOST_AT_ONCE;

pub(crate) use errands::{Batch, Errand, Errands};

/// The chores, in the order of their next attempts. A method looks only at the chores that it takes, but for those that are
/// called once in an outage, or once a turn while the server does not answer.
#[derive(Default)]
pub(crate) struct Chores {
    queues: Mutex<Queues>,
    /// Of those that were tried before.
    pub(crate) retries: Retries,
}

#[derive(Default)]
struct Queues {
    /// Chores without an attempt.
    fresh: VecDeque<Chore>,
    /// Chores with an unanswered attempt.
    tried: VecDeque<Chore>,
    /// Withdrawals for later, when an attempt can no longer begin anything: by that time and the request's number.
    late: BTreeMap<(Instant, u64), Arc<Claim>>,
}

impl Queues {
    fn make_due(&mut self, is_due: impl Fn(Instant) -> bool) {
        while let Some(first) = self.late.first_entry().filter(|first| is_due(first.key().0)) {
            let ((at, _), claim) = first.remove_entry();
            self.fresh.push_back(Chore::new(claim, Duty::Withdraw, at));
        }
    }
}

pub(crate) struct Chore {
    pub(crate) claim: Arc<Claim>,
    pub(crate) duty: Duty,
    since: Instant,
    pub(crate) tried: bool,
    /// An earlier attempt may have been carried out, even if a panic has hidden its answer.
    pub(crate) again: bool,
}

impl Chore {
    fn new(claim: Arc<Claim>, duty: Duty, since: Instant) -> Chore {
        Chore { claim, duty, since, tried: false, again: false }
    }

    /// From then on lease and place are over at the server, even if a late attempt began them at its very end.
    fn until(&self) -> Instant {
        let Chore { claim, since, .. } = self;
        let late = claim.config.attempt_ttl.unwrap_or_default();
        *since + late + claim.terms.first_lease() + claim.config.place_ttl
    }
}

/// What the server is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// That the hold is given up.
    Release,
    /// That the request is given up, even if it was granted.
    Withdraw,
}

impl Duty {
    /// Whether a call of this claim is under way that has to end before the chore; a claim with a duty begins no more such calls. An
    /// ask that the server carried out after the chore would begin anew what the chore ends. A heartbeat begins nothing, but if its
    /// answer tells of a place after the withdrawal, the request is withdrawn once more: where owners name places, that would
    /// remove the place of the owner's next request. (The renewal of a hold finds nothing after the release.)
    pub(crate) fn has_to_wait(self, claim: &Claim) -> bool {
        match self {
            Duty::Release => claim.is_asking(),
            Duty::Withdraw => claim.may_make_a_place(),
        }
    }
}

impl Chores {
    pub(crate) fn add(&self, claim: &Arc<Claim>, duty: Duty, now: Instant) {
        self.queues.lock().fresh.push_back(Chore::new(Arc::clone(claim), duty, now));
        claim.raise(); // a caller may wait for the claim's end, and do it itself
    }

    /// Has the request withdrawn at `at`, and not before.
    pub(crate) fn add_late(&self, claim: Arc<Claim>, at: Instant) {
        self.queues.lock().late.insert((at, claim.request.get()), claim);
    }

    /// When this claim is to be withdrawn, if that is later.
    pub(crate) fn late_at(&self, claim: &Arc<Claim>) -> Option<Instant> {
        let queues = self.queues.lock();
        queues.late.iter().find(|(_, late)| Arc::ptr_eq(late, claim)).map(|((at, _), _)| *at)
    }

    /// The claims that are to be withdrawn later.
    pub(crate) fn later(&self) -> Vec<Arc<Claim>> {
        self.queues.lock().late.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        let queues = self.queues.lock();
        queues.fresh.len() + queues.tried.len()
    }

    /// Whether no chore is left, not even for later.
    pub(crate) fn is_clear(&self) -> bool {
        let Queues { fresh, tried, late } = &*self.queues.lock();
        fresh.is_empty() && tried.is_empty() && late.is_empty()
    }

    /// Whether a chore with an unanswered attempt is left.
    pub(crate) fn has_failed(&self) -> bool {
        !self.queues.lock().tried.is_empty()
    }

    /// Takes the chore of this claim, unless another thread has taken it, or makes a call that has to end first: the claim's signal
    /// is raised when that call has ended.
    pub(crate) fn take(&self, claim: &Arc<Claim>) -> Option<ChoresInHand<'_>> {
        let mut queues = self.queues.lock();
        let Queues { fresh, tried, .. } = &mut *queues;
        let chore = [fresh, tried].into_iter().find_map(|queue| {
            // The latest chore first: as a rule the caller has just left, and come back.
            let at = queue.iter().rposition(|chore| Arc::ptr_eq(&chore.claim, claim))?;
            (!queue[at].duty.has_to_wait(claim)).then(|| queue.remove(at))?
        })?;
        Some(ChoresInHand { chores: self, todo: VecDeque::from([chore]), back: Vec::new() })
    }

    /// Has callers that wait for an answer look again whether to go on waiting.
    pub(crate) fn tell_callers(&self) {
        let claims: Vec<_> = {
            let queues = self.queues.lock();
            queues.fresh.iter().chain(&queues.tried).map(|chore| Arc::clone(&chore.claim)).collect()
        };
        claims.iter().for_each(|claim| claim.raise()); // without the mutex: it may run a waker
    }

    /// Makes later withdrawals due at once: the client ends, and can't wait for what may arrive late.
    pub(crate) fn make_late_ones_due(&self) {
        self.queues.lock().make_due(|_| true);
    }

    pub(crate) fn take_all(&self) -> VecDeque<Chore> {
        let Queues { mut fresh, mut tried, .. } = {
            let mut queues = self.queues.lock();
            queues.make_due(|_| true);
            std::mem::take(&mut *queues)
        };
        fresh.append(&mut tried);
        fresh
    }

    /// Takes out the chores that failed before and whose time is over.
    pub(crate) fn take_over(&self, now: Instant) -> VecDeque<Chore> {
        let mut queues = self.queues.lock();
        let (over, left) = queues.tried.drain(..).partition(|chore: &Chore| chore.until() <= now);
        queues.tried = left;
        over
    }

    /// Puts claims with one duty into the calling thread's hands, without a detour through the queue.
    pub(crate) fn in_hand(&self, claims: Vec<Arc<Claim>>, duty: Duty, now: Instant) -> ChoresInHand<'_> {
        let todo = claims.into_iter().map(|claim| Chore::new(claim, duty, now)).collect();
        ChoresInHand { chores: self, todo, back: Vec::new() }
    }

    /// Takes the next chores that are due, for one call: those with one duty that follow each other. First attempts go before
    /// retries, which wait for the pause.
    pub(crate) fn next(&self, now: Instant) -> Option<ChoresInHand<'_>> {
        let may_retry = !self.retries.is_pausing(now);
        let mut queues = self.queues.lock();
        queues.make_due(|at| at <= now);
        let Queues { fresh, tried, .. } = &mut *queues;
        let queue = if fresh.is_empty() && may_retry { tried } else { fresh };
        let duty = queue.front()?.duty;
        let of_duty = queue.iter().take(MOST_AT_ONCE).take_while(|chore| chore.duty == duty).count();
        Some(ChoresInHand { chores: self, todo: queue.drain(..of_duty).collect(), back: Vec::new() })
    }

    /// When the next chore is due; retries wait for the pause.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let retries = self.retries.not_before();
        let queues = self.queues.lock();
        let since = |queue: &VecDeque<Chore>| queue.front().map(|chore| chore.since);
        let again = since(&queues.tried).map(|since| retries.unwrap_or(since));
        let late = queues.late.first_key_value().map(|((at, _), _)| *at);
        [since(&queues.fresh), again, late].into_iter().flatten().min()
    }
}

/// Chores in a thread's hands. The drop puts those that are left back into the queue, even after a panic.
pub(crate) struct ChoresInHand<'a> {
    chores: &'a Chores,
    pub(crate) todo: VecDeque<Chore>,
    /// The chores that go back: without an answer just now, or with another duty.
    pub(crate) back: Vec<Chore>,
}

impl Drop for ChoresInHand<'_> {
    fn drop(&mut self) {
        for chore in self.todo.drain(..).chain(self.back.drain(..)) {
            let claim = Arc::clone(&chore.claim);
            let mut queues = self.chores.queues.lock();
            if chore.tried {
                queues.tried.push_back(chore)
            } else {
                queues.fresh.push_back(chore)
            }
            drop(queues);
            claim.raise(); // a caller may wait for its turn to do it
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LockName;

    /// Whether `of` has the claim's callers look again.
    fn hears<T>(claim: &Claim, of: impl FnOnce() -> T) -> bool {
        let seen = claim.signal.generation();
        of();
        claim.signal.generation() != seen
    }

    /// A caller of the same owner may wait for the chore: that caller then does it itself, or goes on waiting.
    #[test]
    fn the_callers_of_a_claim_hear_of_its_chore() {
        let (chores, claim) = (Chores::default(), Claim::of_tests(&LockName::new("a").unwrap(), "u:1"));
        assert!(hears(&claim, || chores.add(&claim, Duty::Withdraw, Instant::now())), "it is there");
        assert!(hears(&claim, || chores.tell_callers()));
        for tried in [false, true] {
            let mut taken = chores.take(&claim).unwrap();
            assert!(!hears(&claim, || chores.tell_callers()), "it is in hand");
            taken.todo[0].tried = tried;
            assert!(hears(&claim, || drop(taken)), "it is back");
            assert_eq!((chores.len(), chores.has_failed()), (1, tried));
            assert!(hears(&claim, || chores.tell_callers()));
        }
    }
}
