//! A handle of one named lock takes the lock, or a place in the lock's queue, to wait for later, beside other events; and the handle leads.
//!
//! A leader is elected by the lock: a campaign asks for the lock whenever it was lost, and its holder leads for a term.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

use super::guard::{Guard, Owner, Ownership, ThisThread, TryLock, finished};
use crate::backend::{Condition, LockId, Wait};
use crate::claim::{Claim, Patience, Terms};
use crate::config::LONGEST;
use crate::error::{Busy, Error, Result};
use crate::flow::{Effort, Taken, WaitOutcome, Wish};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};
use crate::losses::Receiver;
use crate::shared::Handles;
use crate::stats::Stats;
use crate::time::{self, CancelToken};

/// A handle of a named lock. Cheap to clone; all handles of one name are one lock, whichever client made them.
///
/// # Getting the lock
/// [`lock`](Self::lock) waits, [`try_lock`](Self::try_lock) does not, and [`try_lock_for`](Self::try_lock_for) waits for
/// a limited time. [`with`](Self::with), [`try_with`](Self::try_with) and [`try_with_for`](Self::try_with_for) do the same around a
/// closure. The guard releases the lock when it is dropped, or by [`unlock`](Guard::unlock), and
/// [`is_lost`](crate::Hold::is_lost) tells whether the lock was lost before that.
///
/// A thread that holds the lock gets it again at once, by any of these calls. Each guard counts as one hold. Beware of `let _ =
/// lock.lock()?`, which releases the lock in the same line. A name such as `_guard` keeps the guard.
///
/// # Variants
/// [`request`](Self::request) takes a place in the queue and waits later, for example in a `select!`.
/// [`cancelled_by`](Self::cancelled_by), [`fixed_lease`](Self::fixed_lease) and [`max_hold`](Self::max_hold) return a handle
/// whose waits can be cancelled or whose holds are bounded, and [`owned_by`](Self::owned_by) one for an [`Owner`] that is not a
/// thread. [`admin`](Self::admin) has what operators call.
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

impl<O: Ownership> Lock<O> {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.0.lock.name.as_str()
    }

    pub(super) fn terms(&self) -> Terms {
        self.0.terms
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

    /// Waits for the lock until `deadline`, as [`try_lock_for`](Self::try_lock_for) does: several waits can share a deadline.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let deadline = Instant::now() + Duration::from_secs(5); // for both together
    /// let orders = client.fair_lock("orders")?.try_lock_until(deadline)?;
    /// let stock = client.fair_lock("stock")?.try_lock_until(deadline)?;
    /// assert!(!orders.is_busy() && !stock.is_busy());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<TryLock<Guard<O>>> {
        self.try_lock_for(self.0.time_to(deadline))
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
    /// `Ok` says that the hold was certain until `f` had returned, as [`Hold::is_lost`](crate::Hold::is_lost) tells it. A release that the server does not
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
    /// let TryLock::Granted(done) = lock.try_with_for(Duration::from_secs(5), |_| true)? else {
    ///     panic!("another owner had it for five seconds");
    /// };
    /// assert!(done);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn try_with_for<R>(&self, timeout: Duration, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
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
    pub fn owned_by(&self, owner: &Owner) -> Result<Lock<Owner>> {
        let Caller { shared, lock, terms, units, cancel, condition, .. } = self.0.clone();
        if owner.id().client() == shared.id.to_string() {
            let owner = owner.clone();
            return Ok(Lock(Caller { shared, lock, owner, terms, units, cancel, condition }));
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

    /// A handle whose waits end with [`Error::Cancelled`] once [`CancelToken::cancel`] is called.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &CancelToken) -> Lock<O> {
        Lock(Caller { cancel: Some(cancel.clone()), ..self.0.clone() })
    }
}

impl<O: Ownership> Lock<O> {
    /// What has happened to this lock by all handles of its name in this client. None without
    /// [`stats_per_lock`](crate::ClientBuilder::stats_per_lock), and for locks beyond its number. Makes no round trip.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// let client = Client::builder(MemoryBackend::new()).stats_per_lock(100).build()?;
    /// let (orders, mails) = (client.fair_lock("lock:orders")?, client.fair_lock("lock:mails")?);
    /// orders.lock()?.unlock()?;
    /// assert_eq!(orders.stats().unwrap().holds.count, 1);
    /// assert_eq!(mails.stats().unwrap().holds.count, 0);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn stats(&self) -> Option<Stats> {
        let (ledger, name) = (&self.0.shared.ledger, &self.0.lock.name);
        let counted = ledger.counters.read_lock(name)?;
        let mut waiting = ledger.snapshot(Claim::as_waiting);
        waiting.retain(|request| request.lock == *name);
        Some(Stats { holding: ledger.holding(|claim| claim.lock.name == *name), waiting, ..counted })
    }

    /// Whether any owner holds the lock. One round trip, which does not read the queue.
    ///
    /// # Errors
    /// As [`Admin::inspect`](crate::Admin::inspect).
    pub fn is_locked(&self) -> Result<bool> {
        self.admin().inspect_queue(0..0).map(|state| state.holder().is_some())
    }
}

