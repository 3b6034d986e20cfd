//! Asks with a condition: for a lock unless it was granted lately, and for a place in a queue unless the queue is long.

use std::future::Future;
use std::time::Duration;

use super::guard::{Guard, Ownership, TryLock};
use super::lock::{Caller, Lock, Request};
use super::tasks::{AsyncHold, AsyncLock, TryLockFuture};
use crate::backend::{Condition, LONGEST_PERIOD, SHORTEST_PERIOD, Since};
use crate::config::check_range;
use crate::error::{Error, Result};
use crate::ids::LockKind;

/// A lock that is wanted unless it was granted lately, made by [`Lock::every`] or [`Lock::not_within`]. Its calls do not wait.
///
/// `Busy` means that another owner holds the lock, or stands ahead, or that the lock was granted:
/// [`Busy::declined`](crate::Busy::declined) tells the two apart, and the text of `Busy` says when the lock was granted.
#[derive(Clone, Debug)]
pub struct UnlessGranted<L>(L);

/// A lock that is waited for unless too many requests wait ahead, made by [`Lock::most_waiting`].
#[derive(Clone, Debug)]
pub struct UnlessCrowded<L>(L);

impl<O: Ownership> Lock<O> {
    /// For work that is done once in each period, by whichever of many processes comes first:
    /// [`try_lock`](UnlessGranted::try_lock) is granted only if the lock was not granted since the period began. Periods begin at the
    /// multiples of `period` since 1970, UTC, by the store's clock: the clocks of the processes do not matter, nor when they ask.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend, TryLock};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// const HOUR: Duration = Duration::from_secs(60 * 60);
    /// let report = client.fair_lock("report")?.every(HOUR)?;
    /// match report.try_lock()? {
    ///     TryLock::Granted(guard) => println!("writes the report of this hour, token {}", guard.token()),
    ///     TryLock::Busy(busy) => println!("{busy}"), // "lock `report` was done at …, in this period"
    /// }
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// **A run that failed has run**, as has one whose process died: no other follows in this period. So has an ask that ended with
    /// [`Error::Unavailable`], perhaps: the store may have granted it.
    ///
    /// From the first such ask on the store notes when the lock was granted last, to whichever request, and keeps the note for two periods.
    /// A store that forgets, as Redis in a fail-over, forgets the note too; then the lock may be granted once more in this period.
    /// If the store's clock ran ahead when the lock was granted, the lock counts as granted until that time has come.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for a period of less than a second, or of more than 31 days.
    pub fn every(&self, period: Duration) -> Result<UnlessGranted<Lock<O>>> {
        self.unless_granted("every", period, Since::PeriodBegan)
    }

    /// As [`every`](Self::every), but the period has no fixed beginning: granted only if the lock was not granted within this time. If work
    /// is to run once in each hour, take `every`: the runs of this are a bit more than the time apart.
    ///
    /// # Errors
    /// As [`every`](Self::every).
    pub fn not_within(&self, time: Duration) -> Result<UnlessGranted<Lock<O>>> {
        self.unless_granted("not_within", time, Since::Ago)
    }

    /// For work of which the next run covers whatever is asked for until then: at most `waiting` requests wait in the queue. One more takes
    /// no place, and is `Busy` at once; [`Busy::declined`](crate::Busy::declined) says how many are ahead. Requests by other handles
    /// of the lock are counted, and not declined.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let sync = client.fair_lock("sync")?.most_waiting(1)?; // one runs, and one waits
    /// if let Some(_guard) = sync.try_lock_for(Duration::from_secs(60))?.granted() {
    ///     println!("syncs");
    /// }
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] for a plain lock, which has no queue; and for 0, which is [`try_lock`](Lock::try_lock).
    pub fn most_waiting(&self, waiting: u32) -> Result<UnlessCrowded<Lock<O>>> {
        let Some(ahead) = waiting.checked_sub(1) else {
            return Err(self.misuse("of 0 requests none waits: use `try_lock`"));
        };
        if self.kind() == LockKind::Plain {
            return Err(self.misuse("a plain lock has no queue"));
        }
        let most_ahead = Some(u64::from(ahead));
        Ok(UnlessCrowded(self.on(Condition { most_ahead, ..Condition::default() })))
    }

    fn unless_granted(
        &self,
        setting: &'static str,
        period: Duration,
        since: fn(Duration) -> Since,
    ) -> Result<UnlessGranted<Lock<O>>> {
        check_range(setting, period, SHORTEST_PERIOD..=LONGEST_PERIOD)?;
        let not_granted = Some(since(period));
        Ok(UnlessGranted(self.on(Condition { not_granted, ..Condition::default() })))
    }

    fn on(&self, condition: Condition) -> Lock<O> {
        Lock(Caller { condition, ..self.0.clone() })
    }

    fn misuse(&self, reason: &str) -> Error {
        Error::Misuse { lock: self.lock_name().clone(), reason: reason.to_owned() }
    }
}

