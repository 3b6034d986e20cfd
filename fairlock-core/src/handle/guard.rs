//! A hold in the program's hands, released by its drop: of one lock, or of several that were taken together; who holds: a thread, or
//! an identity apart from threads; and the outcome of an attempt that may end without a hold.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::backend::RequestId;
use crate::claim::Claim;
use crate::error::{Busy, Error, Lost, LostCause, Result};
use crate::flow::{Effort, GivenUp, Taken};
use crate::ids::{ClientId, FencingToken, OwnerId};
use crate::logging::log_line;
use crate::losses::{FirstLoss, Receiver};
use crate::shared::Handles;

/// A hold of a lock. A thread has a `Guard`, which can't leave it; the `Guard<Owner>` of an [`Owner`] may. It has the methods of
/// [`Hold`], such as [`token`](Hold::token) and [`is_lost`](Hold::is_lost).
///
/// Dropping it releases the lock as [`unlock`](Self::unlock) does, but with one attempt: an error goes to `log`, and a
/// release without an answer is repeated in the background.
///
/// Like the guards of std, a thread's guard is `Sync` but not `Send`:
///
/// ```compile_fail,E0277
/// fn needs_send<T: Send>(_: T) {}
/// fn give_away(guard: fairlock::Guard) {
///     needs_send(guard); // `dyn BoundToItsThread_in_a_task_use_to_async_else_an_Owner` cannot be sent
/// }
/// ```
#[must_use = "bind it to a name, as in `let _guard`: if unused the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct Guard<O: Ownership = ThisThread> {
    hold: Hold,
    lost: OnceLock<Receiver<Lost>>,
    /// Whether the hold was released or leaked: then the drop has nothing to do.
    spent: bool,
    mobility: PhantomData<O::Mobility>,
}

impl<O: Ownership> Deref for Guard<O> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl<O: Ownership> Guard<O> {
    pub(crate) fn new(shared: Arc<Handles>, taken: Taken) -> Guard<O> {
        let Taken { claim, token } = taken;
        let hold = Hold { shared, claim, token };
        Guard { hold, lost: OnceLock::new(), spent: false, mobility: PhantomData }
    }

    /// A channel, also for a `select!`: one message when this hold is lost, then the channel is closed. A release closes the channel
    /// without a message.
    pub fn lost(&self) -> &Receiver<Lost> {
        self.lost.get_or_init(|| {
            let (first_loss, lost) = FirstLoss::new();
            self.claim.tell_when_lost(&first_loss);
            lost
        })
    }

    /// Prolongs the hold by one round trip, and returns how long it is certain. A [fixed lease](crate::Lock::fixed_lease) starts
    /// again; a [`max_hold`](crate::Lock::max_hold) does not move.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?.fixed_lease(Duration::from_secs(10));
    /// let guard = lock.lock()?;
    /// // before a step that must not be interrupted:
    /// assert!(guard.renew()? > Duration::from_secs(9));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the server no longer has the hold. [`Error::Unavailable`] or [`Error::Denied`] when the server
    /// gave no answer or refused; the hold is then as valid as before.
    pub fn renew(&self) -> Result<Duration> {
        self.shared.parts().renew_now(&[&self.claim])
    }

    /// Releases the lock. While the server does not answer it tries again, up to the
    /// [outage limit](crate::ClientBuilder::outage_limit).
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold had ended before: the work may have overlapped with that of another holder.
    /// [`Error::Unavailable`] or [`Error::Denied`] when the server gave no answer or refused; the release is then repeated in
    /// the background, and the hold ends with its lease at the latest. [`Error::Shutdown`] when the client was shut down before the
    /// server answered.
    pub fn unlock(mut self) -> Result<()> {
        self.spent = true;
        self.shared.parts().unlock(&self.claim, Effort::Persistent)
    }

    pub(super) fn shared(&self) -> &Arc<Handles> {
        &self.shared
    }