/// Which owner asks for which lock, and how.
#[derive(Clone, Debug)]
pub(super) struct Caller<O> {
    pub(super) shared: Arc<Handles>,
    pub(super) lock: LockId,
    pub(super) owner: O,
    pub(super) terms: Terms,
    /// How many of the lock's units the caller wants.
    pub(super) units: u32,
    pub(super) cancel: Option<CancelToken>,
    pub(super) condition: Condition,
}

impl<O: Ownership> Caller<O> {
    pub(super) fn owner_id(&self) -> OwnerId {
        self.owner.owner_id(self.shared.id)
    }

    pub(super) fn obtain(&self, wait: Wait) -> Result<TryLock<Guard<O>>> {
        let (owner, patience) = (self.owner_id(), self.patience(wait));
        let taken = self.shared.parts().obtain(self.wish(&owner, &patience)?)?;
        Ok(match taken {
            Ok(taken) => TryLock::Granted(Guard::new(Arc::clone(&self.shared), taken)),
            Err(busy) => TryLock::Busy(busy),
        })
    }

    /// Makes a request, and takes a share of its claim.
    pub(super) fn begin(&self) -> Result<Arc<Claim>> {
        let (owner, patience) = (self.owner_id(), self.patience(Wait::Forever));
        loop {
            // Always some: a wait without limit ends with a claim or an error.
            if let Some(claim) = self.shared.parts().begin(self.wish(&owner, &patience)?)? {
                return Ok(claim);
            }
        }
    }

    pub(super) fn patience(&self, wait: Wait) -> Patience {
        let deadline = match wait {
            Wait::UpTo(time) => self.shared.now().checked_add(time),
            Wait::No | Wait::Forever => None,
        };
        let (cancel, condition) = (self.cancel.clone(), self.condition);
        Patience { wait, deadline, cancel, condition, keeps_place: false }
    }

    pub(super) fn wish<'a>(&'a self, owner: &'a OwnerId, patience: &'a Patience) -> Result<Wish<'a>> {
        Ok(Wish { lock: &self.lock, owner, terms: self.terms.check()?, units: self.units, patience })
    }

    pub(super) fn time_to(&self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(self.shared.now())
    }
}

/// A wait that is longer than any program runs has no limit.
pub(super) fn wait_of(timeout: Duration) -> Wait {
    match timeout {
        Duration::ZERO => Wait::No,
        time if time > LONGEST => Wait::Forever,
        time => Wait::UpTo(time),
    }
}

/// A place in the queue of a lock. A thread has a `Request`, which can't leave it; the `Request<Owner>` of an [`Owner`](crate::Owner) may.
/// Dropping it leaves the queue, or releases the lock if it was granted.
///
/// Without a waiting thread the client's watchdog asks for the lock, so the request is granted in its turn all the same. A grant
/// that was not taken yet is a hold: it is renewed, and keeps other owners out.
#[must_use = "if unused the place is given up at once"]
#[derive(Debug)]
pub struct Request<O: Ownership = ThisThread> {
    caller: Caller<O>,
    /// The claim; none once the request was granted and taken, or has failed.
    claim: Option<Arc<Claim>>,
    /// Kept here too, so that the channel stays open from one claim to the next.
    decision: Sender<()>,
    decided: Receiver<()>,
    mobility: PhantomData<O::Mobility>,
}

impl<O: Ownership> Request<O> {
    pub(super) fn new(caller: Caller<O>) -> Result<Request<O>> {
        let claim = caller.begin()?;
        let (decision, decided) = bounded(1);
        claim.tell_when_decided(decision.clone());
        Ok(Request {
            caller,
            claim: Some(claim),
            decision,
            decided: Receiver(decided),
            mobility: PhantomData,
        })
    }