impl AsyncLock {
    /// As [`Lock::every`].
    ///
    /// # Errors
    /// As [`Lock::every`].
    pub fn every(&self, period: Duration) -> Result<UnlessGranted<AsyncLock>> {
        Ok(UnlessGranted(self.lock_of_thread().every(period)?.0.to_async()))
    }

    /// As [`Lock::not_within`].
    ///
    /// # Errors
    /// As [`Lock::not_within`].
    pub fn not_within(&self, time: Duration) -> Result<UnlessGranted<AsyncLock>> {
        Ok(UnlessGranted(self.lock_of_thread().not_within(time)?.0.to_async()))
    }

    /// As [`Lock::most_waiting`].
    ///
    /// # Errors
    /// As [`Lock::most_waiting`].
    pub fn most_waiting(&self, waiting: u32) -> Result<UnlessCrowded<AsyncLock>> {
        Ok(UnlessCrowded(self.lock_of_thread().most_waiting(waiting)?.0.to_async()))
    }
}

impl<O: Ownership> UnlessGranted<Lock<O>> {
    /// Makes one attempt, as [`Lock::try_lock`]. A thread that holds the lock gets it again.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> Result<TryLock<Guard<O>>> {
        self.0.try_lock()
    }

    /// As [`Lock::try_with`].
    ///
    /// # Errors
    /// As [`Lock::try_with`].
    pub fn try_with<R>(&self, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
        self.0.try_with(f)
    }
}

impl UnlessGranted<AsyncLock> {
    /// Makes one attempt, as [`AsyncLock::try_lock`].
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> TryLockFuture {
        self.0.try_lock()
    }

    /// As [`AsyncLock::try_with`].
    ///
    /// # Errors
    /// As [`AsyncLock::try_with`].
    pub fn try_with<W, F>(&self, work: F) -> impl Future<Output = Result<TryLock<W::Output>>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        self.0.try_with(work)
    }
}

#[cfg(test)]
impl<L> UnlessCrowded<L> {
    pub(crate) fn into_lock(self) -> L {
        self.0
    }
}

impl<O: Ownership> UnlessCrowded<Lock<O>> {
    /// Waits for the lock, as [`Lock::try_lock_for`]. `Busy` at once if too many requests are ahead.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.0.try_lock_for(timeout)
    }

    /// Takes a place in the queue and returns at once, as [`Lock::request`]. If too many requests are ahead, the request is decided at
    /// once, and [`Request::wait_for`] is `Busy`.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn request(&self) -> Result<Request<O>> {
        self.0.request()
    }

    /// As [`Lock::try_with_for`].
    ///
    /// # Errors
    /// As [`Lock::try_with_for`].
    pub fn try_with_for<R>(&self, timeout: Duration, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
        self.0.try_with_for(timeout, f)
    }
}

impl UnlessCrowded<AsyncLock> {
    /// Waits for the lock, as [`AsyncLock::try_lock_for`]. `Busy` at once if too many requests are ahead.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> TryLockFuture {
        self.0.try_lock_for(timeout)
    }

    /// As [`AsyncLock::try_with_for`].
    ///
    /// # Errors
    /// As [`AsyncLock::try_with_for`].
    pub fn try_with_for<W, F>(
        &self,
        timeout: Duration,
        work: F,
    ) -> impl Future<Output = Result<TryLock<W::Output>>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        self.0.try_with_for(timeout, work)
    }
}
