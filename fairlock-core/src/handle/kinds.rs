//! Handles of locks that several hold at once: a lock that readers hold together and a writer alone, and a number of permits.
//!
//! What they do as a [`Lock`] does, and what a semaphore's calls for threads and tasks share, is written once, as macros.

use std::time::Duration;

use super::admin::{Admin, AsyncAdmin};
use super::guard::{Guard, Owner, Ownership, ThisThread, TryLock};
use super::lock::{Caller, Lock, Request, terms};
use super::tasks::{AsyncGuard, AsyncHold, AsyncLock, LockFuture, TryLockFuture};
use crate::error::{Error, Result};
use crate::stats::Stats;

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
as_lock!(RwLock<O: Ownership>, all write, Admin);

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
    pub fn read(&self) -> LockFuture {
        self.read.lock()
    }

    /// As [`RwLock::try_read`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_read(&self) -> TryLockFuture {
        self.read.try_lock()
    }

    /// As [`RwLock::try_read_for`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_read_for(&self, timeout: Duration) -> TryLockFuture {
        self.read.try_lock_for(timeout)
    }

    /// As [`RwLock::write`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn write(&self) -> LockFuture {
        self.write.lock()
    }

    /// As [`RwLock::try_write`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_write(&self) -> TryLockFuture {
        self.write.try_lock()
    }

    /// As [`RwLock::try_write_for`].
    ///
    /// # Errors
    /// See [`RwLock`].
    pub fn try_write_for(&self, timeout: Duration) -> TryLockFuture {
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
as_lock!(AsyncRwLock, all write, AsyncAdmin);

/// A handle of a named semaphore: at most this many permits are held at once. Made by
/// [`Client::semaphore`](crate::Client::semaphore). Cheap to clone.
///
/// # Order
/// Requests stand in one queue and are served in the order in which they asked, by the number of their permits: a request for five
/// is not passed by requests for one that came later. A release grants all requests at the head that fit. Each hold has its own
/// lease: a holder that dies keeps its permits for its lease at most.
///
/// # Owners
/// Each call is a new owner, so permits are not re-entrant: a caller that holds all permits and asks for one more waits for
/// itself. Guards and requests may move between threads. With [`owned_by`](Self::owned_by) the owner's calls are re-entries, as
/// with locks. A [leaked](Guard::leak) guard's permits are gone until its client ends, or an operator takes them.
///
/// # Tokens
/// Each grant has a greater token than all before it. The token names a hold, but it is no fence: other holders are at work with
/// smaller and with greater ones. Only where all permits are taken at once does it fence, as a writer's does.
///
/// ```
/// # use fairlock::{Client, Error, MemoryBackend, TryLock};
/// # let client = Client::new(MemoryBackend::new())?;
/// let mails = client.semaphore("mails", 5)?; // five at once, in all processes
/// let permit = mails.acquire()?;
/// let two_more = mails.acquire_many(2)?; // granted and released together
/// assert_eq!(mails.admin().inspect()?.taken(), 3);
/// assert!(matches!(mails.try_acquire_many(3)?, TryLock::Busy(_)));
/// assert!(matches!(mails.acquire_many(6), Err(Error::InvalidConfig { .. })));
/// # Ok::<(), fairlock::Error>(())
/// ```
///
/// The number may be changed in a running fleet, from 2 permits on: clients that name different numbers share the semaphore, and a
/// request is granted when the permits in use and its own fit into the number of its own handle, in the order of the queue.
///
/// The errors of all calls are those of [`Lock`]; [`Error::InvalidConfig`] for no permit or more than there are; and
/// [`Error::Mismatch`] where the name is in use for a lock of another kind, such as a semaphore of one permit.
#[derive(Clone, Debug)]
pub struct Semaphore {
    all: Lock,
    owner: Option<Owner>,
}

impl Semaphore {
    /// `all` takes all permits.
    pub(super) fn new(all: Lock) -> Semaphore {
        Semaphore { all, owner: None }
    }

    /// Waits for a permit, calls `f`, and gives the permit back. See [`Lock::with`].
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let mails = client.semaphore("mails", 5)?;
    /// let sent = mails.with(|permit| permit.token().get() > 0)?;
    /// assert!(sent && mails.admin().inspect()?.taken() == 0);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn with<R>(&self, f: impl FnOnce(&Guard<Owner>) -> R) -> Result<R> {
        self.many(1)?.with(f)
    }

    /// As [`with`](Self::with), but makes one attempt. See [`Lock::try_with`].
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn try_with<R>(&self, f: impl FnOnce(&Guard<Owner>) -> R) -> Result<TryLock<R>> {
        self.many(1)?.try_with(f)
    }

    /// As [`with`](Self::with), but waits for the permit at most `timeout`. See [`Lock::try_with_for`].
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn try_with_for<R>(
        &self,
        timeout: Duration,
        f: impl FnOnce(&Guard<Owner>) -> R,
    ) -> Result<TryLock<R>> {
        self.many(1)?.try_with_for(timeout, f)
    }

    /// Takes a place in the queue for a permit and returns at once. See [`Lock::request`].
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let request = client.semaphore("mails", 5)?.request()?;
    /// request.decided().recv().expect("the request is open"); // or in a `select!`
    /// let permit = request.wait()?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Semaphore`].
    pub fn request(&self) -> Result<Request<Owner>> {
        self.request_many(1)
    }

    /// As [`request`](Self::request), for `n` permits.
    ///
    /// # Errors
    /// See [`Semaphore`].
    pub fn request_many(&self, n: u32) -> Result<Request<Owner>> {
        self.many(n)?.request()
    }

    /// This semaphore for tasks. Each wait is its own owner, even if [`owned_by`](Self::owned_by) has named one.
    pub fn to_async(&self) -> AsyncSemaphore {
        AsyncSemaphore { all: self.all.to_async() }
    }

    fn many(&self, n: u32) -> Result<Lock<Owner>> {
        let Caller { shared, lock, terms, cancel, condition, .. } = self.all.0.clone();
        if !(1..=self.permits()).contains(&n) {
            let most = match self.permits() {
                1 => "1".to_owned(),
                all => format!("1 to {all}"),
            };
            let reason = format!("{n} permits of {}, which is a {}: ask for {most}", lock.name, lock.kind);
            return Err(Error::InvalidConfig { reason, setting: None });
        }
        // An owner that was given is this client's: `owned_by` has checked it.
        let owner = self.owner.clone().unwrap_or_else(|| Owner::new(shared.id));
        Ok(Lock(Caller { shared, lock, owner, terms, units: n, cancel, condition }))
    }

    /// A handle whose permits belong to `owner`. An owner that holds some gets as many or fewer again at once, as a re-entry that
    /// takes no more; asking for more than it holds is [`Error::Misuse`].
    ///
    /// # Errors
    /// [`Error::Misuse`] for the owner of another client.
    pub fn owned_by(&self, owner: &Owner) -> Result<Semaphore> {
        self.all.owned_by(owner)?;
        Ok(Semaphore { all: self.all.clone(), owner: Some(owner.clone()) })
    }

    fn with_lock(&self, change: impl Fn(&Lock) -> Lock) -> Semaphore {
        Semaphore { all: change(&self.all), owner: self.owner.clone() }
    }
}

