//! What the work of a task sees of its hold.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::{Ends, asked};
use crate::backend::RequestId;
use crate::claim::Claim;
use crate::error::{Error, Lost, Result};
use crate::ids::{FencingToken, OwnerId};
use crate::losses::FirstLoss;
use crate::shared::Handles;

/// A task's hold of a lock, as its work sees the hold: an [`AsyncGuard`](crate::AsyncGuard) has these methods, and work in
/// [`AsyncLock::with`](crate::AsyncLock::with) and [`AsyncLock::lead`](crate::AsyncLock::lead) gets them. Its drop releases nothing.
#[derive(Debug)]
pub struct AsyncHold {
    pub(super) shared: Arc<Handles>,
    pub(super) claim: Arc<Claim>,
    pub(super) token: FencingToken,
    pub(super) ends: Ends,
}

impl AsyncHold {
    /// A second view of the same hold.
    pub(super) fn again(&self) -> AsyncHold {
        let AsyncHold { shared, claim, token, ends } = self;
        AsyncHold { shared: Arc::clone(shared), claim: Arc::clone(claim), token: *token, ends: ends.clone() }
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

    /// The request that was granted. See [`Guard::request_id`](crate::Guard::request_id).
    pub fn request_id(&self) -> RequestId {
        self.claim.request
    }

    /// How long the hold is certain without another renewal; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.claim.valid_for(self.shared.now())
    }

    /// Whether the hold has ended or may have. See [`Guard::is_lost`](crate::Guard::is_lost).
    pub fn is_lost(&self) -> bool {
        self.valid_for() == Duration::ZERO
    }

    /// Says whether the hold is certain still, for a `?` between two steps of the work. Asks no server. A hold that was lost stays lost.
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true; [`Error::NotHeld`] once the hold was released.
    pub fn check(&self) -> Result<()> {
        // In this order: a hold that is lost between the two looks was certain at the first.
        if !self.is_lost() {
            return Ok(());
        }
        let lost = self.shared.ledger.lose_if_expired(&self.claim);
        Err(lost.map_or_else(|| self.claim.not_held(), Error::Lost))
    }

    /// Ready when this hold is lost, and never if it is released before: for a `select!` beside the work. It borrows nothing, and any
    /// number of them may wait.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + Sync + Unpin + use<> {
        UntilLost::of([&*self.claim])
    }

    /// Prolongs the hold by one round trip, and returns how long it is certain. See [`Guard::renew`](crate::Guard::renew). If this
    /// future is dropped, the hold may be renewed or not.
    ///
    /// # Errors
    /// As [`Guard::renew`](crate::Guard::renew).
    pub async fn renew(&self) -> Result<Duration> {
        let (shared, claim) = (Arc::clone(&self.shared), Arc::clone(&self.claim));
        asked(&self.shared, &self.claim.lock.name, move || shared.parts().renew_now(&[&claim])).await
    }
}

/// The future of [`AsyncHold::lost`].
pub(super) struct UntilLost {
    first_loss: FirstLoss,
    lost: Receiver<Lost>,
}

impl UntilLost {
    /// Ready at the first loss among these claims.
    pub(super) fn of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> UntilLost {
        let (first_loss, lost) = FirstLoss::new();
        claims.into_iter().for_each(|claim| claim.tell_when_lost(&first_loss));
        UntilLost { first_loss, lost }
    }
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