    /// A channel, also for a `select!`. One message arrives when the request was granted or has failed; `wait` then returns at once. If
    /// the grant ended before a caller took it, the request continues with a new place, and another message follows.
    pub fn decided(&self) -> &Receiver<()> {
        &self.decided
    }

    /// How many waiters are ahead, as last heard; 0 is next. None when the request is decided, or the lock is plain.
    pub fn rank(&self) -> Option<u64> {
        self.claim.as_ref()?.rank()
    }

    /// Waits for the lock, without a time limit.
    ///
    /// # Errors
    /// See [`Lock`](crate::Lock); [`Error::Misuse`] when an earlier wait returned the guard or an error, and for a request that was
    /// [declined](crate::Busy::declined): of that [`wait_for`](Self::wait_for) tells.
    pub fn wait(mut self) -> Result<Guard<O>> {
        loop {
            match self.wait_up_to(Wait::Forever)? {
                TryLock::Granted(guard) => return Ok(guard),
                TryLock::Busy(Busy { lock, declined: Some(_), .. }) => {
                    let reason =
                        "the request was declined, so it can't be waited for without limit".to_owned();
                    return Err(Error::Misuse { lock, reason });
                }
                TryLock::Busy(_) => {}
            }
        }
    }

    /// Waits for the lock, at most `timeout`; after [`TryLock::Busy`] the request keeps its place. It is busy also while the server
    /// does not answer, until the outage limit is over: [`withdraw`](Self::withdraw) tells the two apart.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, timeout: Duration) -> Result<TryLock<Guard<O>>> {
        self.wait_up_to(wait_of(timeout))
    }

    /// Waits for the lock until `deadline`, by the client's [clock](crate::ClientBuilder::clock); after [`TryLock::Busy`] the
    /// request keeps its place.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<TryLock<Guard<O>>> {
        self.wait_for(self.caller.time_to(deadline))
    }

    /// Stops waiting and leaves the queue. `Granted` if the lock was granted by then; `Busy` if by the server's last answer other
    /// owners have the lock, or stand ahead. Takes one round trip, or 50 ms without an answer. First waits for an attempt that is
    /// under way, until its time-out is over.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// let request = lock.owned_by(&client.new_owner())?.request()?;
    /// assert!(request.withdraw()?.granted().is_none()); // this thread has it
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`Error::Unavailable`] if the last attempt was refused or not answered: then who has the lock is not
    /// known.
    pub fn withdraw(mut self) -> Result<TryLock<Guard<O>>> {
        let patience = self.caller.patience(Wait::UpTo(Duration::ZERO));
        let claim = self.take_claim()?;
        match self.caller.shared.parts().wait_for(&claim, &patience)? {
            WaitOutcome::Granted(token) => Ok(TryLock::Granted(self.guard(claim, token))),
            WaitOutcome::NotGranted => Ok(TryLock::Busy(claim.busy())),
            // The hold was granted, and ended before it was taken.
            WaitOutcome::Again => self.caller.obtain(Wait::No),
        }
    }

    fn wait_up_to(&mut self, wait: Wait) -> Result<TryLock<Guard<O>>> {
        let patience = Patience { keeps_place: true, ..self.caller.patience(wait) };
        loop {
            // Put back only where the request continues: a grant or an error uses it up.
            let claim = self.take_claim()?;
            match self.caller.shared.parts().wait_for(&claim, &patience)? {
                WaitOutcome::Granted(token) => return Ok(TryLock::Granted(self.guard(claim, token))),
                WaitOutcome::NotGranted => {
                    let busy = claim.busy();
                    self.claim = Some(claim);
                    return Ok(TryLock::Busy(busy));
                }
                WaitOutcome::Again => {
                    let claim = self.caller.begin()?;
                    // A message about the old claim says nothing of this one.
                    while self.decided.try_recv().is_ok() {}
                    claim.tell_when_decided(self.decision.clone());
                    self.claim = Some(claim);
                }
            }
        }
    }

    fn take_claim(&mut self) -> Result<Arc<Claim>> {
        let reason = "the request was decided before: its guard was taken, or its error reported";
        let lock = &self.caller.lock.name;
        self.claim.take().ok_or_else(|| Error::Misuse { lock: lock.clone(), reason: reason.to_owned() })
    }

    fn guard(&self, claim: Arc<Claim>, token: FencingToken) -> Guard<O> {
        Guard::new(Arc::clone(&self.caller.shared), Taken { claim, token })
    }
}

