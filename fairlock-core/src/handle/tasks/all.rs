//! Several locks at once, for a task: taken in the order of their names, and all given back if one can't be had.
//!
//! | the future is | its drop |
//! | --- | --- |
//! | waiting for the n-th lock | leaves the queue, or gives back a grant on its way; then releases the locks before |
//! | over | the guard is its caller's |
//!
//! A loss of one of the first locks ends the wait for the next: a cancel, which the loss triggers, wakes the task.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::guard::AsyncGuard;
use super::hold::UntilLost;
use super::{AsyncLock, asked};
use crate::backend::Wait;
use crate::error::{Lost, Result};
use crate::handle::all_guard::AllGuard;
use crate::handle::caller::wait_of;
use crate::handle::guard::{OneGuard, TryLock};
use crate::handle::lock::Lock;
use crate::ids::FencingToken;

/// An [`AllGuard`] of a task, made by [`AsyncClient::lock_all`](crate::AsyncClient::lock_all). It may move between threads, and its
/// drop blocks none: the locks are released in the background, the last name first.
pub type AsyncAllGuard = AllGuard<AsyncGuard>;

impl OneGuard for AsyncGuard {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn valid_for(&self) -> Duration {
        (**self).valid_for()
    }

    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn token(&self) -> FencingToken {
        self.token
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
) -> Result<TryLock<AsyncAllGuard>> {
    let mut all = AsyncAllGuard::new();
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

impl AsyncAllGuard {
    /// Ready when the first hold is lost, and never if the locks are released before. As [`AsyncHold::lost`](crate::AsyncHold::lost).
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
