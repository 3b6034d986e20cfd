//! A handle of one named lock.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::Wish;
use crate::backend::{LockId, Wait};
use crate::claim::{Claim, Patience, Terms};
use crate::handle::owner::this_thread;
use crate::handle::{Cancel, LockGuard, LockRequest, OwnedGuard, OwnedRequest, Owner};
use crate::release::Effort;
use crate::shared::Shared;
use crate::{Error, LockKind, LockName, OwnerId, Result};

/// A named lock. Cheap to clone; all handles of one name are one lock, whatever client made them.
///
/// # Five calls
/// [`lock`](Self::lock) waits; [`try_lock`](Self::try_lock) does not; [`try_lock_for`](Self::try_lock_for) waits for
/// a time. The guard that they return gives the lock back when it is dropped, or by
/// [`unlock`](LockGuard::unlock), and says by [`is_lost`](LockGuard::is_lost) whether it still holds.
///
/// A thread that holds the lock gets it again at once, however it asks: each guard counts. Beware of
/// `let _ = lock.lock()?`, which gives it back in the same line; a name (`_guard`) keeps it.
///
/// # The rest
/// [`request`](Self::request) waits beside other things in a `select!`; [`cancelled_by`](Self::cancelled_by) ends
/// waits from another thread; [`fixed_lease`](Self::fixed_lease) and [`max_hold`](Self::max_hold) bound holds; the
/// calls with `_as` are for an [`Owner`] that is not a thread; [`inspect`](Self::inspect) and
/// [`force_unlock`](Self::force_unlock) are for operators.
///
/// # Errors of all calls that ask for the lock
/// [`Error::Unavailable`] when the server gives no answer: `try_lock` says so after two attempts, a timed wait at
/// its end, `lock` after the outage limit. [`Error::Denied`], [`Error::Corrupt`] and [`Error::InvalidName`] say
/// why the server will never grant it. [`Error::Cancelled`], [`Error::Shutdown`]. [`Error::InvalidConfig`] for
/// a `fixed_lease` or `max_hold` outside 10 ms to 100 years. [`Error::Misuse`] for the owner of another client.
/// That the lock is busy is no error.
#[derive(Clone, Debug)]
pub struct Lock {
    pub(super) shared: Arc<Shared>,
    pub(super) id: LockId,
    terms: Terms,
    cancel: Option<Cancel>,
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, name: LockName, kind: LockKind) -> Lock {
        let terms = Terms::Renewed(shared.config.lease);
        Lock { shared, id: LockId::new(name, kind), terms, cancel: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.id.name.as_str()
    }

    /// Fair or plain.
    pub fn kind(&self) -> LockKind {
        self.id.kind
    }

    /// Waits for its turn, without limit.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn lock(&self) -> Result<LockGuard> {
        self.lock_by(&self.thread()).map(LockGuard::new)
    }

    /// One attempt. It never waits in line, and never passes those who do.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.guard_by(&self.thread(), Wait::No).map(|guard| guard.map(LockGuard::new))
    }

    /// Waits for its turn, at most `timeout`; zero is [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<LockGuard>> {
        self.guard_by(&self.thread(), wait_of(timeout)).map(|guard| guard.map(LockGuard::new))
    }

    /// Waits for its turn until `deadline`, by the client's clock.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<LockGuard>> {
        self.try_lock_for(deadline.saturating_duration_since(self.shared.now()))
    }

    /// Takes a place in the line and returns at once.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn request(&self) -> Result<LockRequest> {
        self.request_by(&self.thread()).map(LockRequest::new)
    }

    /// Gives back one hold that this thread has [leaked](LockGuard::leak).
    ///
    /// # Errors
    /// [`Error::NotHeld`] when there is none; guards are given back by dropping them. [`Error::Lost`], once, for one that
    /// was lost meanwhile. Else as [`LockGuard::unlock`].
    pub fn unlock(&self) -> Result<()> {
        self.unlock_by(&self.thread())
    }

    /// Whether the calling thread certainly holds the lock. Asks nobody.
    pub fn is_held_by_current_thread(&self) -> bool {
        self.hold_count() > 0
    }

    /// How often the calling thread holds the lock; zero when that is not certain. Asks nobody.
    pub fn hold_count(&self) -> u32 {
        self.hold_count_by(&self.thread())
    }

    /// [`lock`](Self::lock) for an owner that is not a thread.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn lock_as(&self, owner: &Owner) -> Result<OwnedGuard> {
        self.lock_by(self.own(owner)?)
    }

    /// [`try_lock`](Self::try_lock) for an owner that is not a thread.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_as(&self, owner: &Owner) -> Result<Option<OwnedGuard>> {
        self.guard_by(self.own(owner)?, Wait::No)
    }

    /// [`try_lock_for`](Self::try_lock_for) for an owner that is not a thread.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for_as(&self, owner: &Owner, timeout: Duration) -> Result<Option<OwnedGuard>> {
        self.guard_by(self.own(owner)?, wait_of(timeout))
    }

    /// [`try_lock_until`](Self::try_lock_until) for an owner that is not a thread.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_until_as(&self, owner: &Owner, deadline: Instant) -> Result<Option<OwnedGuard>> {
        self.try_lock_for_as(owner, deadline.saturating_duration_since(self.shared.now()))
    }

    /// [`request`](Self::request) for an owner that is not a thread.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn request_as(&self, owner: &Owner) -> Result<OwnedRequest> {
        self.request_by(self.own(owner)?)
    }

    /// [`unlock`](Self::unlock) for an owner that is not a thread.
    ///
    /// # Errors
    /// As [`unlock`](Self::unlock); [`Error::Misuse`] for the owner of another client.
    pub fn unlock_as(&self, owner: &Owner) -> Result<()> {
        self.unlock_by(self.own(owner)?)
    }

    /// [`hold_count`](Self::hold_count) for an owner that is not a thread.
    pub fn hold_count_as(&self, owner: &Owner) -> u32 {
        self.hold_count_by(owner.id())
    }

    /// A handle whose holds end by themselves after `lease` and are not renewed. The last of `fixed_lease` and
    /// [`max_hold`](Self::max_hold) counts, and for a re-entry the terms of the outermost hold.
    #[must_use]
    pub fn fixed_lease(&self, lease: Duration) -> Lock {
        Lock { terms: Terms::Fixed(lease), ..self.clone() }
    }

    /// A handle whose holds are renewed, but end at the latest `limit` after the grant: a holder that is stuck
    /// can't keep the lock for ever.
    #[must_use]
    pub fn max_hold(&self, limit: Duration) -> Lock {
        Lock { terms: Terms::Capped { lease: self.shared.config.lease, limit }, ..self.clone() }
    }

    /// A handle whose waits end with [`Error::Cancelled`] when `cancel` says so.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Lock {
        Lock { cancel: Some(cancel.clone()), ..self.clone() }
    }

    fn thread(&self) -> OwnerId {
        this_thread(self.shared.id)
    }

    fn own<'a>(&self, owner: &'a Owner) -> Result<&'a OwnerId> {
        if owner.belongs_to(self.shared.id) {
            return Ok(owner.id());
        }
        let reason = "the owner was made by another client";
        Err(Error::Misuse { lock: self.id.name.clone(), reason })
    }

    fn lock_by(&self, owner: &OwnerId) -> Result<OwnedGuard> {
        loop {
            // None can't be: a wait without limit ends with the lock or an error.
            if let Some(guard) = self.guard_by(owner, Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    fn guard_by(&self, owner: &OwnerId, wait: Wait) -> Result<Option<OwnedGuard>> {
        let patience = self.patience(wait);
        let claim = self.shared.obtain(self.wish(owner, &patience)?)?;
        Ok(claim.map(|claim| OwnedGuard::new(Arc::clone(&self.shared), claim)))
    }

    fn request_by(&self, owner: &OwnerId) -> Result<OwnedRequest> {
        let claim = self.begin(owner)?;
        Ok(OwnedRequest::new(self.clone(), Arc::clone(&self.shared), claim))
    }

    pub(crate) fn begin(&self, owner: &OwnerId) -> Result<Arc<Claim>> {
        let patience = self.patience(Wait::Forever);
        loop {
            // None can't be: see `lock_by`.
            if let Some(claim) = self.shared.begin(self.wish(owner, &patience)?)? {
                return Ok(claim);
            }
        }
    }

    fn wish<'a>(&'a self, owner: &'a OwnerId, patience: &'a Patience) -> Result<Wish<'a>> {
        Ok(Wish { lock: &self.id, owner, terms: self.terms.check()?, patience })
    }

    pub(crate) fn lock_name(&self) -> &LockName {
        &self.id.name
    }

    pub(crate) fn patience(&self, wait: Wait) -> Patience {
        let deadline = match wait {
            Wait::UpTo(time) => self.shared.now().checked_add(time),
            Wait::No | Wait::Forever => None,
        };
        Patience { wait, deadline, cancel: self.cancel.clone(), keeps_place: false }
    }

    fn unlock_by(&self, owner: &OwnerId) -> Result<()> {
        let not_held = |guards| Error::NotHeld { lock: self.id.name.clone(), owner: owner.clone(), guards };
        let registry = &self.shared.registry;
        let claim = match registry.get(self.name(), owner.as_str()) {
            Some(claim) => claim.unleak().map(|()| claim),
            None => Err(0),
        };
        // One that was lost is no claim of its owner any more, and nobody else can tell of it.
        let claim = claim.or_else(|guards| registry.take_lost_leak(self.name(), owner).ok_or(guards));
        self.shared.give_back(&claim.map_err(not_held)?, Effort::Persistent)
    }

    fn hold_count_by(&self, owner: &OwnerId) -> u32 {
        let claim = self.shared.registry.get(self.name(), owner.as_str());
        claim.map_or(0, |claim| claim.hold_count(self.shared.now()))
    }
}

/// A wait that is longer than any program runs is one without limit.
pub(crate) fn wait_of(timeout: Duration) -> Wait {
    match timeout {
        Duration::ZERO => Wait::No,
        time if time > crate::claim::terms::LONGEST => Wait::Forever,
        time => Wait::UpTo(time),
    }
}

impl UnwindSafe for Lock {}
impl RefUnwindSafe for Lock {}
