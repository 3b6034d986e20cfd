//! A place in line in the user's hands: he waits for it when he likes, beside other things if he likes.

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::backend::Wait;
use crate::claim::{Claim, Patience};
use crate::flow::{Taken, Waited};
use crate::handle::caller::{Caller, wait_of};
use crate::handle::{Guard, Owner, Ownership, ThisThread, TryLock};
use crate::{Error, Result};

/// A place in the line of a lock. [`LockRequest`] is that of a thread, [`OwnedRequest`] that of an [`Owner`]. Dropping it
/// withdraws it, or gives back what it was granted.
///
/// While nobody waits on it the client's watchdog asks for it, so it is granted in its turn all the same. A grant
/// that lies there is a hold: it is renewed, and keeps the lock from others.
#[must_use = "if unused the place is given up at once"]
#[derive(Debug)]
pub struct Request<O: Ownership = ThisThread> {
    caller: Caller<O>,
    /// None when it was granted and taken, or has failed.
    claim: Option<Arc<Claim>>,
    /// Kept here too, so that the channel stays open from one claim to the next.
    decider: Sender<()>,
    decided: Receiver<()>,
    mobility: PhantomData<O::Mobility>,
}

/// A request of the thread that made it, which it can't leave.
pub type LockRequest = Request<ThisThread>;

/// A request of an [`Owner`]; it may move between threads.
pub type OwnedRequest = Request<Owner>;

impl<O: Ownership> Request<O> {
    pub(super) fn new(caller: Caller<O>) -> Result<Request<O>> {
        let claim = caller.begin()?;
        let (decider, decided) = bounded(1);
        claim.tell_when_decided(decider.clone());
        Ok(Request { caller, claim: Some(claim), decider, decided, mobility: PhantomData })
    }

    /// Gets one message when the request is decided, granted or failed; then `wait` returns at once. If the grant is over
    /// by then (nobody took it for too long), the request goes on with a new place, and there will be another message.
    pub fn decided(&self) -> &Receiver<()> {
        &self.decided
    }

    /// How many are ahead, as last heard; 0 is next. None when it is decided, or the lock is plain.
    pub fn rank(&self) -> Option<u64> {
        self.claim.as_ref()?.rank()
    }

    /// Waits for its turn, without limit.
    ///
    /// # Errors
    /// See [`Lock`](crate::Lock); [`Error::Misuse`] when it was decided before.
    pub fn wait(mut self) -> Result<Guard<O>> {
        loop {
            if let TryLock::Granted(guard) = self.wait_up_to(Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    /// Waits for its turn, at most `timeout`; after [`TryLock::Busy`] it keeps its place.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.wait_up_to(wait_of(timeout))
    }

    /// Waits for its turn until `deadline`, by the client's clock; after [`TryLock::Busy`] it keeps its place.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<TryLock<Guard<O>>> {
        self.wait_for(self.caller.time_to(deadline))
    }

    fn wait_up_to(&mut self, wait: Wait) -> Result<TryLock<Guard<O>>> {
        let patience = Patience { keeps_place: true, ..self.caller.patience(wait) };
        loop {
            // Put back only where the request goes on: a grant or an error spends it.
            let Some(claim) = self.claim.take() else {
                let reason = "the request was decided before: its guard was taken, or its error reported";
                return Err(Error::Misuse { lock: self.caller.lock.name.clone(), reason });
            };
            match self.caller.shared.wait_for(&claim, &patience)? {
                Waited::Granted(token) => {
                    let shared = Arc::clone(&self.caller.shared);
                    return Ok(TryLock::Granted(Guard::new(shared, Taken { claim, token })));
                }
                Waited::NotGranted => {
                    self.claim = Some(claim);
                    return Ok(TryLock::Busy);
                }
                Waited::Again => {
                    let claim = self.caller.begin()?;
                    // What was said of the old claim is not true of this one.
                    while self.decided.try_recv().is_ok() {}
                    claim.tell_when_decided(self.decider.clone());
                    self.claim = Some(claim);
                }
            }
        }
    }
}

impl<O: Ownership> Drop for Request<O> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.caller.shared.drop_share(&claim);
        }
    }
}

impl<O: Ownership> UnwindSafe for Request<O> {}
impl<O: Ownership> RefUnwindSafe for Request<O> {}
