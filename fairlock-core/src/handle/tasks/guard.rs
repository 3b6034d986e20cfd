//! What a task holds: its guard, whose drop and unlock block no thread; what its work sees of the hold; several locks at once; and work
//! that is dropped at its next `await` when the hold is lost.
//!
//! | the future of work is | its drop | next |
//! | --- | --- | --- |
//! | waiting | leaves the queue, or gives back a grant that crosses it | the grant: at work |
//! | at work | drops the work first, then releases the lock in the background | the end of the work: releasing; a loss, a cancel or a drain drops the work |
//! | releasing | leaves the release to the client, which goes on | over; or, of a leader whose term ended, a pause |
//! | pausing | nothing is held or waited for | waiting, at the tail |
//!
//! A loss, a cancel and a drain may come at any moment: each poll registers its waker, and looks before it polls the work. Work that
//! is ready in the poll in which a loss is seen was not polled. A loss after that is found by the unlock.
//!
//! Several locks are taken in the order of their names, and all given back if one can't be had.
//!
//! | the future of several locks is | its drop |
//! | --- | --- |
//! | waiting for the n-th lock | leaves the queue, or gives back a grant on its way; then releases the locks before |
//! | over | the guard is its caller's |
//!
//! A loss of one of the first locks ends the wait for the next: a cancel, which the loss triggers, wakes the task.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{AsyncLock, Ends, TryLockFuture, asked};
use crate::backend::{BackendError, BackendErrorKind, Wait};
use crate::backlog::{Cleanup, FirstAttempt};
use crate::claim::{Claim, ReleaseStep};
use crate::error::{Error, Lost, Result};
use crate::flow::{Taken, error_of};
use crate::handle::guard::{AllGuard, Guard, Hold, OneGuard, Owner, TryLock, finished};
use crate::handle::lock::{Campaign, Lock, unless_drained, wait_of};
use crate::ids::FencingToken;
use crate::losses::{FirstLoss, Receiver};
use crate::shared::Handles;
use crate::tasks;