acquires!(Semaphore, Guard<Owner>);
terms!(Semaphore);
as_lock!(Semaphore, all all, Admin);

/// A [`Semaphore`] for tasks, made by [`AsyncClient::semaphore`](crate::AsyncClient::semaphore).
#[derive(Clone, Debug)]
pub struct AsyncSemaphore {
    all: AsyncLock,
}

impl AsyncSemaphore {
    /// As [`Semaphore::with`]. See [`AsyncLock::with`].
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn with<W, F>(&self, work: F) -> impl Future<Output = Result<W::Output>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        let one = self.many(1);
        async move { one?.with(work).await }
    }

    /// As [`Semaphore::try_with`].
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn try_with<W, F>(&self, work: F) -> impl Future<Output = Result<TryLock<W::Output>>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        let one = self.many(1);
        async move { one?.try_with(work).await }
    }

    /// As [`Semaphore::try_with_for`].
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn try_with_for<W, F>(
        &self,
        timeout: Duration,
        work: F,
    ) -> impl Future<Output = Result<TryLock<W::Output>>> + use<W, F>
    where
        W: Future,
        F: FnOnce(AsyncHold) -> W,
    {
        let one = self.many(1);
        async move { one?.try_with_for(timeout, work).await }
    }

    /// A handle whose `lock` is [`acquire_many`](Self::acquire_many), for work in closures and for the rank of a wait.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for no permit or more than there are.
    pub fn many(&self, n: u32) -> Result<AsyncLock> {
        let all = Lock(self.all.0.clone());
        Ok(Semaphore::new(all).many(n)?.to_async())
    }

    fn with_lock(&self, change: impl Fn(&Lock) -> Lock) -> AsyncSemaphore {
        AsyncSemaphore { all: self.all.with_lock(change) }
    }
}

