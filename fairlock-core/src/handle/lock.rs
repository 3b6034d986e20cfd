//! A handle of one named lock.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{LockId, Wait};
use crate::cancel::Cancel;
use crate::claim::{Claim, Terms};
use crate::error::{Error, Result};
use crate::flow::Effort;
use crate::handle::caller::{Caller, wait_of};
use crate::handle::guard::{Guard, TryLock};
use crate::handle::owner::{Owner, Ownership, ThisThread};
use crate::handle::request::Request;
use crate::ids::{LockKind, LockName};
use crate::shared::Handles;

/// A handle of a named lock. Cheap to clone; all handles of one name are one lock, whichever client made them.
///
/// # Getting the lock
/// [`lock`](Self::lock) waits, [`try_lock`](Self::try_lock) does not, and [`try_lock_for`](Self::try_lock_for) waits for
/// a limited time. [`with`](Self::with), [`try_with`](Self::try_with) and [`with_for`](Self::with_for) do the same around a
/// closure. The guard releases the lock when it is dropped, or by [`unlock`](Guard::unlock), and
/// [`is_lost`](Guard::is_lost) tells whether the lock was lost before that.
///
/// A thread that holds the lock gets it again at once, by any of these calls. Each guard counts as one hold. Beware of `let _ =
/// lock.lock()?`, which releases the lock in the same line. A name such as `_guard` keeps the guard.
///
/// # Variants
/// [`request`](Self::request) takes a place in the queue and waits later, for example in a `select!`.
/// [`cancelled_by`](Self::cancelled_by), [`fixed_lease`](Self::fixed_lease) and [`max_hold`](Self::max_hold) return a handle
/// whose waits can be cancelled or whose holds are bounded, and [`owned_by`](Self::owned_by) one for an [`Owner`] that is not a
/// thread. [`inspect`](Self::inspect), [`kick`](Self::kick) and [`force_unlock`](Self::force_unlock) are for operators.
///
/// # Errors of all calls that ask for the lock
/// - [`Error::Unavailable`]: the server gave no answer. `try_lock` returns it after two attempts, a timed wait when its time
///   is over, and `lock` after the [outage limit](crate::ClientBuilder::outage_limit). A newcomer that a full server refuses
///   gets it at once.
/// - [`Error::Denied`], [`Error::Corrupt`], [`Error::Unsupported`], [`Error::InvalidName`]: the server will never grant the lock.
/// - [`Error::Cancelled`], [`Error::Shutdown`]: the program ended the wait.
/// - [`Error::InvalidConfig`]: a `fixed_lease` or `max_hold` under 10 ms, or the address of a replica.
/// - [`Error::Misuse`]: the owner already holds the lock more than four billion times.
///
/// A busy lock is not an error.
#[derive(Clone, Debug)]
pub struct Lock<O: Ownership = ThisThread>(pub(super) Caller<O>);

/// A [`Lock`] whose holds and waits belong to an [`Owner`].
pub type OwnedLock = Lock<Owner>;

impl Lock {
    pub(crate) fn new(shared: Arc<Handles>, name: LockName, kind: LockKind) -> Lock {
        let (lock, units) = (LockId::new(name, kind), kind.capacity());
        let terms = Terms::Renewed(shared.config.lease);
        Lock(Caller { shared, lock, owner: ThisThread, terms, units, cancel: None })
    }
}