/// A task's hold of a lock, with the methods of [`AsyncHold`]. It may move between threads. Dropping it blocks none: the lock is
/// released in the background, and before what tasks of this client ask for later, unless the server does not answer. If the process
/// ends right after that, [`unlock`](Self::unlock): only the drop of the client's last handle waits a moment for such releases.
#[must_use = "bind it to a name, as in `let _guard`: if unused the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct AsyncGuard {
    hold: AsyncHold,
    /// Released already, or another guard's: the drop releases nothing.
    spent: bool,
}

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
        AsyncGuard { hold: AsyncHold { hold: Hold { shared, claim, token }, ends }, spent: false }
    }

    pub(crate) fn of(shared: &Arc<Handles>, claim: Arc<Claim>, token: FencingToken) -> AsyncGuard {
        AsyncGuard::new(Arc::clone(shared), claim, token, Ends::new(shared))
    }

    pub(crate) fn ends(&self) -> Ends {
        self.ends.clone()
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

    /// This hold with a guard whose calls block, such as [`leak`](Guard::leak), for a thread.
    pub fn into_blocking(mut self) -> Guard<Owner> {
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

/// A task's hold of a lock, as its work sees the hold: an [`AsyncGuard`] has the methods of this and of [`Hold`], and work in
/// [`AsyncLock::with`](crate::AsyncLock::with) and [`AsyncLock::lead`](crate::AsyncLock::lead) gets them. Its drop releases nothing.
#[derive(Debug)]
pub struct AsyncHold {
    hold: Hold,
    pub(super) ends: Ends,
}

impl Deref for AsyncHold {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl AsyncHold {
    /// A second view of the same hold.
    pub(super) fn again(&self) -> AsyncHold {
        let AsyncHold { hold: Hold { shared, claim, token }, ends } = self;
        let hold = Hold { shared: Arc::clone(shared), claim: Arc::clone(claim), token: *token };
        AsyncHold { hold, ends: ends.clone() }
    }

    /// Ready when this hold is lost, and never if it is released before: for a `select!` beside the work. It borrows nothing, and any
    /// number of them may wait.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + Sync + Unpin + use<> {
        UntilLost::of([&*self.claim])
    }

    /// Prolongs the hold by one round trip, and returns how long it is certain. See [`Guard::renew`]. If this
    /// future is dropped, the hold may be renewed or not.
    ///
    /// # Errors
    /// As [`Guard::renew`].
    pub async fn renew(&self) -> Result<Duration> {
        let (shared, claim) = (Arc::clone(&self.shared), Arc::clone(&self.claim));
        asked(&self.shared, &self.claim.lock.name, move || shared.parts().renew_now(&[&claim])).await
    }
}

/// The future of [`AsyncHold::lost`].
struct UntilLost {
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

impl OneGuard for AsyncGuard {
    fn hold(&self) -> &Hold {
        self
    }

    fn drop_all(mut guards: Vec<AsyncGuard>) {
        while let Some(last) = guards.pop() {
            drop(last);
        }
    }
}

/// Takes the locks, which are in order, by this deadline if the wait has a limit.
pub(crate) async fn obtain_all(
    locks: Vec<Lock>,
    wait: Wait,
    deadline: Option<Instant>,
) -> Result<TryLock<AllGuard<AsyncGuard>>> {
    let mut all = AllGuard::new();
    for lock in locks {
        let lock: AsyncLock = lock.cancelled_by(all.first_loss().cancel()).to_async();
        let wait = deadline.map_or(wait, |deadline| wait_of(lock.0.time_to(deadline)));
        match lock.obtain(wait).await {
            Ok(TryLock::Granted(guard)) => {
                guard.claim.tell_when_lost(all.first_loss());
                all.add(guard);
            }
            Ok(TryLock::Busy(busy)) => return Ok(TryLock::Busy(busy)),
            Err(error) => return Err(all.ended(error)),
        }
    }
    all.complete()
}

/// The guard of a task, made by [`AsyncClient::lock_all`](crate::AsyncClient::lock_all). It may move between threads, and its drop blocks
/// none: the locks are released in the background, the last name first.
impl AllGuard<AsyncGuard> {
    /// Ready when the first hold is lost, and never if the locks are released before. As [`AsyncHold::lost`].
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + Sync + Unpin + use<> {
        UntilLost::of(self.guards.iter().map(|guard| &*guard.claim))
    }

    /// Prolongs all holds by one call of the backend. See [`AllGuard::renew`].
    ///
    /// # Errors
    /// As [`AllGuard::renew`].
    pub async fn renew(&self) -> Result<Duration> {
        let Some(first) = self.guards.first() else { return Ok(Duration::ZERO) };
        let claims: Vec<_> = self.guards.iter().map(|guard| Arc::clone(&guard.claim)).collect();
        let shared = Arc::clone(&first.shared);
        let renew = move || shared.parts().renew_now(&claims.iter().collect::<Vec<_>>());
        asked(&first.shared, &first.claim.lock.name, renew).await
    }

    /// Releases all locks, the last name first, and waits until the server has said so. Once it was polled the releases go on, even
    /// if this future is dropped.
    ///
    /// # Errors
    /// The first error, each as of [`AsyncGuard::unlock`].
    pub async fn unlock(mut self) -> Result<()> {
        let mut guards = std::mem::take(&mut self.guards);
        // All holds are given up at once: a hold whose lease ends while the server is told of other holds is not lost.
        let given_up: Vec<_> = guards.iter_mut().rev().map(AsyncGuard::give_up).collect();
        let mut result = Ok(());
        for (guard, until) in guards.iter().rev().zip(given_up) {
            let told = match until {
                Ok(until) => guard.released(until).await,
                Err(error) => Err(error),
            };
            result = result.and(told);
        }
        result
    }
}

impl AsyncLock {
    /// Waits for the lock, runs the work, and releases the lock. If the hold is lost, the work is dropped at its next `await`.
    ///
    /// ```
    /// # use fairlock::{AsyncLock, FencingToken};
    /// # async fn write(_: FencingToken) -> Result<u32, std::io::Error> { Ok(7) }
    /// async fn report(lock: &AsyncLock) -> fairlock::Result<()> {
    ///     let written = lock.with(async |hold| write(hold.token()).await).await?; // the `?` is for the lock
    ///     println!("{written:?}"); // what the work returned
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The future borrows nothing of the handle, so that `tokio::spawn` takes it. Dropping it drops the work and then releases the lock in
    /// the background. Work that does not `await` is not interrupted: there [`check`](Hold::check) helps.
    ///
    /// # Errors
    /// As [`Lock::with`]. After [`Error::Lost`] the work was dropped, or what it returned.
    pub fn with<W, F>(&self, work: F) -> impl Future<Output = Result<W::Output>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        let locking = self.lock();
        async move { locking.await?.finish(work).await }
    }

    /// As [`with`](Self::with), but makes one attempt to get the lock, as [`try_lock`](Self::try_lock) does.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn try_with<W, F>(&self, work: F) -> impl Future<Output = Result<TryLock<W::Output>>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        finish(self.try_lock(), work)
    }

    /// As [`with`](Self::with), but waits for the lock at most `timeout`, as [`try_lock_for`](Self::try_lock_for) does. The time of the
    /// work does not count.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn try_with_for<W, F>(
        &self,
        timeout: Duration,
        work: F,
    ) -> impl Future<Output = Result<TryLock<W::Output>>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        finish(self.try_lock_for(timeout), work)
    }

    /// Leads whenever it is this task's turn: waits for the lock, and runs the work for as long as the hold lasts. When the term
    /// is over, by a loss, a [`CancelToken`](crate::CancelToken) of this handle or a [`drain`](crate::Client::drain), the work is dropped at its
    /// next `await`. After a loss, or while the server does not answer, it asks again.
    ///
    /// ```
    /// # use std::{future::pending, time::Duration};
    /// # use fairlock::{AsyncLock, FencingToken};
    /// # async fn act(_: FencingToken) { pending().await }
    /// async fn campaign(lock: &AsyncLock) -> fairlock::Result<()> {
    ///     lock.lead(async |term| {
    ///         println!("leads, token {}", term.token());
    ///         act(term.token()).await // until the term is over; to return is to resign
    ///     })
    ///     .await?;
    ///     Ok(()) // also after a drain
    /// }
    /// ```
    ///
    /// Returns what the work returned; the lock is then released. Returns `None` if a drain or a shutdown has ended the campaign.
    /// Dropping the future drops the work, and resigns in the background.
    /// The closure may be called again, so it borrows: `async |term|`, without `move`.
    ///
    /// # Errors
    /// As [`Lock::lead`].
    pub async fn lead<W: Future>(&self, mut work: impl FnMut(AsyncHold) -> W) -> Result<Option<W::Output>> {
        let mut campaign = Campaign::default();
        loop {
            let ended = match self.lock().await {
                Ok(guard) => {
                    campaign.is_won();
                    self.term(guard, &mut work).await
                }
                Err(error) => Err(error),
            };
            let shared = &self.0.shared;
            let now = shared.now();
            let Some(pause) = campaign.pause_after(&ended, now) else { return unless_drained(ended) };
            if !pause.is_zero() {
                shared.timers.pause(now + pause, &shared.config.clock).await;
            }
        }
    }

    async fn term<W: Future>(
        &self,
        guard: AsyncGuard,
        work: &mut impl FnMut(AsyncHold) -> W,
    ) -> Result<W::Output> {
        let _listening = self.0.cancel.as_ref().map(|cancel| cancel.listen(&guard.claim));
        let led = guard.during(work(guard.again()), || self.0.may_lead()).await;
        let released = guard.unlock().await;
        finished(released, led?)
    }
}

async fn finish<W: Future>(
    locking: TryLockFuture,
    work: impl FnOnce(AsyncHold) -> W,
) -> Result<TryLock<W::Output>> {
    match locking.await? {
        TryLock::Granted(guard) => guard.finish(work).await.map(TryLock::Granted),
        TryLock::Busy(busy) => Ok(TryLock::Busy(busy)),
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
