//! A task's hold: its drop and its unlock block no thread.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::Ends;
use crate::backend::{BackendError, BackendErrorKind, RequestId};
use crate::claim::{Claim, ReleaseStep};
use crate::error::{Error, Lost, Result};
use crate::flow::{Taken, error_of};
use crate::handle::guard::{AnyGuard, Guard, OwnedGuard};
use crate::ids::{FencingToken, OwnerId};
use crate::losses::FirstLoss;
use crate::shared::Shared;
use crate::tasks;

/// A task's hold of a lock. It may move between threads. Dropping it blocks none: the lock is released in the background, and before
/// what tasks of this client ask for later, unless the server does not answer.
#[must_use = "if unused the lock is released at once"]
#[derive(Debug)]
pub struct AsyncGuard {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    token: FencingToken,
    /// Released already, or another guard's: the drop releases nothing.
    spent: bool,
    _ends: Ends,
}

impl AnyGuard for AsyncGuard {}

impl AsyncGuard {
    pub(super) fn new(shared: Arc<Shared>, claim: Arc<Claim>, token: FencingToken, ends: Ends) -> AsyncGuard {
        AsyncGuard { shared, claim, token, spent: false, _ends: ends }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.claim.lock.name.as_str()
    }

    /// The owner of the hold. No other wait or guard has this owner.
    pub fn owner(&self) -> &OwnerId {
        &self.claim.owner
    }

    /// The fencing token of this acquisition.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The request that was granted. See [`Guard::request_id`].
    pub fn request_id(&self) -> RequestId {
        self.claim.request
    }

    /// How long the hold is certain without another renewal; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        let until = self.claim.valid_until();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.shared.now()))
    }

    /// Whether the hold has ended or may have. See [`Guard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.valid_for() == Duration::ZERO
    }

    /// Says whether the hold is certain still, for a `?` between two steps of the work. Asks no server. A hold that was lost stays lost.
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true.
    pub fn check(&self) -> Result<()> {
        self.shared.ledger.lose_if_expired(&self.claim).map_or(Ok(()), |lost| Err(Error::Lost(lost)))
    }

    /// Ready when this hold is lost, and never if it is released before: for a `select!` beside the work. It borrows nothing, and any
    /// number of them may wait.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + Sync + Unpin + use<> {
        let (first_loss, lost) = FirstLoss::new();
        self.claim.tell_when_lost(&first_loss);
        UntilLost { first_loss, lost }
    }

    /// Releases the lock, and waits until the server has said so. Once it was polled the release goes on, even if this future is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold had ended before; [`Error::Unavailable`] if the server is silent for the [outage
    /// limit](crate::ClientBuilder::outage_limit), and [`Error::Denied`] if it refuses: the release is then repeated in the background, for as
    /// long as the lease may last; [`Error::Shutdown`] if the client has ended and the server could not be told.
    pub async fn unlock(mut self) -> Result<()> {
        self.spent = true;
        let until = self.shared.now() + self.shared.config.outage_limit;
        tasks::unlock(&self.shared, &self.claim)?;
        self.claim.tell_by(until);
        self.shared.timers.due_by(Some(until));
        poll_fn(|context| self.poll_released(context, until)).await
    }

    fn poll_released(&self, context: &Context<'_>, until: Instant) -> Poll<Result<()>> {
        self.claim.register(context.waker());
        let lock = &self.claim.lock.name;
        let error = match self.claim.release_step() {
            ReleaseStep::Released => return Poll::Ready(Ok(())),
            ReleaseStep::Lost(cause) => Error::Lost(self.claim.lost(self.token, cause)),
            ReleaseStep::Failed(failure) => error_of(lock, failure),
            ReleaseStep::UnderWay(Some(error)) if !error.kind().is_transient() => Error::about(lock, error),
            ReleaseStep::UnderWay(error) if self.shared.now() >= until => {
                let silence = || BackendError::new(BackendErrorKind::Unavailable, "no answer to the release");
                Error::about(lock, error.unwrap_or_else(silence))
            }
            ReleaseStep::UnderWay(_) => return Poll::Pending,
        };
        Poll::Ready(Err(error))
    }

    /// This hold with a guard whose calls block, such as [`renew`](Guard::renew) and
    /// [`leak`](Guard::leak): for a thread, or a `spawn_blocking`.
    pub fn into_blocking(mut self) -> OwnedGuard {
        self.spent = true;
        let taken = Taken { claim: Arc::clone(&self.claim), token: self.token };
        Guard::new(Arc::clone(&self.shared), taken)
    }
}

impl Drop for AsyncGuard {
    fn drop(&mut self) {
        let _dropped_last = self.claim.take_waker();
        if !self.spent {
            let _ = tasks::unlock(&self.shared, &self.claim); // a loss was logged
        }
    }
}

/// The future of [`AsyncGuard::lost`].
struct UntilLost {
    first_loss: FirstLoss,
    lost: Receiver<Lost>,
}

impl Future for UntilLost {
    type Output = Lost;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lost> {
        // The loss is sent before the waker is taken: either this look finds the loss, or the waker registered here is woken.
        self.first_loss.task().register(context.waker());
        let Ok(lost) = self.lost.try_recv() else { return Poll::Pending };
        drop(self.first_loss.task().take());
        Poll::Ready(lost)
    }
}

impl Drop for UntilLost {
    fn drop(&mut self) {
        // The claim forgets a channel that is closed.
        self.first_loss.close();
        drop(self.first_loss.task().take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait for a loss that is dropped leaves nothing at the claim. A `select!` in a loop makes such a wait at each turn.
    #[test]
    fn a_dropped_wait_for_a_loss_leaves_nothing() {
        let (first_loss, lost) = FirstLoss::new();
        drop(UntilLost { first_loss: first_loss.clone(), lost });
        assert!(!first_loss.is_open(), "the claim forgets it");
    }
}