    /// The drop has nothing to do.
    pub(super) fn spend(&mut self) {
        self.spent = true;
    }

    /// Gives the hold up in this client, without telling the server.
    pub(super) fn give_up(&mut self) -> GivenUp<'_> {
        self.spent = true;
        self.shared.parts().give_up(&self.claim)
    }

    /// Calls `f` and releases the lock; a panic drops the guard, which releases it too.
    pub(super) fn finish<R>(self, f: impl FnOnce(&Guard<O>) -> R) -> Result<R> {
        let result = f(&self);
        finished(self.unlock(), result)
    }

    /// Keeps the hold without a guard. The hold is renewed until [`Lock::unlock`](crate::Lock::unlock) of the same owner releases
    /// it, its [`max_hold`](crate::Lock::max_hold) is over, or the client ends. The hold outlives its thread.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// lock.lock()?.leak();
    /// assert!(lock.is_held());
    /// lock.unlock()?; // later, in other code of this thread
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn leak(mut self) {
        self.spent = true;
        self.claim.leak();
        self.shared.ledger.registry.remember_lost_leak(&self.claim); // it may be lost already
    }
}

impl<O: Ownership> Drop for Guard<O> {
    fn drop(&mut self) {
        if self.spent {
            return;
        }
        log_drop(self.shared.parts().unlock(&self.claim, Effort::Once));
    }
}

/// What a program sees of its hold of a lock: a [`Guard`] has these methods, and so has the hold of a task.
#[derive(Debug)]
pub struct Hold {
    pub(super) shared: Arc<Handles>,
    pub(super) claim: Arc<Claim>,
    pub(super) token: FencingToken,
}

impl Hold {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.claim.lock.name.as_str()
    }

    /// The owner that holds the lock. A task's hold has an owner that no other wait or guard has.
    pub fn owner(&self) -> &OwnerId {
        &self.claim.owner
    }

    /// The fencing token of this acquisition; a re-entry has the token of the outermost guard.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The request that was granted. Lock, owner, request and token name the hold to a [`Backend`](crate::backend::Backend): if
    /// this process dies, another process can release the hold:
    ///
    /// ```
    /// # use fairlock::admin::{LockKind, LockName};
    /// # use fairlock::{Client, MemoryBackend};
    /// use fairlock::backend::{Backend, Hold, LockId, Released, only};
    /// # let store = MemoryBackend::new();
    /// # let client = Client::new(store.clone())?;
    /// let guard = client.fair_lock("lock:orders")?.lock()?;
    ///
    /// let lock = LockId::new(LockName::new("lock:orders")?, LockKind::Fair);
    /// let hold = Hold::new(&lock, guard.owner(), guard.request_id(), guard.token());
    /// assert_eq!(only(store.release(&[hold]))?, Released::Released);
    /// assert_eq!(only(store.release(&[hold]))?, Released::NotHeld); // never another hold
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn request_id(&self) -> RequestId {
        self.claim.request
    }

    /// How long the hold is certain without another renewal; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.claim.valid_for(self.shared.now())
    }

    /// Whether the hold has ended or may have: another owner may have the lock. By this process's clock it becomes true
    /// before the server lets another owner in, even if no thread has run since.
    pub fn is_lost(&self) -> bool {
        self.valid_for() == Duration::ZERO
    }

    /// Says whether the hold is certain still, for a `?` between two steps of the work. Asks no server. A hold that was lost
    /// stays lost.
    ///
    /// ```
    /// # use fairlock::{Client, Error, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// guard.check()?;
    /// lock.admin().force_unlock()?; // by an operator
    /// assert!(matches!(guard.check(), Err(Error::Lost(_))));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true; [`Error::NotHeld`] once the hold of a task's work was released.
    pub fn check(&self) -> Result<()> {
        // In this order: a hold that is lost between the two looks was certain at the first.
        if !self.is_lost() {
            return Ok(());
        }
        // The hold is marked as lost: a renewal that is answered just now does not revive it.
        let lost = self.shared.ledger.lose_if_expired(&self.claim);
        Err(lost.map_or_else(|| self.claim.not_held(), Error::Lost))
    }
}

