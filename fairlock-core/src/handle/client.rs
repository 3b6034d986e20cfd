//! A program's access to the store that keeps its locks.

mod builder;
mod lock_all;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

pub use builder::ClientBuilder;
pub use tasks::AsyncClient;

use crate::backend::{BackendError, BackendErrorKind, IntoBackend};
use crate::claim::Claim;
use crate::config::LONGEST;
use crate::error::{Error, Lost, Result};
use crate::handle::lock::Lock;
use crate::handle::owner::{Owner, Ownership};
use crate::handle::rw_lock::RwLock;
use crate::handle::semaphore::Semaphore;
use crate::ids::{ClientId, LockKind, LockName};
use crate::shared::Handles;
use crate::shutdown::{drain, shut_down};
use crate::snapshot::{HeldLock, WaitingRequest};
use crate::stats::Stats;

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

    /// The id of this client, with which the ids of all its owners begin.
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// A lock whose waiters get it in the order in which they asked. Makes no round trip.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a name that is empty or longer than 512 bytes; [`Error::Shutdown`].
    pub fn fair_lock(&self, name: &str) -> Result<Lock> {
        self.lock_of(name, LockKind::Fair)
    }

    /// A lock without an order: after a release the first owner that asks gets it. Makes no round trip.
    ///
    /// # Errors
    /// As [`fair_lock`](Self::fair_lock).
    pub fn plain_lock(&self, name: &str) -> Result<Lock> {
        self.lock_of(name, LockKind::Plain)
    }

    /// A lock that readers hold together and a writer alone, in the order in which they asked. Makes no round trip.
    ///
    /// # Errors
    /// As [`fair_lock`](Self::fair_lock); [`Error::Unsupported`] if the backend keeps no such locks, as with discipline `Redisson` on
    /// Redis.
    pub fn rw_lock(&self, name: &str) -> Result<RwLock> {
        self.lock_of(name, LockKind::ReadWrite).map(RwLock::new)
    }

    /// A semaphore of 1 to 1,000,000 permits, which owners get in the order in which they asked. All clients have to name the same
    /// number. Makes no round trip.
    ///
    /// # Errors
    /// As [`rw_lock`](Self::rw_lock); [`Error::InvalidConfig`] for another number of permits.
    pub fn semaphore(&self, name: &str, permits: u32) -> Result<Semaphore> {
        self.lock_of(name, LockKind::Semaphore { permits }).map(Semaphore::new)
    }

    /// A lock of a kind that is known only at run time. Its holder takes all units: it is a writer, or has all permits.
    ///
    /// # Errors
    /// As [`semaphore`](Self::semaphore).
    pub fn lock_of(&self, name: &str, kind: LockKind) -> Result<Lock> {
        let name = LockName::new(name)?;
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
        Ok(Lock::new(Arc::clone(&self.0), name, kind))
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
        Stats { reconnects, outage, holding: self.holding(|_| true), waiting: self.waiting(), ..counted }
    }

    /// The statistics of one lock, by all handles of its name. None without
    /// [`stats_per_lock`](ClientBuilder::stats_per_lock), and for locks beyond its number.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// let client = Client::builder(MemoryBackend::new()).stats_per_lock(100).build()?;
    /// let (orders, mails) = (client.fair_lock("lock:orders")?, client.fair_lock("lock:mails")?);
    /// orders.lock()?.unlock()?;
    /// assert_eq!(client.stats_of(&orders).unwrap().holds.count, 1);
    /// assert_eq!(client.stats_of(&mails).unwrap().holds.count, 0);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn stats_of<O: Ownership>(&self, lock: &Lock<O>) -> Option<Stats> {
        let counted = self.0.ledger.counters.read_lock(lock.lock_name())?;
        let mut waiting = self.waiting();
        waiting.retain(|request| request.lock == *lock.lock_name());
        let holding = self.holding(|claim| claim.lock.name == *lock.lock_name());
        Some(Stats { holding, waiting, ..counted })
    }

    /// How many of these claims are certain holds.
    fn holding(&self, which: impl Fn(&Claim) -> bool) -> u64 {
        let (mut holding, now) = (0, self.0.now());
        self.0
            .ledger
            .registry
            .for_each(|claim| holding += u64::from(which(claim) && claim.hold_count(now) > 0));
        holding
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
}
