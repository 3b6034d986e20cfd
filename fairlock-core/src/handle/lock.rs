//! A handle of one named lock.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{LockId, Wait};
use crate::cancel::Cancel;
use crate::claim::Terms;
use crate::flow::Effort;
use crate::handle::caller::{Caller, wait_of};
use crate::handle::{Guard, Owner, Ownership, Request, ThisThread, TryLock};
use crate::shared::Shared;
use crate::{Error, LockKind, LockName, Result};

/// A named lock. Cheap to clone; all handles of one name are one lock, whatever client made them.
///
/// # Five calls
/// [`lock`](Self::lock) waits; [`try_lock`](Self::try_lock) does not; [`try_lock_for`](Self::try_lock_for) waits for
/// a time. The guard that they return gives the lock back when it is dropped, or by
/// [`unlock`](Guard::unlock), and says by [`is_lost`](Guard::is_lost) whether it still holds.
///
/// A thread that holds the lock gets it again at once, however it asks: each guard counts. Beware of
/// `let _ = lock.lock()?`, which gives it back in the same line; a name (`_guard`) keeps it.
///
/// # The rest
/// [`request`](Self::request) waits beside other things in a `select!`; [`cancelled_by`](Self::cancelled_by) ends
/// waits from another thread; [`fixed_lease`](Self::fixed_lease) and [`max_hold`](Self::max_hold) bound holds;
/// [`owned_by`](Self::owned_by) is for an [`Owner`] that is not a thread; [`inspect`](Self::inspect) and
/// [`force_unlock`](Self::force_unlock) are for operators.
///
/// # Errors of all calls that ask for the lock
/// [`Error::Unavailable`] when the server gives no answer: `try_lock` says so after two attempts, a timed wait at
/// its end, `lock` after the outage limit. [`Error::Denied`], [`Error::Corrupt`] and [`Error::InvalidName`] say
/// why the server will never grant it. [`Error::Cancelled`], [`Error::Shutdown`]. [`Error::InvalidConfig`] for
/// a `fixed_lease` or `max_hold` outside 10 ms to 100 years. [`Error::Misuse`] for the owner of another client.
/// That the lock is busy is no error.
#[derive(Clone, Debug)]
pub struct Lock<O: Ownership = ThisThread>(pub(super) Caller<O>);

/// A [`Lock`] whose holds and waits are those of an [`Owner`].
pub type OwnedLock = Lock<Owner>;

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, name: LockName, kind: LockKind) -> Lock {
        let terms = Terms::Renewed(shared.config.lease);
        Lock(Caller { shared, lock: LockId::new(name, kind), owner: ThisThread, terms, cancel: None })
    }
}

impl<O: Ownership> Lock<O> {
    /// Its name.
    pub fn name(&self) -> &str {
        self.0.lock.name.as_str()
    }

    /// Fair or plain.
    pub fn kind(&self) -> LockKind {
        self.0.lock.kind
    }

    /// Waits for its turn, without limit.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn lock(&self) -> Result<Guard<O>> {
        loop {
            // Busy can't be: a wait without limit ends with the lock or an error.
            if let TryLock::Granted(guard) = self.0.obtain(Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    /// One attempt. It never waits in line, and never passes those who do.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> Result<TryLock<Guard<O>>> {
        self.0.obtain(Wait::No)
    }

    /// Waits for its turn, at most `timeout`; zero is [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.0.obtain(wait_of(timeout))
    }

    /// Waits for its turn until `deadline`, by the client's clock.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<TryLock<Guard<O>>> {
        self.try_lock_for(self.0.time_to(deadline))
    }

    /// Takes a place in the line and returns at once.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn request(&self) -> Result<Request<O>> {
        Request::new(self.0.clone())
    }

    /// Gives back one hold that this handle's owner has [leaked](Guard::leak).
    ///
    /// # Errors
    /// [`Error::NotHeld`] when there is none; guards are given back by dropping them. [`Error::Lost`], once, for one that
    /// was lost meanwhile. Else as [`Guard::unlock`].
    pub fn unlock(&self) -> Result<()> {
        let (shared, owner) = (&self.0.shared, self.0.owner_id());
        let claim = match shared.registry.get(self.name(), owner.as_str()) {
            Some(claim) => claim.unleak().map(|()| claim),
            None => Err(0),
        };
        // A lost one is no longer its owner's claim, and only the registry's memory can tell of it.
        let claim = claim.or_else(|guards| shared.registry.take_lost_leak(self.name(), &owner).ok_or(guards));
        let not_held = |guards| Error::NotHeld { lock: self.0.lock.name.clone(), owner, guards };
        shared.unlock(&claim.map_err(not_held)?, Effort::Persistent)
    }

    /// Whether this handle's owner (the calling thread, or the [`Owner`]) certainly holds the lock; Redisson's
    /// `isHeldByCurrentThread`. No round trip.
    pub fn is_held(&self) -> bool {
        self.hold_count() > 0
    }

    /// How often this handle's owner holds the lock; zero when that is not certain. No round trip.
    pub fn hold_count(&self) -> u32 {
        let claim = self.0.shared.registry.get(self.name(), self.0.owner_id().as_str());
        claim.map_or(0, |claim| claim.hold_count(self.0.shared.now()))
    }

    /// A handle with the same methods, whose holds and waits are those of `owner` and not of a thread.
    ///
    /// # Errors
    /// [`Error::Misuse`] for the owner of another client.
    pub fn owned_by(&self, owner: &Owner) -> Result<OwnedLock> {
        let Caller { shared, lock, terms, cancel, .. } = self.0.clone();
        if owner.belongs_to(shared.id) {
            return Ok(Lock(Caller { shared, lock, owner: owner.clone(), terms, cancel }));
        }
        Err(Error::Misuse { lock: lock.name, reason: "the owner was made by another client" })
    }

    /// A handle whose holds end by themselves after `lease` and are not renewed. The last of `fixed_lease` and
    /// [`max_hold`](Self::max_hold) counts, and for a re-entry the terms of the outermost hold.
    #[must_use]
    pub fn fixed_lease(&self, lease: Duration) -> Lock<O> {
        Lock(Caller { terms: Terms::Fixed(lease), ..self.0.clone() })
    }

    /// A handle whose holds are renewed, but end at the latest `limit` after the grant: a holder that is stuck
    /// can't keep the lock for ever.
    #[must_use]
    pub fn max_hold(&self, limit: Duration) -> Lock<O> {
        let terms = Terms::Capped { lease: self.0.shared.config.lease, limit };
        Lock(Caller { terms, ..self.0.clone() })
    }

    /// A handle whose waits end with [`Error::Cancelled`] when `cancel` says so.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Lock<O> {
        Lock(Caller { cancel: Some(cancel.clone()), ..self.0.clone() })
    }
}

impl<O: Ownership> UnwindSafe for Lock<O> {}
impl<O: Ownership> RefUnwindSafe for Lock<O> {}