/// What a call returns whose work returned `result`, and whose release ended like this.
pub(super) fn finished<R>(released: Result<()>, result: R) -> Result<R> {
    match released {
        // The hold was certain at the end of the work. The release is repeated in the background.
        Ok(()) | Err(Error::Unavailable { .. } | Error::Denied { .. }) => Ok(result),
        Err(error) => Err(error),
    }
}

/// How the release of a dropped guard ended.
fn log_drop(released: Result<()>) {
    match released {
        Ok(()) => {}
        // The loss itself was logged as a warning.
        Err(error @ (Error::Lost(_) | Error::NotHeld { .. })) => {
            log_line!(debug, "fairlock::release",
                event = "dropped too late", error:% = error;
                "a guard was dropped too late: {error}"
            );
        }
        // The watchdog repeats the release, and logs a warning if that fails too.
        Err(error) => log_line!(debug, "fairlock::release",
            event = "not answered", error:% = error;
            "the release will be repeated: {error}"
        ),
    }
}

/// What [`Lock::try_lock`](crate::Lock::try_lock), the timed waits and [`Request::wait_for`](crate::Request::wait_for) return, with a
/// guard; [`Lock::try_with`](crate::Lock::try_with) and [`Lock::try_with_for`](crate::Lock::try_with_for) return it with the closure's
/// result.
///
/// There is no `is_granted`: a check that drops the guard would give the lock back before the work begins.
///
/// ```
/// # use fairlock::{Client, MemoryBackend};
/// use fairlock::TryLock;
/// # fn main() -> fairlock::Result<()> {
/// # let lock = Client::new(MemoryBackend::new())?.fair_lock("orders")?;
/// let TryLock::Granted(guard) = lock.try_lock()? else {
///     return Ok(()); // another owner has it
/// };
/// println!("write with token {}", guard.token());
/// guard.unlock()
/// # }
/// ```
///
/// An outcome that is dropped unseen is a warning, and an error where those are denied:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// fn work(lock: &fairlock::Lock) -> fairlock::Result<()> {
///     lock.try_lock()?; // may be granted, and given back at once
///     Ok(())
/// }
/// ```
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// fn work(lock: &fairlock::Lock) -> fairlock::Result<()> {
///     lock.try_with(|_| println!("at work"))?; // may be busy
///     Ok(())
/// }
/// ```
#[must_use = "the lock may be busy; and a guard that is not bound gives it back at once"]
#[derive(Debug)]
pub enum TryLock<G> {
    /// The lock was granted, and is held until this guard is dropped. Or it was granted to `try_with` or `try_with_for`, and this is
    /// the closure's result.
    Granted(G),
    /// Other owners had the lock, or stood ahead in its queue, until the wait was over. After a slow wait [`Busy`](crate::Busy) says who.
    Busy(Busy),
}

impl<G> TryLock<G> {
    /// The guard, if the lock was granted, or all locks were; or the closure's result.
    #[must_use = "if it is unused what was granted is given back at once"]
    pub fn granted(self) -> Option<G> {
        self.into_result().ok()
    }