impl<O: Ownership> Drop for Request<O> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.caller.shared.parts().drop_share(&claim);
        }
    }
}

impl<O: Ownership> Lock<O> {
    /// Leads whenever it is this caller's turn: waits for the lock, and calls `f`, which leads until its term is over: by a loss, a
    /// [`CancelToken`](crate::CancelToken) of this handle, or a [`drain`](crate::Client::drain). After a loss, or while the server does not answer,
    /// it asks again, at the tail of the queue.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// # fn act(_: fairlock::FencingToken) {}
    /// client.fair_lock("lock:leader")?.lead(|term| -> fairlock::Result<()> {
    ///     println!("leads, token {}", term.token());
    ///     loop {
    ///         act(term.token());
    ///         term.sleep(Duration::from_millis(100))?; // ends early, with an error, if the term is over
    ///     }
    /// })?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// `f` leads as long as it does not return: [`Term::check`] and [`Term::sleep`] tell it when to. To return before is to resign:
    /// the lock is released, and this call returns what `f` returned. It returns `None` if a drain or a
    /// [`shutdown`](crate::Client::shutdown) has ended the campaign, or the term; what `f` returned is dropped then.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the program has ended the campaign, or the term; what `f` returned is dropped.
    /// [`Error::Denied`], at once if the first request was denied, else when requests were denied for two minutes.
    /// [`Error::Corrupt`], [`Error::Misuse`] and others that do not pass: see [`Lock`].
    pub fn lead<R>(&self, mut f: impl FnMut(&Term<'_, O>) -> R) -> Result<Option<R>> {
        let mut campaign = Campaign::default();
        loop {
            let ended = match self.lock() {
                Ok(guard) => {
                    campaign.is_won();
                    self.0.term(guard, &mut f)
                }
                Err(error) => Err(error),
            };
            let config = &self.0.shared.config;
            let Some(pause) = campaign.pause_after(&ended, config.now()) else {
                return unless_drained(ended);
            };
            let _here = config.clock.attend();
            config.clock.sleep(pause);
        }
    }
}

/// A leader's term of office, for the closure of [`Lock::lead`]: its hold, and why the term is over.
#[derive(Debug)]
pub struct Term<'a, O: Ownership = ThisThread> {
    guard: &'a Guard<O>,
    candidate: &'a Caller<O>,
}

impl<O: Ownership> Deref for Term<'_, O> {
    type Target = Guard<O>;

    fn deref(&self) -> &Guard<O> {
        self.guard
    }
}

impl<O: Ownership> Term<'_, O> {
    /// Says whether the term goes on, for a `?` before each act. Asks no server.
    ///
    /// # Errors
    /// Why the term is over: [`Error::Lost`]; [`Error::Cancelled`], by the [`CancelToken`](crate::CancelToken) of the handle;
    /// [`Error::Shutdown`], in a [`drain`](crate::Client::drain).
    pub fn check(&self) -> Result<()> {
        self.guard.check()?;
        self.candidate.may_lead()
    }

    /// Sleeps for this time, by the client's [clock](crate::ClientBuilder::clock), or until the term is over.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let (claim, config) = (&self.guard.claim, &self.candidate.shared.config);
        let _here = config.clock.attend();
        let until = config.now().checked_add(time);
        loop {
            // Read first: a loss, a cancel or a drain after the check ends the sleep.
            let seen = claim.signal.generation();
            self.check()?;
            if until.is_some_and(|until| until <= config.now()) {
                return Ok(());
            }
            claim.signal.wait(seen, until);
        }
    }
}

impl<O: Ownership> Caller<O> {
    fn term<R>(&self, guard: Guard<O>, f: &mut impl FnMut(&Term<'_, O>) -> R) -> Result<R> {
        let _listening = self.cancel.as_ref().map(|cancel| cancel.listen(&guard.claim));
        let term = Term { guard: &guard, candidate: self };
        let result = f(&term);
        let led = term.check();
        let released = guard.unlock();
        led.and_then(|()| finished(released, result))
    }

    /// # Errors
    /// The program wants this leader to step down.
    pub(super) fn may_lead(&self) -> Result<()> {
        let lock = || self.lock.name.clone();
        if self.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(Error::Cancelled { lock: lock() });
        }
        if self.shared.config.stop.is_closed() {
            return Err(Error::Shutdown { lock: Some(lock()) });
        }
        Ok(())
    }
}

