//! A task's hold: its drop and its unlock block no thread.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::calls::by_the_client;
use super::{AsyncHold, Ends};
use crate::backend::{BackendError, BackendErrorKind};
use crate::backlog::{Cleanup, FirstAttempt, Lasts};
use crate::claim::{Claim, ReleaseStep};
use crate::error::{Error, Result};
use crate::flow::{Taken, error_of};
use crate::handle::guard::{AnyGuard, Guard, OwnedGuard, finished};
use crate::ids::FencingToken;
use crate::shared::Handles;
use crate::tasks;

/// A task's hold of a lock, with the methods of [`AsyncHold`]. It may move between threads. Dropping it blocks none: the lock is
/// released in the background, and before what tasks of this client ask for later, unless the server does not answer. If the process
/// ends right after that, [`unlock`](Self::unlock): only the drop of the client's last handle waits a moment for such releases.
#[must_use = "if unused the lock is released at once"]
#[derive(Debug)]
pub struct AsyncGuard {
    hold: AsyncHold,
    /// Released already, or another guard's: the drop releases nothing.
    spent: bool,
}

impl AnyGuard for AsyncGuard {}

impl Deref for AsyncGuard {
    type Target = AsyncHold;

    fn deref(&self) -> &AsyncHold {
        &self.hold
    }
}

impl AsyncGuard {
    pub(super) fn new(
        shared: Arc<Handles>,
        claim: Arc<Claim>,
        token: FencingToken,
        ends: Ends,
    ) -> AsyncGuard {
        AsyncGuard { hold: AsyncHold { shared, claim, token, ends }, spent: false }
    }

    /// Releases the lock, and waits until the server has said so. Once it was polled the release goes on, even if this future is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold had ended before; [`Error::Unavailable`] if the server is silent for the [outage
    /// limit](crate::ClientBuilder::outage_limit), and [`Error::Denied`] if it refuses: the release is then repeated in the background, for as
    /// long as the lease may last; [`Error::Shutdown`] if the client has ended and the server could not be told.
    pub async fn unlock(mut self) -> Result<()> {
        let until = self.give_up()?;
        self.released(until).await
    }

    /// Begins the release. Returns until when to wait for its end.
    pub(super) fn give_up(&mut self) -> Result<Instant> {
        self.spent = true;
        let until = self.shared.now() + self.shared.config.outage_limit;
        tasks::unlock(&self.shared, &self.claim, FirstAttempt::Unlock)?;
        self.claim.tell_by(until);
        self.shared.timers.due_by(Some(until));
        Ok(until)
    }

    /// Waits for the end of a release.
    pub(super) async fn released(&self, until: Instant) -> Result<()> {
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

    /// Runs the work, and drops it at its next `await` once the hold is lost or `may_go_on` refuses.
    pub(super) async fn during<W: Future>(
        &self,
        work: W,
        may_go_on: impl Fn() -> Result<()>,
    ) -> Result<W::Output> {
        let mut work = pin!(work);
        poll_fn(|context| {
            // First the waker, then the look: a loss, a cancel or a drain after the look wakes the task. So work that is polled
            // had its lock when the poll began.
            self.claim.register(context.waker());
            match self.check().and_then(|()| may_go_on()) {
                Ok(()) => work.as_mut().poll(context).map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Runs the work under the lock, and releases the lock.
    pub(super) async fn finish<W: Future>(self, f: impl FnOnce(AsyncHold) -> W) -> Result<W::Output> {
        let result = self.during(f(self.again()), || Ok(())).await?;
        finished(self.unlock().await, result)
    }

    /// Gives up the guard, but has the server keep the lock taken until `at_least` after the grant. See [`Guard::keep_for`]. Once it was
    /// polled it goes on, even if this future is dropped.
    ///
    /// # Errors
    /// As [`Guard::keep_for`].
    pub async fn keep_for(self, at_least: Duration) -> Result<()> {
        let _ends = self.ends.clone(); // dropped last
        let (shared, name) = (Arc::clone(&self.shared), self.claim.lock.name.clone());
        let guard = self.into_blocking();
        by_the_client(&shared, &name, Lasts::AsAnOutage, move || guard.keep_for(at_least)).await
    }

    /// This hold with a guard whose calls block, such as [`leak`](Guard::leak), for a thread.
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
            // Not sent here: the store's exchange would have to be a write here and a read on another thread, for each store. Nor is the
            // thread that sends it waited for: each drop would switch threads twice, for the one whose process ends. A loss was logged.
            let _ = tasks::unlock(&self.shared, &self.claim, FirstAttempt::CleanUp(Cleanup::Release));
        }
    }
}
