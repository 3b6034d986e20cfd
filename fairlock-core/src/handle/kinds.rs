//! The handles beside [`Lock`]: of locks that several hold at once, and of locks that are asked for with a condition.
//!
//! Several owners hold a read-write lock, as readers, or the permits of a semaphore. What the handles of these do as a [`Lock`] does, and
//! what a semaphore's calls for threads and tasks share, is written once, as macros. A lock with a condition is wanted unless it was granted
//! lately, or unless its queue is long.

use std::time::Duration;

use super::admin::{Admin, AsyncAdmin};
use super::guard::{Guard, Owner, Ownership, ThisThread, TryLock};
use super::lock::{Caller, Lock, Request, terms};
use super::tasks::{AsyncGuard, AsyncHold, AsyncLock, LockFuture, TryLockFuture};
use crate::backend::{Condition, LONGEST_PERIOD, SHORTEST_PERIOD, Since};
use crate::config::check_range;
use crate::error::{Error, Result};
use crate::ids::LockKind;
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
    /// takes no more; asking for more than it holds is [`Error::Misuse`]. So is a call by another number of permits than that by which the
    /// owner waits already.
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