/// The end of a client ends its campaigns in order.
pub(super) fn unless_drained<R>(ended: Result<R>) -> Result<Option<R>> {
    match ended {
        Err(Error::Shutdown { .. }) => Ok(None),
        ended => ended.map(Some),
    }
}

/// For how long a right that a candidate had may be gone, while rights are changed: as long as a password, see `Logins`.
const RIGHTS_CHANGE_WITHIN: Duration = Duration::from_secs(120);

/// When a candidate asks again.
#[derive(Default)]
pub(super) struct Campaign {
    /// How many times in a row it did not get to lead.
    failures: u32,
    /// It has led, or has waited as long as an outage may last: its first request was not denied.
    has_begun: bool,
    /// Since when its requests are denied.
    denied_since: Option<Instant>,
}

impl Campaign {
    pub(super) fn is_won(&mut self) {
        *self = Campaign { has_begun: true, ..Campaign::default() };
    }

    /// How long to pause before the next request; none if there is no next one. A full server refuses newcomers at once, so without a
    /// pause it would be asked all the time.
    pub(super) fn pause_after<R>(&mut self, ended: &Result<R>, now: Instant) -> Option<Duration> {
        match ended {
            Err(Error::Lost(_) | Error::Unavailable { .. }) => self.has_begun = true,
            Err(Error::Denied { .. }) if self.has_begun => {
                let since = *self.denied_since.get_or_insert(now);
                if now >= since + RIGHTS_CHANGE_WITHIN {
                    return None;
                }
            }
            _ => return None,
        }
        self.failures += 1;
        Some(time::pause(self.failures))
    }
}

/// The handle has a method `with_lock`, which changes its locks.
macro_rules! terms {
    ($handle:ident $(<$o:ident: $bound:path>)?) => {
        impl $(<$o: $bound>)? $handle $(<$o>)? {
            /// As [`Lock::fixed_lease`](crate::Lock::fixed_lease), for all holds by this handle.
            #[must_use]
            pub fn fixed_lease(&self, lease: std::time::Duration) -> Self {
                self.with_lock(|lock| lock.fixed_lease(lease))
            }

            /// As [`Lock::max_hold`](crate::Lock::max_hold), for all holds by this handle. A slow holder delays all waiters by this
            /// time at most.
            #[must_use]
            pub fn max_hold(&self, limit: std::time::Duration) -> Self {
                self.with_lock(|lock| lock.max_hold(limit))
            }

            /// As [`Lock::cancelled_by`](crate::Lock::cancelled_by), for all waits by this handle.
            #[must_use]
            pub fn cancelled_by(&self, cancel: &crate::time::CancelToken) -> Self {
                self.with_lock(|lock| lock.cancelled_by(cancel))
            }
        }
    };
}

pub(super) use terms;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendError, BackendErrorKind};

    #[test]
    fn a_wait_of_more_than_100_years_has_no_limit() {
        let moment = Duration::from_nanos(1);
        let waits = [Duration::ZERO, moment, LONGEST, LONGEST + moment, Duration::MAX].map(wait_of);
        let limits = [Wait::No, Wait::UpTo(moment), Wait::UpTo(LONGEST), Wait::Forever, Wait::Forever];
        assert_eq!(waits, limits);
    }

    /// A term makes a candidate, and so does an outage before the first term. The candidate's denials count from the first on.
    #[test]
    fn a_candidate_asks_again_for_two_minutes_of_denials() {
        let failed = |kind| {
            let name = LockName::new("office").unwrap();
            Err::<(), _>(Error::about(&name, BackendError::new(kind, "no")))
        };
        let (denied, down) = (failed(BackendErrorKind::Denied), failed(BackendErrorKind::Unavailable));
        let start = Instant::now();
        let end = start + RIGHTS_CHANGE_WITHIN;
        assert_eq!(Campaign::default().pause_after(&denied, start), None);
        for has_led in [true, false] {
            let mut campaign = Campaign::default();
            if has_led {
                campaign.is_won();
            } else {
                assert_eq!(campaign.pause_after(&down, start), Some(Duration::ZERO));
            }
            assert!(campaign.pause_after(&denied, start).is_some());
            assert!(campaign.pause_after(&denied, start).is_some_and(|pause| !pause.is_zero()));
            assert!(campaign.pause_after(&denied, end - Duration::from_nanos(1)).is_some());
            assert_eq!(campaign.pause_after(&denied, end), None);
        }
    }
}
