//! Work of a task under a lock: dropped at its next `await` when the hold is lost.
//!
//! | the future is | its drop | next |
//! | --- | --- | --- |
//! | waiting | leaves the queue, or gives back a grant that crosses it | the grant: at work |
//! | at work | drops the work first, then releases the lock in the background | the end of the work: releasing; a loss, a cancel or a drain drops the work |
//! | releasing | leaves the release to the client, which goes on | over; or, of a leader whose term ended, a pause |
//! | pausing | nothing is held or waited for | waiting, at the tail |
//!
//! A loss, a cancel and a drain may come at any moment: each poll registers its waker, and looks before it polls the work. Work that
//! is ready in the poll in which a loss is seen was not polled. A loss after that is found by the unlock.

use std::future::Future;
use std::time::Duration;

use super::{AsyncGuard, AsyncHold, AsyncLock};
use crate::error::Result;
use crate::handle::guard::{TryLock, finished};
use crate::handle::lead::{Campaign, unless_drained};

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
    /// Dropping the future drops the work and then releases the lock in the background. Work that does not `await` is not
    /// interrupted: there [`check`](AsyncHold::check) helps.
    ///
    /// # Errors
    /// As [`Lock::with`](crate::Lock::with). After [`Error::Lost`](crate::Error::Lost) the work was dropped, or what it returned.
    pub async fn with<W: Future>(&self, work: impl FnOnce(AsyncHold) -> W) -> Result<W::Output> {
        self.lock().await?.finish(work).await
    }

    /// As [`with`](Self::with), but makes one attempt to get the lock, as [`try_lock`](Self::try_lock) does.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub async fn try_with<W: Future>(&self, work: impl FnOnce(AsyncHold) -> W) -> Result<TryLock<W::Output>> {
        finish(self.try_lock().await?, work).await
    }

    /// As [`with`](Self::with), but waits for the lock at most `timeout`, as [`try_lock_for`](Self::try_lock_for) does. The time of the
    /// work does not count.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub async fn with_for<W: Future>(
        &self,
        timeout: Duration,
        work: impl FnOnce(AsyncHold) -> W,
    ) -> Result<TryLock<W::Output>> {
        finish(self.try_lock_for(timeout).await?, work).await
    }

    /// Leads whenever it is this task's turn: waits for the lock, and runs the work for as long as the hold lasts. When the term
    /// is over, by a loss, a [`Cancel`](crate::Cancel) of this handle or a [`drain`](crate::Client::drain), the work is dropped at its
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
    /// As [`Lock::lead`](crate::Lock::lead).
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
    locked: TryLock<AsyncGuard>,
    work: impl FnOnce(AsyncHold) -> W,
) -> Result<TryLock<W::Output>> {
    match locked {
        TryLock::Granted(guard) => guard.finish(work).await.map(TryLock::Granted),
        TryLock::Busy(busy) => Ok(TryLock::Busy(busy)),
    }
}