    /// The same, with the reason why not. A [`Busy`] can be returned as an error.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = Client::new(MemoryBackend::new())?.fair_lock("orders")?;
    /// let guard = lock.try_lock()?.into_result()?; // "lock `orders` is busy"
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Busy`], if other owners had the lock until the wait was over.
    pub fn into_result(self) -> Result<G, Busy> {
        match self {
            TryLock::Granted(granted) => Ok(granted),
            TryLock::Busy(busy) => Err(busy),
        }
    }

    /// Whether other owners had the lock. What was granted stays here.
    pub fn is_busy(&self) -> bool {
        matches!(self, TryLock::Busy(_))
    }
}

impl<O: Ownership> TryLock<Guard<O>> {
    /// Runs `f` under the lock, if it was granted.
    pub(super) fn finish<R>(self, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
        match self {
            TryLock::Granted(guard) => guard.finish(f).map(TryLock::Granted),
            TryLock::Busy(busy) => Ok(TryLock::Busy(busy)),
        }
    }
}

/// The holds of all locks that [`Client::lock_all`](crate::Client::lock_all) has taken. If one hold is lost, the guard is lost.
///
/// Dropping it releases the locks, the last name first, each as the drop of a [`Guard`] does: by one attempt, which is
/// repeated in the background if the server does not answer. While the server is silent that is one response time-out for each lock.
///
/// The guard stays on the thread that took the locks:
///
/// ```compile_fail,E0277
/// fn needs_send<T: Send>(_: T) {}
/// fn give_away(guard: fairlock::AllGuard) {
///     needs_send(guard); // `dyn BoundToItsThread_in_a_task_use_to_async_else_an_Owner` cannot be sent
/// }
/// ```
#[must_use = "bind it to a name, as in `let _guard`: if unused the locks are released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct AllGuard<G: OneGuard = Guard> {
    /// The guards, in the order of their names, which is the order in which the locks were taken.
    pub(super) guards: Vec<G>,
    first_loss: FirstLoss,
    lost: Receiver<Lost>,
}

impl<G: OneGuard> AllGuard<G> {
    /// A guard that holds nothing yet.
    pub(super) fn new() -> AllGuard<G> {
        let (first_loss, lost) = FirstLoss::new();
        AllGuard { guards: Vec::new(), first_loss, lost }
    }

    /// Adds `guard`, whose name comes after those before, and whose loss is told to `first_loss`.
    pub(super) fn add(&mut self, guard: G) {
        self.guards.push(guard);
    }

    /// How the wait for the rest ended: with an error, but if one of the holds was lost meanwhile, by that loss.
    pub(super) fn ended(&self, error: Error) -> Error {
        match error {
            // By a loss: the program has no handle of this cancel. The loss was told before the wait was ended.
            Error::Cancelled { lock } => self.lost.try_recv().map_or(Error::Cancelled { lock }, ended_by),
            error => error,
        }
    }

    /// The last grant may have come with a loss, or after the end of a lease that no thread has seen yet.
    pub(super) fn complete(self) -> Result<TryLock<AllGuard<G>>> {
        match self.check() {
            Ok(()) => Ok(TryLock::Granted(self)),
            Err(Error::Lost(lost)) => Err(ended_by(lost)),
            Err(error) => Err(error),
        }
    }

    fn holds(&self) -> impl ExactSizeIterator<Item = &Hold> {
        self.guards.iter().map(OneGuard::hold)
    }

    /// Its cancel ends the wait for the rest.
    pub(super) fn first_loss(&self) -> &FirstLoss {
        &self.first_loss
    }