impl<O: Ownership> Lock<O> {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.0.lock.name.as_str()
    }

    pub(super) fn lock_name(&self) -> &LockName {
        &self.0.lock.name
    }

    /// Which kind of lock it is.
    pub fn kind(&self) -> LockKind {
        self.0.lock.kind
    }

    /// Waits for the lock, without a time limit.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// assert!(!guard.is_lost()); // the watchdog renews the hold
    /// let again = lock.lock()?; // re-entry: the same thread, the same hold
    /// assert_eq!((again.token(), lock.hold_count()), (guard.token(), 2));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn lock(&self) -> Result<Guard<O>> {
        loop {
            // Never busy: a wait without limit ends with the lock or an error.
            if let TryLock::Granted(guard) = self.0.obtain(Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    /// Makes one attempt. It never waits in the queue, and never passes a waiter that does.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// use fairlock::TryLock;
    ///
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// match lock.try_lock()? {
    ///     TryLock::Granted(guard) => println!("write with token {}", guard.token()),
    ///     TryLock::Busy(_) => println!("another owner holds it"),
    /// }
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> Result<TryLock<Guard<O>>> {
        self.0.obtain(Wait::No)
    }

    /// Waits for the lock, at most `timeout`; zero is [`try_lock`](Self::try_lock). A wait that ends leaves the queue.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend, TryLock};
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let guard = client.fair_lock("lock:orders")?.lock()?;
    /// let theirs = other.fair_lock("lock:orders")?;
    /// assert!(matches!(theirs.try_lock_for(Duration::from_millis(20))?, TryLock::Busy(_)));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.0.obtain(wait_of(timeout))
    }

    /// Waits for the lock, calls `f`, and releases the lock, even when `f` panics. Returns what `f` returned.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// # fn reserve(token: fairlock::FencingToken) {}
    /// # fn ship(token: fairlock::FencingToken) -> u32 { 7 }
    /// let lock = client.fair_lock("lock:orders")?;
    /// let shipped = lock.with(|guard| -> fairlock::Result<u32> {
    ///     reserve(guard.token());
    ///     guard.check()?; // between two steps: stop if the hold is lost
    ///     Ok(ship(guard.token()))
    /// })??; // the first `?` is for the lock, the second for the work
    /// assert!(!lock.is_locked()?);
    /// # assert_eq!(shipped, 7);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock): `f` was not called. And [`Error::Lost`]: the hold was lost before `f` had returned, so
    /// another owner may have worked at the same time. What `f` returned is dropped then, even if it was an error.
    ///
    /// `Ok` says that the hold was certain until `f` had returned, as [`Guard::is_lost`] tells it. A release that the server does not
    /// answer, or refuses, is no error, since the work is done: the release is repeated in the background, as after a drop.
    pub fn with<R>(&self, f: impl FnOnce(&Guard<O>) -> R) -> Result<R> {
        self.lock()?.finish(f)
    }

    /// As [`with`](Self::with), but makes one attempt to get the lock, as [`try_lock`](Self::try_lock) does. If the lock is busy `f`
    /// is not called.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// use fairlock::TryLock;
    ///
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// match lock.try_with(|guard| guard.token())? {
    ///     TryLock::Granted(token) => println!("done, with token {token}"),
    ///     TryLock::Busy(_) => println!("not done: another owner holds it"),
    /// }
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn try_with<R>(&self, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
        self.try_lock()?.finish(f)
    }

    /// As [`with`](Self::with), but waits for the lock at most `timeout`, as [`try_lock_for`](Self::try_lock_for) does. The time of
    /// `f` does not count.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend, TryLock};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let TryLock::Granted(done) = lock.with_for(Duration::from_secs(5), |_| true)? else {
    ///     panic!("another owner had it for five seconds");
    /// };
    /// assert!(done);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn with_for<R>(&self, timeout: Duration, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
        self.try_lock_for(timeout)?.finish(f)
    }

    /// Takes a place in the queue and returns at once. The place is kept while the thread does other work.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let guard = client.fair_lock("lock:orders")?.lock()?;
    /// let request = other.fair_lock("lock:orders")?.request()?;
    /// assert_eq!(request.rank(), Some(0)); // next in the queue
    /// guard.unlock()?;
    /// request.decided().recv().expect("the request is open"); // or in a `select!`
    /// let guard = request.wait()?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn request(&self) -> Result<Request<O>> {
        Request::new(self.0.clone())
    }

    /// Releases one hold that this handle's owner has [leaked](Guard::leak).
    ///
    /// # Errors
    /// [`Error::NotHeld`] when there is none: guards are dropped instead. [`Error::Lost`], once, for a leaked hold that was
    /// lost meanwhile. Otherwise as [`Guard::unlock`].
    pub fn unlock(&self) -> Result<()> {
        let (shared, owner) = (&self.0.shared, self.0.owner_id());
        let claim = match shared.ledger.registry.get(self.name(), owner.as_str()) {
            Some(claim) => claim.unleak().map(|()| claim),
            None => Err(0),
        };
        // A lost hold is no longer its owner's claim: the registry remembers it apart.
        let claim =
            claim.or_else(|guards| shared.ledger.registry.take_lost_leak(self.name(), &owner).ok_or(guards));
        let not_held = |guards| {
            let is_held = |claim: &Claim| claim.hold_count(shared.now()) > 0;
            let holder =
                shared.ledger.registry.any(self.name(), is_held).filter(|claim| claim.owner != owner);
            let held_by = holder.map(|claim| claim.owner.clone());
            let (lock, label) = (self.0.lock.name.clone(), Arc::clone(&shared.config.label));
            Error::NotHeld { lock, owner, label, guards, held_by }
        };
        shared.parts().unlock(&claim.map_err(not_held)?, Effort::Persistent)
    }

    /// Whether this handle's owner, the calling thread or the [`Owner`], certainly holds the lock. Makes no round trip.
    /// Redisson calls it `isHeldByCurrentThread`; whether any owner holds the lock is [`is_locked`](Self::is_locked).
    pub fn is_held(&self) -> bool {
        self.hold_count() > 0
    }

    /// How often this handle's owner holds the lock; zero when that is not certain. Makes no round trip.
    pub fn hold_count(&self) -> u32 {
        let claim = self.0.shared.ledger.registry.get(self.name(), self.0.owner_id().as_str());
        claim.map_or(0, |claim| claim.hold_count(self.0.shared.now()))
    }

    /// A handle with the same methods, whose holds and waits belong to `owner` and not to a thread. Its guards and requests
    /// may move between threads.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let task = client.new_owner();
    /// let lock = client.fair_lock("lock:orders")?.owned_by(&task)?;
    /// let guard = lock.lock()?;
    /// std::thread::spawn(move || guard.unlock()).join().expect("no panic")?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] for the owner of another client.
    pub fn owned_by(&self, owner: &Owner) -> Result<OwnedLock> {
        let Caller { shared, lock, terms, units, cancel, .. } = self.0.clone();
        if owner.id().client() == shared.id.to_string() {
            return Ok(Lock(Caller { shared, lock, owner: owner.clone(), terms, units, cancel }));
        }
        Err(Error::Misuse { lock: lock.name, reason: "the owner was made by another client".to_owned() })
    }

    /// A handle whose holds end by themselves after `lease` and are not renewed. Of several calls of `fixed_lease` and
    /// [`max_hold`](Self::max_hold) the last one counts; a re-entry keeps the terms of the outermost hold.
    #[must_use]
    pub fn fixed_lease(&self, lease: Duration) -> Lock<O> {
        Lock(Caller { terms: Terms::Fixed(lease), ..self.0.clone() })
    }

    /// A handle whose holds are renewed, but end at the latest `limit` after the grant, so that a stuck holder can't keep
    /// the lock for ever.
    #[must_use]
    pub fn max_hold(&self, limit: Duration) -> Lock<O> {
        let terms = Terms::Capped { lease: self.0.shared.config.lease, limit };
        Lock(Caller { terms, ..self.0.clone() })
    }

    /// A handle whose waits end with [`Error::Cancelled`] once [`Cancel::cancel`] is called.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Lock<O> {
        Lock(Caller { cancel: Some(cancel.clone()), ..self.0.clone() })
    }
}
