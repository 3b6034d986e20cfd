//! A place in line in the user's hands: he waits for it when he likes, beside other things if he likes.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::acquire::Waited;
use crate::backend::Wait;
use crate::claim::{Claim, Patience};
use crate::handle::guard::StaysOnItsThread;
use crate::handle::lock::wait_of;
use crate::handle::{Lock, LockGuard, OwnedGuard};
use crate::shared::Shared;
use crate::{Error, Result};

/// A request of an [`Owner`](crate::Owner); it may move between threads. Dropping it withdraws it, or gives back
/// what it was granted.
///
/// While nobody waits on it the client's watchdog asks for it, so it is granted in its turn all the same. A grant
/// that lies there is a hold: it is renewed, and keeps the lock from others.
#[must_use = "if unused the place is given up at once"]
#[derive(Debug)]
pub struct OwnedRequest {
    lock: Lock,
    shared: Arc<Shared>,
    /// None when it was granted and taken, or has failed.
    claim: Option<Arc<Claim>>,
    /// Kept here too, so that the channel stays open from one claim to the next.
    decider: Sender<()>,
    decided: Receiver<()>,
}

impl OwnedRequest {
    pub(crate) fn new(lock: Lock, shared: Arc<Shared>, claim: Arc<Claim>) -> OwnedRequest {
        let (decider, decided) = bounded(1);
        claim.tell_when_decided(decider.clone());
        OwnedRequest { lock, shared, claim: Some(claim), decider, decided }
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
    /// See [`Lock`]; [`Error::Misuse`] when it was decided before.
    pub fn wait(mut self) -> Result<OwnedGuard> {
        loop {
            if let Some(guard) = self.wait_up_to(Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    /// Waits for its turn, at most `timeout`; after `None` it keeps its place.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, timeout: Duration) -> Result<Option<OwnedGuard>> {
        self.wait_up_to(wait_of(timeout))
    }

    /// Waits for its turn until `deadline`, by the client's clock; after `None` it keeps its place.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<OwnedGuard>> {
        self.wait_for(deadline.saturating_duration_since(self.shared.now()))
    }

    fn wait_up_to(&mut self, wait: Wait) -> Result<Option<OwnedGuard>> {
        let patience = Patience { keeps_place: true, ..self.lock.patience(wait) };
        loop {
            // Put back only where the request goes on: a grant or an error spends it.
            let Some(claim) = self.claim.take() else {
                let reason = "the request was decided before: its guard was taken, or its error reported";
                return Err(Error::Misuse { lock: self.lock.lock_name().clone(), reason });
            };
            match self.shared.wait_for(&claim, &patience)? {
                Waited::Granted => return Ok(Some(OwnedGuard::new(Arc::clone(&self.shared), claim))),
                Waited::NotGranted => {
                    self.claim = Some(claim);
                    return Ok(None);
                }
                Waited::Again => {
                    let claim = self.lock.begin(&claim.owner)?;
                    // What was said of the old claim is not true of this one.
                    while self.decided.try_recv().is_ok() {}
                    claim.tell_when_decided(self.decider.clone());
                    self.claim = Some(claim);
                }
            }
        }
    }
}

impl Drop for OwnedRequest {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.shared.drop_share(&claim);
        }
    }
}

/// A request of the thread that made it: like its guard it is not `Send`.
#[must_use = "if unused the place is given up at once"]
#[derive(Debug)]
pub struct LockRequest(OwnedRequest, StaysOnItsThread);

impl LockRequest {
    pub(crate) fn new(request: OwnedRequest) -> LockRequest {
        LockRequest(request, StaysOnItsThread::HERE)
    }

    /// As [`OwnedRequest::decided`].
    pub fn decided(&self) -> &Receiver<()> {
        self.0.decided()
    }

    /// As [`OwnedRequest::rank`].
    pub fn rank(&self) -> Option<u64> {
        self.0.rank()
    }

    /// As [`OwnedRequest::wait`].
    ///
    /// # Errors
    /// As [`OwnedRequest::wait`].
    pub fn wait(self) -> Result<LockGuard> {
        self.0.wait().map(LockGuard::new)
    }

    /// As [`OwnedRequest::wait_for`].
    ///
    /// # Errors
    /// As [`OwnedRequest::wait_for`].
    pub fn wait_for(&mut self, timeout: Duration) -> Result<Option<LockGuard>> {
        self.0.wait_for(timeout).map(|guard| guard.map(LockGuard::new))
    }

    /// As [`OwnedRequest::wait_until`].
    ///
    /// # Errors
    /// As [`OwnedRequest::wait_until`].
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<LockGuard>> {
        self.0.wait_until(deadline).map(|guard| guard.map(LockGuard::new))
    }
}

impl UnwindSafe for OwnedRequest {}
impl RefUnwindSafe for OwnedRequest {}
impl UnwindSafe for LockRequest {}
impl RefUnwindSafe for LockRequest {}
