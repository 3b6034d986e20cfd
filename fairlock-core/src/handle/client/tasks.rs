//! A client for tasks: no call blocks a thread.

use std::time::Duration;

use super::Client;
use crate::backend::Wait;
use crate::error::Result;
use crate::handle::caller::wait_of;
use crate::handle::guard::TryLock;
use crate::handle::rw_lock::AsyncRwLock;
use crate::handle::semaphore::AsyncSemaphore;
use crate::handle::tasks::{AsyncAllGuard, AsyncLock, Ends, obtain_all, on_its_own_thread};
use crate::ids::LockKind;
use crate::snapshot::HeldLock;
use crate::time::Clock;

/// A [`Client`] for tasks, on any executor: what a `Client` does by blocking its thread is a future here. Cheap to clone.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock::{AsyncClient, Client, MemoryBackend};
/// async fn work() -> fairlock::Result<()> {
///     // RedisBackend::connect(url)? for several processes
///     let client = AsyncClient::connect(|| Client::new(MemoryBackend::new())).await?;
///     let lock = client.fair_lock("lock:orders")?;
///     let token = lock.with(async |hold| hold.token()).await?;
///     println!("token {token}, {:?}", lock.inspect().await?.holder());
///     client.drain(Duration::from_secs(20)).await?;
///     Ok(())
/// }
/// ```
///
/// A call that needs the server but is no wait, such as a [`drain`](Self::drain) or an `inspect`, begins with its first poll, and goes on
/// if its future is dropped. It runs on a thread of the client's own.
#[derive(Clone, Debug)]
pub struct AsyncClient {
    client: Client,
    _ends: Ends,
}

impl Client {
    /// This client for tasks. Makes no round trip.
    pub fn to_async(&self) -> AsyncClient {
        AsyncClient { client: self.clone(), _ends: Ends::new(&self.0) }
    }
}

impl AsyncClient {
    /// Runs `connect` on a thread that it may block, and returns its client. If this future is dropped, `connect` goes on, and its client
    /// ends.
    ///
    /// # Errors
    /// Those of `connect`.
    pub async fn connect(connect: impl FnOnce() -> Result<Client> + Send + 'static) -> Result<AsyncClient> {
        // Not the client alone: if nobody waits for it, its drop must not block the thread of a runtime.
        on_its_own_thread("fairlock-connect", Clock::system(), || connect().map(|client| client.to_async()))
            .await
    }

    /// The same client for threads, and for what asks no server: `id`, `on_lost`, `waiting`, `stats`, `stats_of`.
    pub fn blocking(&self) -> &Client {
        &self.client
    }

    /// As [`Client::fair_lock`].
    ///
    /// # Errors
    /// As [`Client::fair_lock`].
    pub fn fair_lock(&self, name: &str) -> Result<AsyncLock> {
        Ok(self.client.fair_lock(name)?.to_async())
    }

    /// As [`Client::plain_lock`].
    ///
    /// # Errors
    /// As [`Client::plain_lock`].
    pub fn plain_lock(&self, name: &str) -> Result<AsyncLock> {
        Ok(self.client.plain_lock(name)?.to_async())
    }

    /// As [`Client::rw_lock`].
    ///
    /// # Errors
    /// As [`Client::rw_lock`].
    pub fn rw_lock(&self, name: &str) -> Result<AsyncRwLock> {
        Ok(self.client.rw_lock(name)?.to_async())
    }

    /// As [`Client::semaphore`].
    ///
    /// # Errors
    /// As [`Client::semaphore`].
    pub fn semaphore(&self, name: &str, permits: u32) -> Result<AsyncSemaphore> {
        Ok(self.client.semaphore(name, permits)?.to_async())
    }

    /// As [`Client::lock_of`].
    ///
    /// # Errors
    /// As [`Client::lock_of`].
    pub fn lock_of(&self, name: &str, kind: LockKind) -> Result<AsyncLock> {
        Ok(self.client.lock_of(name, kind)?.to_async())
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
    pub async fn lock_all(&self, names: &[impl AsRef<str>]) -> Result<AsyncAllGuard> {
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
    pub async fn try_lock_all(&self, names: &[impl AsRef<str>]) -> Result<TryLock<AsyncAllGuard>> {
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
    ) -> Result<TryLock<AsyncAllGuard>> {
        self.obtain_all(names, wait_of(timeout)).await
    }

    async fn obtain_all(&self, names: &[impl AsRef<str>], wait: Wait) -> Result<TryLock<AsyncAllGuard>> {
        let (locks, deadline) = (self.client.in_order(names)?, self.client.deadline(wait));
        obtain_all(locks, wait, deadline).await
    }

    /// As [`Client::held`]. Makes no round trip.
    pub fn held(&self) -> Vec<HeldLock> {
        self.client.held()
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