    /// The names of the locks, sorted by their bytes, each once.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:7", "account:3", "account:7"])?;
    /// assert_eq!(guard.names().collect::<Vec<_>>(), ["account:3", "account:7"]);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.holds().map(Hold::name)
    }

    /// The fencing token of the lock `name`, for the resource that this lock protects. Each lock has its own tokens. None for a name
    /// that was not asked for.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// let from = guard.token("account:3").expect("it was asked for");
    /// println!("take 10 from account 3 with token {from}");
    /// assert_eq!(guard.token("account:8"), None);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        let at = self.guards.binary_search_by(|guard| guard.hold().name().cmp(name)).ok()?;
        self.guards.get(at).map(|guard| guard.hold().token())
    }

    /// How long all holds are certain without another renewal: the least [`Hold::valid_for`]. Zero when a hold
    /// is lost.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// assert!(guard.valid_for() > Duration::from_secs(20)); // of a lease of 30 s
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn valid_for(&self) -> Duration {
        self.holds().map(Hold::valid_for).min().unwrap_or(Duration::ZERO)
    }

    /// Whether any of the holds has ended or may have: another owner may have that lock.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// client.fair_lock("account:7")?.admin().force_unlock()?; // by an operator
    /// assert!(guard.is_lost());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn is_lost(&self) -> bool {
        self.valid_for() == Duration::ZERO
    }

    /// Says whether all holds are certain still, for a `?` between two steps of the work. Asks no server.
    ///
    /// ```
    /// # use fairlock::{Client, Error, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// guard.check()?;
    /// client.fair_lock("account:7")?.admin().force_unlock()?; // by an operator
    /// let Err(Error::Lost(lost)) = guard.check() else { panic!("it was lost") };
    /// assert_eq!(lost.lock.as_str(), "account:7");
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true, about the first lost lock in the order of names.
    pub fn check(&self) -> Result<()> {
        self.holds().try_for_each(Hold::check)
    }
}

impl AllGuard {
    /// A channel, also for a `select!`: one message when the first hold is lost, then the channel is closed. The drop or unlock of the guard
    /// closes the channel without a message.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// let lost = guard.lost().clone();
    /// client.fair_lock("account:7")?.admin().force_unlock()?; // by an operator
    /// assert_eq!(lost.recv().expect("a hold was lost").lock.as_str(), "account:7");
    /// assert!(lost.recv().is_err()); // closed
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn lost(&self) -> &Receiver<Lost> {
        &self.lost
    }

    /// Prolongs all holds by one call of the backend: one round trip if one server keeps all locks. Returns how long all holds
    /// are certain.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// // before a step that must not be interrupted:
    /// assert!(guard.renew()? > Duration::from_secs(29));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Guard::renew`], about the first lock in the order of names that was not renewed. The other locks are
    /// renewed all the same, unless a hold was known to be lost before.
    pub fn renew(&self) -> Result<Duration> {
        let claims: Vec<_> = self.guards.iter().map(|guard| &guard.claim).collect();
        self.guards.first().map_or(Ok(Duration::ZERO), |first| first.shared.parts().renew_now(&claims))
    }

    /// Releases all locks, the last name first. After an error it goes on with the other locks.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// client.lock_all(&["account:3", "account:7"])?.unlock()?;
    /// assert!(!client.fair_lock("account:3")?.is_locked()?);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error, each as of [`Guard::unlock`]. When one lock's server did not answer up to the
    /// [outage limit](crate::ClientBuilder::outage_limit), the rest are tried once each, and repeated in the background.
    pub fn unlock(mut self) -> Result<()> {
        release_all(std::mem::take(&mut self.guards), Effort::Persistent)
    }
}

impl<G: OneGuard> Drop for AllGuard<G> {
    fn drop(&mut self) {
        G::drop_all(std::mem::take(&mut self.guards));
        // The thread may hold a lock outside of this guard as well: that hold goes on, and keeps its share of the channel.
        self.first_loss.close();
    }
}

/// The guard of one lock, which an [`AllGuard`] has several of. Not exported.
pub trait OneGuard: Sized {
    #[doc(hidden)]
    fn hold(&self) -> &Hold;
    /// Releases all, the last one first.
    #[doc(hidden)]
    fn drop_all(guards: Vec<Self>);
}

impl OneGuard for Guard {
    fn hold(&self) -> &Hold {
        self
    }

    fn drop_all(guards: Vec<Guard>) {
        log_drop(release_all(guards, Effort::Once));
    }
}

/// Releases all, the last one first. After an error it goes on with the others.
fn release_all(mut guards: Vec<Guard>, mut effort: Effort) -> Result<()> {
    let _here = guards.first().map(|first| first.shared.config.clock.attend());
    // All holds are given up at once: a hold whose lease ends while the server is told of other holds is not lost.
    let given_up: Vec<_> = guards.iter_mut().rev().map(Guard::give_up).collect();
    let mut result = Ok(());
    for hold in given_up {
        let told = hold.tell(effort);
        if let Err(Error::Unavailable { .. }) = told {
            effort = Effort::Once; // or the call would last an outage limit for each lock
        }
        result = result.and(told);
    }
    result
}

