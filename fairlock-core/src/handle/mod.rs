//! What programs use: a client, its locks, guards and requests, and what operators call.
//!
//! Here: the client, which is a program's access to the store that keeps its locks: for threads, and for tasks, where no call blocks a
//! thread. Several locks are taken in the order of their names, and all are given back if one can't be had.

mod admin;
mod builder;
mod guard;
mod hand_over;
mod kinds;
mod lock;
mod tasks;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use admin::{Admin, AsyncAdmin};
pub use builder::ClientBuilder;
pub use guard::{AllGuard, Guard, Hold, Owner, Ownership, ThisThread, TryLock};
pub use hand_over::HandOver;
pub use kinds::{AsyncRwLock, AsyncSemaphore, RwLock, Semaphore, UnlessCrowded, UnlessGranted};
pub use lock::{Lock, Request, Term};
pub use tasks::{AsyncGuard, AsyncHold, AsyncLock, LockFuture, TryLockFuture};

use lock::{Caller, wait_of};
use tasks::{Ends, obtain_all, on_its_own_thread};

use crate::backend::{BackendError, BackendErrorKind, Condition, IntoBackend, LockId, Wait};
use crate::claim::{Claim, HeldLock, Terms, WaitingRequest};
use crate::config::LONGEST;
use crate::error::{Error, Lost, Result};
use crate::ids::{ClientId, LockKind, LockName};
use crate::shared::{Handles, drain, shut_down};
use crate::stats::Stats;
use crate::time::Clock;

const MOST_PERMITS: u32 = 1_000_000;

/// Makes locks, and renews their holds.
///
/// One client for each process is enough. A client has one subscription, one watchdog thread and few connections, for any number
/// of locks and threads. Clones are one client. Two clients are two owners even in one thread, and don't re-enter each other's
/// holds. After `fork` without `exec` neither process may use it.
///
/// The client's threads end when the last handle (client, lock, guard, request) is dropped. Leaked holds are not renewed after that.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Handles>);

