//! A handle of a lock that readers hold together and a writer holds alone.

use std::time::Duration;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::handle::as_lock::{as_lock, terms};
use crate::handle::caller::Caller;
use crate::handle::guard::{Guard, TryLock};
use crate::handle::lock::Lock;
use crate::handle::owner::{Owner, Ownership, ThisThread};
use crate::handle::tasks::{AsyncLock, Locking, TryLocking};

/// A handle of a named lock that many readers hold together, or one writer alone. Made by
/// [`Client::rw_lock`](crate::Client::rw_lock). Cheap to clone.
///
/// # Order
/// Readers and writers stand in one queue and are served in the order in which they asked. Readers that stand behind each other
/// enter together. A new reader stands behind a waiting writer, so writers never starve: a writer waits only for the readers
/// ahead. Each hold has its own lease: a dead reader delays a writer by its lease at most.
///
/// # Re-entry
/// An owner that holds the lock gets it again at once for the same or less: a read under its read, even while a writer waits, and a
/// read or a write under its write. That read keeps other owners out until the last guard is gone. A write under its own read would
/// wait for itself: it is [`Error::Misuse`].
///
/// # Tokens
/// Each grant has a greater token than all before it. A resource keeps two numbers with its data, `seen` and `writer`:
///
/// - a write with token t is refused if t is below `seen`; else both become t;
/// - a read with token t is refused if t is below `writer`; else `seen` becomes t if that is greater.
///
/// ```
/// # use fairlock::{Client, MemoryBackend};
/// # let client = Client::new(MemoryBackend::new())?;
/// let prices = client.rw_lock("prices")?;
/// {
///     let reading = prices.read()?; // beside other readers
///     let _again = prices.read()?; // a re-entry
/// }
/// let writing = prices.write()?; // alone
/// println!("write with token {}", writing.token());
/// # Ok::<(), fairlock::Error>(())
/// ```
///
/// The errors of all calls are those of [`Lock`], and [`Error::Mismatch`] where the name is in use for a lock of another kind.
#[derive(Clone, Debug)]
pub struct RwLock<O: Ownership = ThisThread> {
    read: Lock<O>,
    write: Lock<O>,
}

impl RwLock {
    /// `write` takes all units of its lock.
    pub(super) fn new(write: Lock) -> RwLock {
        RwLock { read: Lock(Caller { units: 1, ..write.0.clone() }), write }
    }
}

impl<O: Ownership> RwLock<O> {
    /// Waits until no writer holds the lock and none waits ahead, without a time limit.
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn read(&self) -> Result<Guard<O>> {
        self.read.lock()
    }

    /// Makes one attempt to read. It never passes a waiter.
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_read(&self) -> Result<TryLock<Guard<O>>> {
        self.read.try_lock()
    }

    /// As [`read`](Self::read), but waits at most `timeout`; zero is [`try_read`](Self::try_read).
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_read_for(&self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.read.try_lock_for(timeout)
    }

    /// Waits until no other owner holds the lock and none waits ahead, without a time limit.
    ///
    /// ```
    /// # use fairlock::{Client, Error, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let prices = client.rw_lock("prices")?;
    /// let reading = prices.read()?;
    /// assert!(matches!(prices.write(), Err(Error::Misuse { .. }))); // it would wait for its own read
    /// drop(reading);
    /// let writing = prices.write()?;
    /// let below = prices.read()?; // a re-entry of the write
    /// assert_eq!(below.token(), writing.token());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`RwLock`]; [`Error::Misuse`] under a read of the same owner.
    pub fn write(&self) -> Result<Guard<O>> {
        self.write.lock()
    }

    /// Makes one attempt to write. It never passes a waiter.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn try_write(&self) -> Result<TryLock<Guard<O>>> {
        self.write.try_lock()
    }

    /// As [`write`](Self::write), but waits at most `timeout`; zero is [`try_write`](Self::try_write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn try_write_for(&self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.write.try_lock_for(timeout)
    }

    /// A handle whose `lock` is [`read`](Self::read), for requests in a `select!` and for work in closures.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let prices = client.rw_lock("prices")?;
    /// let request = prices.reader().request()?;
    /// request.decided().recv().expect("the request is open"); // or in a `select!`
    /// drop(request.wait()?);
    /// prices.writer().with(|guard| println!("write with token {}", guard.token()))?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn reader(&self) -> &Lock<O> {
        &self.read
    }

    /// A handle whose `lock` is [`write`](Self::write).
    pub fn writer(&self) -> &Lock<O> {
        &self.write
    }

    /// As [`Lock::owned_by`].
    ///
    /// # Errors
    /// [`Error::Misuse`] for the owner of another client.
    pub fn owned_by(&self, owner: &Owner) -> Result<RwLock<Owner>> {
        Ok(RwLock { read: self.read.owned_by(owner)?, write: self.write.owned_by(owner)? })
    }

    /// This lock for tasks.
    pub fn to_async(&self) -> AsyncRwLock {
        AsyncRwLock { read: self.read.to_async(), write: self.write.to_async() }
    }

    fn with_lock(&self, change: impl Fn(&Lock<O>) -> Lock<O>) -> RwLock<O> {
        RwLock { read: change(&self.read), write: change(&self.write) }
    }
}

terms!(RwLock<O: Ownership>);
as_lock!(RwLock<O: Ownership>, all write);

/// A [`RwLock`] for tasks. Each wait is its own owner, so there is no re-entry: a task that reads and asks to write waits for itself.
#[derive(Clone, Debug)]
pub struct AsyncRwLock {
    read: AsyncLock,
    write: AsyncLock,
}

impl AsyncRwLock {
    /// As [`RwLock::read`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn read(&self) -> Locking {
        self.read.lock()
    }

    /// As [`RwLock::try_read`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_read(&self) -> TryLocking {
        self.read.try_lock()
    }

    /// As [`RwLock::try_read_for`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_read_for(&self, timeout: Duration) -> TryLocking {
        self.read.try_lock_for(timeout)
    }

    /// As [`RwLock::write`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn write(&self) -> Locking {
        self.write.lock()
    }

    /// As [`RwLock::try_write`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_write(&self) -> TryLocking {
        self.write.try_lock()
    }

    /// As [`RwLock::try_write_for`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_write_for(&self, timeout: Duration) -> TryLocking {
        self.write.try_lock_for(timeout)
    }

    /// A handle whose `lock` is [`read`](Self::read), for work in closures.
    pub fn reader(&self) -> &AsyncLock {
        &self.read
    }

    /// A handle whose `lock` is [`write`](Self::write), for work in closures.
    pub fn writer(&self) -> &AsyncLock {
        &self.write
    }

    fn with_lock(&self, change: impl Fn(&Lock) -> Lock) -> AsyncRwLock {
        let [read, write] = [&self.read, &self.write].map(|lock| lock.with_lock(&change));
        AsyncRwLock { read, write }
    }
}

terms!(AsyncRwLock);
as_lock!(AsyncRwLock, all write, async await);