acquires!(AsyncSemaphore, AsyncGuard, async await);
terms!(AsyncSemaphore);
as_lock!(AsyncSemaphore, all all, AsyncAdmin);

/// What threads and tasks call alike; a task's handle has `async` calls, which `await` those of a lock.
macro_rules! acquires {
    ($handle:ident, $guard:ty $(, $async:tt $await:tt)?) => {
        impl $handle {
            /// How many permits there are.
            pub fn permits(&self) -> u32 {
                self.all.kind().capacity()
            }

            /// Waits for a permit, without a time limit.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn acquire(&self) -> Result<$guard> {
                self.acquire_many(1)$(.$await)?
            }

            /// Waits for `n` permits, which are granted and released together, without a time limit.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn acquire_many(&self, n: u32) -> Result<$guard> {
                self.many(n)?.lock()$(.$await)?
            }

            /// Makes one attempt to get a permit. It never passes a waiter.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire(&self) -> Result<TryLock<$guard>> {
                self.try_acquire_many(1)$(.$await)?
            }

            /// Makes one attempt to get `n` permits. It never passes a waiter.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire_many(&self, n: u32) -> Result<TryLock<$guard>> {
                self.many(n)?.try_lock()$(.$await)?
            }

            /// As [`acquire`](Self::acquire), but waits at most `timeout`; zero is [`try_acquire`](Self::try_acquire).
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire_for(&self, timeout: Duration) -> Result<TryLock<$guard>> {
                self.try_acquire_many_for(1, timeout)$(.$await)?
            }

            /// As [`acquire_many`](Self::acquire_many), but waits at most `timeout`.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire_many_for(&self, n: u32, timeout: Duration) -> Result<TryLock<$guard>> {
                self.many(n)?.try_lock_for(timeout)$(.$await)?
            }
        }
    };
}

/// The handle of a lock that several hold. `all` is the field with the lock that takes all units.
macro_rules! as_lock {
    ($handle:ident $(<$o:ident: $bound:path>)?, all $all:ident, $admin:ty) => {
        impl $(<$o: $bound>)? $handle $(<$o>)? {
            /// The name of the lock.
            pub fn name(&self) -> &str {
                self.$all.name()
            }

            /// As [`Lock::stats`](crate::Lock::stats).
            pub fn stats(&self) -> Option<Stats> {
                self.$all.stats()
            }

            /// As [`Lock::admin`](crate::Lock::admin).
            pub fn admin(&self) -> $admin {
                self.$all.admin()
            }
        }
    };
}

use {acquires, as_lock};