impl Client {
    /// A client with the default settings.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn new(backend: impl IntoBackend) -> Result<Client> {
        Client::builder(backend).build()
    }

    /// Sets up a client with settings other than the defaults.
    pub fn builder(backend: impl IntoBackend) -> ClientBuilder {
        ClientBuilder::new(backend.into_backend())
    }

    /// This client for tasks. Makes no round trip.
    pub fn to_async(&self) -> AsyncClient {
        AsyncClient { client: self.clone(), _ends: Ends::new(&self.0) }
    }

    /// The id of this client, with which the ids of all its owners begin.
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// A lock whose waiters get it in the order in which they asked. Makes no round trip.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a name that is empty or longer than 512 bytes; [`Error::Shutdown`].
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        self.lock_of(name, LockKind::Fair)
    }

    /// A lock without an order: after a release the first owner that asks gets it. Makes no round trip.
    ///
    /// # Errors
    /// As [`fair_lock`](Self::fair_lock).
    pub fn plain_lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        self.lock_of(name, LockKind::Plain)
    }

    /// A lock that readers hold together and a writer alone, in the order in which they asked. Makes no round trip.
    ///
    /// # Errors
    /// As [`fair_lock`](Self::fair_lock); [`Error::Unsupported`] if the backend keeps no such locks, as with discipline `Redisson` on
    /// Redis.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        self.lock_of(name, LockKind::ReadWrite).map(RwLock::new)
    }

    /// A semaphore of 1 to 1,000,000 permits, which owners get in the order in which they asked. Clients may name different numbers, of 2 or
    /// more: each request is granted by the number that its client names. Makes no round trip.
    ///
    /// # Errors
    /// As [`rw_lock`](Self::rw_lock); [`Error::InvalidConfig`] for another number of permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        self.lock_of(name, LockKind::Semaphore { permits }).map(Semaphore::new)
    }

    /// A lock of a kind that is known only at run time. Its holder takes all units: it is a writer, or has all permits.
    ///
    /// # Errors
    /// As [`semaphore`](Self::semaphore).
    pub fn lock_of(&self, name: impl AsRef<str>, kind: LockKind) -> Result<Lock> {
        self.lock_named(self.0.config.name(name.as_ref())?, kind)
    }

    /// The same by the full name.
    fn lock_named(&self, name: LockName, kind: LockKind) -> Result<Lock> {
        self.0.config.check_running(Some(&name))?;
        if !self.0.backend.supports(kind) {
            let why = format!("you asked for a {kind}, and {}", self.0.backend.keeps_only());
            return Err(Error::about(&name, BackendError::new(BackendErrorKind::Unsupported, why)));
        }
        if let LockKind::Semaphore { permits } = kind
            && !(1..=MOST_PERMITS).contains(&permits)
        {
            let reason = format!("semaphore {name} of {permits} permits: it has to be from 1 to 1,000,000");
            return Err(Error::InvalidConfig { reason, setting: None });
        }
        let (shared, lease) = (Arc::clone(&self.0), self.0.config.lease);
        let capped = |limit| Terms::Capped { lease, limit };
        let terms = shared.config.max_hold.map_or(Terms::Renewed(lease), capped);
        let (lock, units) = (LockId::new(name, kind), kind.capacity());
        let (owner, cancel, condition) = (ThisThread, None, Condition::default());
        Ok(Lock(Caller { shared, lock, owner, terms, units, cancel, condition }))
    }

    /// What an operator does to the lock of this name, of whatever kind: shows its queue, takes it from its holders. Makes no round
    /// trip.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn admin(&self, name: impl AsRef<str>) -> Result<Admin> {
        Ok(Admin::new(&self.0, self.0.config.name(name.as_ref())?, None))
    }

    /// A new identity that is not a thread, for [`Lock::owned_by`].
    pub fn new_owner(&self) -> Owner {
        Owner::new(self.0.id)
    }

    /// Calls `f` with each hold that is lost from now on, on a thread of the client's own.
    ///
    /// Each call adds a callback, which stays until the client ends. A callback must not own a handle of this client, since the
    /// handle would keep the client alive for ever. A panic in a callback is caught and logged.
    pub fn on_lost(&self, f: impl Fn(&Lost) + Send + Sync + 'static) {
        self.0.ledger.loss_callbacks.add(Arc::new(f));
    }

    /// What this client holds now, leaked holds included, in no particular order. Makes no round trip.
    pub fn held(&self) -> Vec<HeldLock> {
        self.0.ledger.snapshot(Claim::as_held)
    }

    /// What this client waits for now, and where in the queue, in no particular order. Makes no round trip.
    pub fn waiting(&self) -> Vec<WaitingRequest> {
        self.0.ledger.snapshot(Claim::as_waiting)
    }

    /// Counts of what has happened so far, and the requests that wait now. Makes no round trip.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// client.fair_lock("lock:orders")?.lock()?.unlock()?;
    /// let stats = client.stats();
    /// assert_eq!((stats.waits.count, stats.holds.count, stats.lost), (1, 1, 0));
    /// println!("{stats}"); // a block of lines
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let counted = self.0.ledger.counters.read();
        let reconnects = self.0.backend.reconnects() + counted.gaps;
        let outage = self.0.outage.lasted();
        let holding = self.0.ledger.holding(|_| true);
        Stats { reconnects, outage, holding, waiting: self.waiting(), ..counted }
    }

    /// Ends the client in order, for SIGTERM. From now on nothing is granted, and waits end with [`Error::Shutdown`], as new ones do.
    /// Holders keep their locks, and this call waits for them, at most `at_most`; then follows a [`shutdown`](Self::shutdown). Returns
    /// the holds that were cut off: none, if all were given back in time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// for hold in client.drain(Duration::from_secs(20))? {
    ///     eprintln!("cut off: lock {} after {:?}", hold.lock, hold.held_for);
    /// }
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// - A holder may still enter the lock that it has.
    /// - A [`Request`](crate::Request) that was granted before is a hold, until the request or its guard is dropped; a leaked
    ///   hold stays until its unlock. The calling thread waits for its own holds too, which it can't release meanwhile.
    /// - The call blocks its thread; [`AsyncClient::drain`] does not. A grant that no poll has taken is a hold, until its future is
    ///   dropped.
    /// - If nothing was cut off, no loss is counted, and no callback runs.
    /// - A second call waits as well, and returns the same. A `shutdown` from another thread ends the wait.
    /// - The shutdown has the [outage limit](ClientBuilder::outage_limit) for itself, if the server does not answer.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown); [`Error::Shutdown`] if another thread's shutdown takes longer than the outage limit.
    pub fn drain(&self, at_most: Duration) -> Result<Vec<HeldLock>> {
        drain(&self.0, at_most, self.0.config.outage_limit)
    }

    /// Ends the client at once; [`drain`](Self::drain) waits for its holders before. Waiting calls and all later ones return
    /// [`Error::Shutdown`], and nothing is granted any more. Every hold is marked as lost *before* it is released, every request is
    /// withdrawn, and unanswered releases of earlier calls are repeated. Then the callbacks of [`on_lost`](Self::on_lost) run, and the
    /// threads end.
    ///
    /// ```
    /// # use fairlock::{Client, Error, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// client.shutdown()?;
    /// assert!(guard.is_lost());
    /// assert!(matches!(lock.lock(), Err(Error::Shutdown { .. })));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// All of that takes at most the [outage limit](ClientBuilder::outage_limit); a callback that runs longer is not waited
    /// for.
    ///
    /// # Errors
    /// [`Error::Unsettled`] when the server could not be told of everything in time. The error says how much is left, and which lock is
    /// the first. Holds that the server was not told of end with their leases, places with their time to live.
    pub fn shutdown(&self) -> Result<()> {
        shut_down(&self.0, self.0.config.outage_limit)
    }

    /// A [`shutdown`](Self::shutdown) within `limit` instead of the outage limit: for a program that has to end soon, even when the
    /// server does not answer.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown).
    pub fn shutdown_within(&self, limit: Duration) -> Result<()> {
        shut_down(&self.0, limit.min(LONGEST))
    }

    /// Waits for all of these locks, without a time limit, and holds them by one guard. They are fair locks, and excluded by every
    /// other handle of their names.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let (from, to) = ("account:7", "account:3");
    /// let guard = client.lock_all(&[from, to])?; // another thread may name them the other way round
    /// guard.check()?; // between two steps: stops if any of them is lost
    /// guard.unlock()?; // or drop it
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// - **All or none.** The locks are taken in turn, in the order of the bytes of their names, and all are given back if one
    ///   can't be had. A repeated name counts once.
    /// - **It holds what it has while it waits** for the next. So a lock of the list may be kept from others for as long as a later
    ///   one is busy. If one that it has is lost meanwhile, the call ends at once with [`Error::Lost`].
    /// - **Threads that use nothing but `lock_all`, one guard at a time, never deadlock**, whatever the order of the names, and
    ///   even with several clients: no thread waits for a lock while it holds a lock of a later name.
    /// - **What may deadlock:** a thread that holds a lock, by [`lock`](Lock::lock), another guard of `lock_all` or a granted request,
    ///   and then waits for one of an earlier name. If both names are in the list that is [`Error::Misuse`]; otherwise the client can't
    ///   know it, so don't wait for more locks while you hold some. Two owners, also two clients, of one thread wait for each other
    ///   in the same way.
    /// - The holds belong to the calling thread. If the thread already holds one of the locks, it re-enters that lock, by the
    ///   terms of the earlier hold.
    ///
    /// # Errors
    /// The errors of [`Lock`]; and
    /// - [`Error::InvalidConfig`] for an empty list: a guard that holds nothing would keep no other owner out.
    /// - [`Error::Misuse`] when the thread holds a lock of the list, but not one of an earlier name.
    /// - [`Error::Lost`] when a hold was lost before the last lock was granted.
    ///
    /// After an error, a panic, or [`Client::shutdown`] in the middle nothing is held that was not held before. It is given back as by
    /// a drop of the guards: by one attempt each, which is repeated in the background if the server does not answer.
    pub fn lock_all(&self, names: &[impl AsRef<str>]) -> Result<AllGuard> {
        loop {
            // Busy is only a lock that the thread held, and that was lost in this moment.
            if let TryLock::Granted(guard) = self.obtain_all(names, Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    /// As [`lock_all`](Self::lock_all), but makes one attempt for each lock, and waits for none.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// use fairlock::TryLock;
    ///
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let theirs = other.fair_lock("account:7")?.lock()?;
    /// assert!(matches!(client.try_lock_all(&["account:3", "account:7"])?, TryLock::Busy(_)));
    /// assert!(!client.fair_lock("account:3")?.is_locked()?); // all or none
    /// theirs.unlock()?;
    /// assert!(matches!(client.try_lock_all(&["account:3", "account:7"])?, TryLock::Granted(_)));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock_all`](Self::lock_all).
    pub fn try_lock_all(&self, names: &[impl AsRef<str>]) -> Result<TryLock<AllGuard>> {
        self.obtain_all(names, Wait::No)
    }

    /// As [`lock_all`](Self::lock_all), but waits at most `timeout` for all of them together; zero is
    /// [`try_lock_all`](Self::try_lock_all). What it has by then is released.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend, TryLock};
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let theirs = other.fair_lock("account:7")?.lock()?;
    /// let names = ["account:3", "account:7"];
    /// assert!(matches!(client.try_lock_all_for(&names, Duration::from_millis(20))?, TryLock::Busy(_)));
    /// assert!(!client.fair_lock("account:3")?.is_locked()?);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock_all`](Self::lock_all).
    pub fn try_lock_all_for(
        &self,
        names: &[impl AsRef<str>],
        timeout: Duration,
    ) -> Result<TryLock<AllGuard>> {
        self.obtain_all(names, wait_of(timeout))
    }

    /// Every way out but the last drops `all`, which gives back what it has.
    fn obtain_all(&self, names: &[impl AsRef<str>], wait: Wait) -> Result<TryLock<AllGuard>> {
        let _here = self.0.config.clock.attend();
        let deadline = self.deadline(wait);
        let locks = self.in_order(names)?;
        let held = held_in_order(&locks)?;
        let mut all = AllGuard::new();
        for (at, lock) in locks.iter().enumerate() {
            let wait = match deadline {
                // A re-entry. Were the hold lost since, a wait for it could deadlock with the later ones that are held.
                _ if at < held => Wait::No,
                Some(deadline) => wait_of(lock.0.time_to(deadline)),
                None => wait,
            };
            match lock.cancelled_by(all.first_loss().cancel()).0.obtain(wait) {
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

    fn deadline(&self, wait: Wait) -> Option<Instant> {
        match wait {
            Wait::UpTo(time) => self.0.now().checked_add(time),
            Wait::No | Wait::Forever => None,
        }
    }

    /// The locks in the order of their names, each once.
    fn in_order(&self, names: &[impl AsRef<str>]) -> Result<Vec<Lock>> {
        let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            let reason = "lock_all was given no names, and would keep no other owner out".to_owned();
            return Err(Error::InvalidConfig { reason, setting: None });
        }
        names.into_iter().map(|name| self.fair_lock(name)).collect()
    }
}

/// How many of the locks the thread holds; they have to be the first ones.
fn held_in_order(locks: &[Lock]) -> Result<usize> {
    let held = locks.iter().take_while(|lock| lock.is_held()).count();
    let [free, later @ ..] = &locks[held..] else { return Ok(held) };
    match later.iter().find(|lock| lock.is_held()) {
        Some(later) => {
            let reason = format!(
                "this thread holds {} already, which is taken after {}: to wait now can deadlock with a thread that takes both in the \
                 order of their names; take all locks by one lock_all",
                later.lock_name(),
                free.lock_name()
            );
            Err(Error::Misuse { lock: free.lock_name().clone(), reason })
        }
        None => Ok(held),
    }
}

/// Makes this call, which may block, on a thread of its own: for the asynchronous constructors of a store. If the future is dropped, the
/// call goes on.
///
/// # Errors
/// Those of the call.
pub async fn connecting<T: Send + 'static>(
    connect: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    on_its_own_thread("fairlock-connect", Clock::system(), connect).await
}

/// A [`Client`] for tasks, on any executor: what a `Client` does by blocking its thread is a future here. Cheap to clone.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock::{AsyncClient, MemoryBackend};
/// async fn work() -> fairlock::Result<()> {
///     // RedisBackend::builder(url).connect_async().await? for several processes
///     let client = AsyncClient::new(MemoryBackend::new()).await?;
///     let lock = client.fair_lock("lock:orders")?;
///     let token = lock.with(async |hold| hold.token()).await?;
///     println!("token {token}, {:?}", lock.admin().inspect().await?.holder());
///     client.drain(Duration::from_secs(20)).await?;
///     Ok(())
/// }
/// ```
///
/// A call that needs the server but is no wait, such as a [`drain`](Self::drain) or one of an [`AsyncAdmin`], begins with its first
/// poll, and goes on if its future is dropped. It runs on a thread of the client's own.
#[derive(Clone, Debug)]
pub struct AsyncClient {
    client: Client,
    _ends: Ends,
}

impl AsyncClient {
    /// A client with the default settings; [`ClientBuilder::build_async`] has others.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub async fn new(backend: impl IntoBackend) -> Result<AsyncClient> {
        Client::builder(backend).build_async().await
    }

    /// The same client for threads.
    pub fn blocking(&self) -> &Client {
        &self.client
    }

    /// As [`Client::fair_lock`].
    ///
    /// # Errors
    /// As [`Client::fair_lock`].
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Result<AsyncLock> {
        Ok(self.client.fair_lock(name)?.to_async())
    }

    /// As [`Client::plain_lock`].
    ///
    /// # Errors
    /// As [`Client::plain_lock`].
    pub fn plain_lock(&self, name: impl AsRef<str>) -> Result<AsyncLock> {
        Ok(self.client.plain_lock(name)?.to_async())
    }

    /// As [`Client::rw_lock`].
    ///
    /// # Errors
    /// As [`Client::rw_lock`].
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<AsyncRwLock> {
        Ok(self.client.rw_lock(name)?.to_async())
    }

    /// As [`Client::semaphore`].
    ///
    /// # Errors
    /// As [`Client::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<AsyncSemaphore> {
        Ok(self.client.semaphore(name, permits)?.to_async())
    }

    /// As [`Client::lock_of`].
    ///
    /// # Errors
    /// As [`Client::lock_of`].
    pub fn lock_of(&self, name: impl AsRef<str>, kind: LockKind) -> Result<AsyncLock> {
        Ok(self.client.lock_of(name, kind)?.to_async())
    }

    /// As [`Client::admin`].
    ///
    /// # Errors
    /// As [`Client::admin`].
    pub fn admin(&self, name: impl AsRef<str>) -> Result<AsyncAdmin> {
        Ok(self.client.admin(name)?.to_async())
    }

    /// Waits for all of these locks, in the order of their names, as [`Client::lock_all`] does; each hold has its own owner. A future
    /// that is dropped gives all back.
    ///
    /// ```
    /// # use fairlock::AsyncClient;
    /// async fn transfer(client: &AsyncClient) -> fairlock::Result<()> {
    ///     let guard = client.lock_all(&["account:7", "account:3"]).await?;
    ///     println!("take 10 from account 3 with token {:?}", guard.token("account:3"));
    ///     guard.unlock().await
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Client::lock_all`], but no [`Error::Misuse`](crate::Error::Misuse): a task that holds one of the locks waits for itself.
    pub async fn lock_all(&self, names: &[impl AsRef<str>]) -> Result<AllGuard<AsyncGuard>> {
        loop {
            // Busy can't be: a wait without limit ends with the locks or an error.
            if let TryLock::Granted(guard) = self.obtain_all(names, Wait::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// As [`Client::try_lock_all`].
    ///
    /// # Errors
    /// As [`lock_all`](Self::lock_all).
    pub async fn try_lock_all(&self, names: &[impl AsRef<str>]) -> Result<TryLock<AllGuard<AsyncGuard>>> {
        self.obtain_all(names, Wait::No).await
    }

    /// As [`Client::try_lock_all_for`]. The time counts from the first poll on.
    ///
    /// # Errors
    /// As [`lock_all`](Self::lock_all).
    pub async fn try_lock_all_for(
        &self,
        names: &[impl AsRef<str>],
        timeout: Duration,
    ) -> Result<TryLock<AllGuard<AsyncGuard>>> {
        self.obtain_all(names, wait_of(timeout)).await
    }

    async fn obtain_all(
        &self,
        names: &[impl AsRef<str>],
        wait: Wait,
    ) -> Result<TryLock<AllGuard<AsyncGuard>>> {
        let (locks, deadline) = (self.client.in_order(names)?, self.client.deadline(wait));
        obtain_all(locks, wait, deadline).await
    }

    /// As [`Client::id`].
    pub fn id(&self) -> ClientId {
        self.client.id()
    }

    /// As [`Client::on_lost`].
    pub fn on_lost(&self, f: impl Fn(&Lost) + Send + Sync + 'static) {
        self.client.on_lost(f);
    }

    /// As [`Client::held`]. Makes no round trip.
    pub fn held(&self) -> Vec<HeldLock> {
        self.client.held()
    }

    /// As [`Client::waiting`]. Makes no round trip.
    pub fn waiting(&self) -> Vec<WaitingRequest> {
        self.client.waiting()
    }

    /// As [`Client::stats`]. Makes no round trip.
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// As [`Client::drain`]. From the first poll on it goes on, even if this future is dropped.
    ///
    /// # Errors
    /// As [`Client::drain`].
    pub async fn drain(&self, at_most: Duration) -> Result<Vec<HeldLock>> {
        self.end(move |client| client.drain(at_most)).await
    }

    /// As [`Client::shutdown`]. From the first poll on it goes on, even if this future is dropped.
    ///
    /// # Errors
    /// As [`Client::shutdown`].
    pub async fn shutdown(&self) -> Result<()> {
        self.end(|client| client.shutdown()).await
    }

    /// As [`Client::shutdown_within`]. From the first poll on it goes on, even if this future is dropped.
    ///
    /// # Errors
    /// As [`Client::shutdown`].
    pub async fn shutdown_within(&self, limit: Duration) -> Result<()> {
        self.end(move |client| client.shutdown_within(limit)).await
    }

    async fn end<T: Send + 'static>(
        &self,
        end: impl FnOnce(&Client) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (client, clock) = (self.client.clone(), self.client.0.config.clock.clone());
        on_its_own_thread("fairlock-end", clock, move || end(&client)).await
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::*;

    /// The compiler says so, or this is not built.
    #[test]
    fn a_program_may_use_its_handles_after_a_panic_that_it_caught() {
        fn may<T: UnwindSafe + RefUnwindSafe>() {}
        fn may_all_of<O: Ownership>() {
            let _ = [may::<Lock<O>>, may::<RwLock<O>>, may::<Guard<O>>, may::<Request<O>>];
        }
        let _ = [may_all_of::<ThisThread>, may_all_of::<Owner>];
        let _ = [may::<Client>, may::<Semaphore>, may::<AllGuard>, may::<crate::CancelToken>];
        let _ = [may::<ClientBuilder>, may::<crate::Clock>, may::<crate::ManualClock>];
        let _ = [may::<AsyncClient>, may::<AsyncLock>, may::<AsyncGuard>];
    }

    /// As `tokio::spawn` wants it: the compiler says so, or this is not built.
    #[test]
    fn work_under_a_lock_is_a_future_that_borrows_no_handle() {
        fn spawn(_: impl Future<Output: Send> + Send + 'static) {}
        fn all(lock: &AsyncLock, permits: &AsyncSemaphore) {
            spawn(lock.with(async |hold| hold.token()));
            spawn(lock.try_with_for(std::time::Duration::ZERO, async |hold| hold.token()));
            spawn(permits.with(async |hold| hold.token()));
            spawn(permits.try_with(async |hold| hold.token()));
        }
        let _ = all;
    }
}
