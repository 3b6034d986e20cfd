//! A place in a queue in the program's hands, which can be waited for later, beside other events; and what a handle shares with its
//! requests: which owner asks for which lock, and how.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

use super::guard::{Guard, Ownership, ThisThread, TryLock};
use super::receiver::Receiver;
use crate::backend::{Condition, LockId, Wait};
use crate::claim::{Claim, Patience, Terms};
use crate::config::LONGEST;
use crate::error::{Busy, Error, Result};
use crate::flow::{Taken, WaitOutcome, Wish};
use crate::ids::{FencingToken, OwnerId};
use crate::shared::Handles;
use crate::time::CancelToken;

/// A place in the queue of a lock. A thread has a `Request`, which can't leave it; the `Request<Owner>` of an [`Owner`](crate::Owner) may.
/// Dropping it leaves the queue, or releases the lock if it was granted.
///
/// Without a waiting thread the client's watchdog asks for the lock, so the request is granted in its turn all the same. A grant
/// that was not taken yet is a hold: it is renewed, and keeps other owners out.
#[must_use = "if unused the place is given up at once"]
#[derive(Debug)]
pub struct Request<O: Ownership = ThisThread> {
    caller: Caller<O>,
    /// The claim; none once the request was granted and taken, or has failed.
    claim: Option<Arc<Claim>>,
    /// Kept here too, so that the channel stays open from one claim to the next.
    decision: Sender<()>,
    decided: Receiver<()>,
    mobility: PhantomData<O::Mobility>,
}

impl<O: Ownership> Request<O> {
    pub(super) fn new(caller: Caller<O>) -> Result<Request<O>> {
        let claim = caller.begin()?;
        let (decision, decided) = bounded(1);
        claim.tell_when_decided(decision.clone());
        Ok(Request {
            caller,
            claim: Some(claim),
            decision,
            decided: Receiver::new(decided),
            mobility: PhantomData,
        })
    }

    /// A channel, also for a `select!`. One message arrives when the request was granted or has failed; `wait` then returns at once. If
    /// the grant ended before a caller took it, the request continues with a new place, and another message follows.
    pub fn decided(&self) -> &Receiver<()> {
        &self.decided
    }

    /// How many waiters are ahead, as last heard; 0 is next. None when the request is decided, or the lock is plain.
    pub fn rank(&self) -> Option<u64> {
        self.claim.as_ref()?.rank()
    }

    /// Waits for the lock, without a time limit.
    ///
    /// # Errors
    /// See [`Lock`](crate::Lock); [`Error::Misuse`] when an earlier wait returned the guard or an error, and for a request that was
    /// [declined](crate::Busy::declined): of that [`wait_for`](Self::wait_for) tells.
    pub fn wait(mut self) -> Result<Guard<O>> {
        loop {
            match self.wait_up_to(Wait::Forever)? {
                TryLock::Granted(guard) => return Ok(guard),
                TryLock::Busy(Busy { lock, declined: Some(_), .. }) => {
                    let reason =
                        "the request was declined, so it can't be waited for without limit".to_owned();
                    return Err(Error::Misuse { lock, reason });
                }
                TryLock::Busy(_) => {}
            }
        }
    }

    /// Waits for the lock, at most `timeout`; after [`TryLock::Busy`] the request keeps its place. It is busy also while the server
    /// does not answer, until the outage limit is over: [`withdraw`](Self::withdraw) tells the two apart.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.wait_up_to(wait_of(timeout))
    }

    /// Waits for the lock until `deadline`, by the client's [clock](crate::ClientBuilder::clock); after [`TryLock::Busy`] the
    /// request keeps its place.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<TryLock<Guard<O>>> {
        self.wait_for(self.caller.time_to(deadline))
    }

    /// Stops waiting and leaves the queue. `Granted` if the lock was granted by then; `Busy` if by the server's last answer other
    /// owners have the lock, or stand ahead. Takes one round trip, or 50 ms without an answer. First waits for an attempt that is
    /// under way, until its time-out is over.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// let request = lock.owned_by(&client.new_owner())?.request()?;
    /// assert!(request.withdraw()?.granted().is_none()); // this thread has it
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`Error::Unavailable`] if the last attempt was refused or not answered: then who has the lock is not
    /// known.
    pub fn withdraw(mut self) -> Result<TryLock<Guard<O>>> {
        let patience = self.caller.patience(Wait::UpTo(Duration::ZERO));
        let claim = self.take_claim()?;
        match self.caller.shared.parts().wait_for(&claim, &patience)? {
            WaitOutcome::Granted(token) => Ok(TryLock::Granted(self.guard(claim, token))),
            WaitOutcome::NotGranted => Ok(TryLock::Busy(claim.busy())),
            // The hold was granted, and ended before it was taken.
            WaitOutcome::Again => self.caller.obtain(Wait::No),
        }
    }

    fn wait_up_to(&mut self, wait: Wait) -> Result<TryLock<Guard<O>>> {
        let patience = Patience { keeps_place: true, ..self.caller.patience(wait) };
        loop {
            // Put back only where the request continues: a grant or an error uses it up.
            let claim = self.take_claim()?;
            match self.caller.shared.parts().wait_for(&claim, &patience)? {
                WaitOutcome::Granted(token) => return Ok(TryLock::Granted(self.guard(claim, token))),
                WaitOutcome::NotGranted => {
                    let busy = claim.busy();
                    self.claim = Some(claim);
                    return Ok(TryLock::Busy(busy));
                }
                WaitOutcome::Again => {
                    let claim = self.caller.begin()?;
                    // A message about the old claim says nothing of this one.
                    while self.decided.try_recv().is_ok() {}
                    claim.tell_when_decided(self.decision.clone());
                    self.claim = Some(claim);
                }
            }
        }
    }

    fn take_claim(&mut self) -> Result<Arc<Claim>> {
        let reason = "the request was decided before: its guard was taken, or its error reported";
        let lock = &self.caller.lock.name;
        self.claim.take().ok_or_else(|| Error::Misuse { lock: lock.clone(), reason: reason.to_owned() })
    }

    fn guard(&self, claim: Arc<Claim>, token: FencingToken) -> Guard<O> {
        Guard::new(Arc::clone(&self.caller.shared), Taken { claim, token })
    }
}

impl<O: Ownership> Drop for Request<O> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.caller.shared.parts().drop_share(&claim);
        }
    }
}

/// Which owner asks for which lock, and how.
#[derive(Clone, Debug)]
pub(super) struct Caller<O> {
    pub(super) shared: Arc<Handles>,
    pub(super) lock: LockId,
    pub(super) owner: O,
    pub(super) terms: Terms,
    /// How many of the lock's units the caller wants.
    pub(super) units: u32,
    pub(super) cancel: Option<CancelToken>,
    pub(super) condition: Condition,
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
        let (cancel, condition) = (self.cancel.clone(), self.condition);
        Patience { wait, deadline, cancel, condition, keeps_place: false }
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