/// At a shutdown each hold is lost, and the call says what the program did.
fn ended_by(lost: Lost) -> Error {
    match lost.cause {
        LostCause::Shutdown => Error::Shutdown { lock: Some(lost.lock) },
        _ => Error::Lost(lost),
    }
}

/// Who owns the holds and waits of a [`Lock`](crate::Lock): [`ThisThread`], or an [`Owner`]. No other type can implement it.
pub trait Ownership: Identity {}

/// Not exported, so that [`Ownership`] is sealed.
pub trait Identity: Clone + Debug + UnwindSafe + RefUnwindSafe {
    /// A marker that decides whether guards and requests are `Send`.
    type Mobility: Debug + UnwindSafe + RefUnwindSafe;

    /// The id of this owner at `client`.
    fn owner_id(&self, client: ClientId) -> OwnerId;
}

/// The thread that makes a call is the owner. Guards and requests stay on their thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThisThread;

impl Ownership for ThisThread {}

impl Identity for ThisThread {
    type Mobility = StaysOnItsThread;

    fn owner_id(&self, client: ClientId) -> OwnerId {
        this_thread(client)
    }
}

/// Makes a type `!Send`, and nothing else, without unsafe code.
#[derive(Debug)]
pub struct StaysOnItsThread(
    PhantomData<
        dyn BoundToItsThread_in_a_task_use_to_async_else_an_Owner + Sync + Unpin + UnwindSafe + RefUnwindSafe,
    >,
);

/// Never implemented. The compiler's error begins with this name when a guard or request is sent to another thread.
#[allow(
    non_camel_case_types,
    reason = "the compiler shows it in place of an explanation, which has names of this crate"
)]
trait BoundToItsThread_in_a_task_use_to_async_else_an_Owner {}

/// An identity that is not a thread, for [`Lock::owned_by`](crate::Lock::owned_by): its guards and requests may move
/// between threads. Made by [`Client::new_owner`](crate::Client::new_owner), and good for that client only. Clones are
/// one owner.
#[derive(Clone, Debug)]
pub struct Owner(OwnerId);

impl Owner {
    pub(crate) fn new(client: ClientId) -> Owner {
        Owner(OwnerId::of(client, next_number()))
    }

    /// The id as it stands at the server.
    pub fn id(&self) -> &OwnerId {
        &self.0
    }
}

impl Ownership for Owner {}

impl Identity for Owner {
    type Mobility = ();

    fn owner_id(&self, _: ClientId) -> OwnerId {
        self.0.clone()
    }
}

fn this_thread(client: ClientId) -> OwnerId {
    // Without a destructor, so that it can be used while a thread ends. Never reused, unlike the system's thread ids.
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    let number = match NUMBER.get() {
        0 => {
            let number = next_number();
            NUMBER.set(number);
            number
        }
        number => number,
    };
    // Spelled out once: most threads lock again and again with one client. While a thread ends the cache is already
    // gone, and the id is spelled out each time.
    thread_local!(static LATEST: RefCell<Option<(ClientId, OwnerId)>> = const { RefCell::new(None) });
    let spell = || OwnerId::of(client, number);
    let cached = LATEST.try_with(|latest| {
        let mut latest = latest.borrow_mut();
        match &*latest {
            Some((of, owner)) if *of == client => owner.clone(),
            _ => latest.insert((client, spell())).1.clone(),
        }
    });
    cached.unwrap_or_else(|_| spell())
}

/// Threads and owners share one counter for the whole process.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1); // 0 is a thread that has none yet
    NEXT.fetch_add(1, Ordering::Relaxed)
}
