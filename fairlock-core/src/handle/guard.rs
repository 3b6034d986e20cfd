//! A hold in the program's hands, released by its drop; and the outcome of an attempt that may end without a hold.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::backend::RequestId;
use crate::claim::Claim;
use crate::error::{Busy, Error, Lost, Result};
use crate::flow::{Effort, GivenUp, Taken};
use crate::handle::owner::{Owner, Ownership, ThisThread};
use crate::ids::{FencingToken, OwnerId};
use crate::logging::log_line;
use crate::losses::FirstLoss;
use crate::shared::Handles;

/// A hold of a lock. A thread has a [`LockGuard`], an [`Owner`] an [`OwnedGuard`].
///
/// Dropping it releases the lock as [`unlock`](Self::unlock) does, but with one attempt: an error goes to `log`, and a
/// release without an answer is repeated in the background.
///
/// Like the guards of std, a thread's guard is `Sync` but not `Send`:
///
/// ```compile_fail,E0277
/// fn needs_send<T: Send>(_: T) {}
/// fn give_away(guard: fairlock::LockGuard) {
///     needs_send(guard); // `dyn BoundToItsThread_in_a_task_use_to_async_else_an_Owner` cannot be sent
/// }
/// ```
#[must_use = "if unused the lock is released at once"]
#[derive(Debug)]
pub struct Guard<O: Ownership = ThisThread> {
    shared: Arc<Handles>,
    pub(super) claim: Arc<Claim>,
    token: FencingToken,
    lost: OnceLock<Receiver<Lost>>,
    /// Whether the hold was released or leaked: then the drop has nothing to do.
    spent: bool,
    mobility: PhantomData<O::Mobility>,
}

/// A hold of a thread, which can't leave its thread.
pub type LockGuard = Guard<ThisThread>;

/// A hold of an [`Owner`]; it may move between threads.
pub type OwnedGuard = Guard<Owner>;

impl<O: Ownership> Guard<O> {
    pub(crate) fn new(shared: Arc<Handles>, taken: Taken) -> Guard<O> {
        let Taken { claim, token } = taken;
        Guard { shared, claim, token, lost: OnceLock::new(), spent: false, mobility: PhantomData }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.claim.lock.name.as_str()
    }

    /// The owner that holds the lock.
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
    /// # use fairlock::{Client, LockKind, LockName, MemoryBackend};
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
    /// lock.force_unlock()?; // by an operator
    /// assert!(matches!(guard.check(), Err(Error::Lost(_))));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true.
    pub fn check(&self) -> Result<()> {
        // The hold is marked as lost: a renewal that is answered just now does not revive it.
        self.shared.ledger.lose_if_expired(&self.claim).map_or(Ok(()), |lost| Err(Error::Lost(lost)))
    }

    /// A channel for a `select!`: one message when this hold is lost, then the channel is closed. A release closes the channel
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

    /// Gives up the guard, but has the server keep the lock taken until `at_least` after the grant: a job that took a moment must
    /// not run again on a host whose clock is late. In that time the lock has no holder, nothing is renewed, and the end of this
    /// client does not free the lock: [`force_unlock`](crate::Lock::force_unlock) does. Afterwards the next in the queue gets the
    /// lock, as after a dead holder. If the time is already over, this call is an [`unlock`](Self::unlock). One round trip.
    ///
    /// The time counts whatever the lease is: it may be longer than a [`fixed_lease`](crate::Lock::fixed_lease) or a
    /// [`max_hold`](crate::Lock::max_hold), and a longer lease is cut. It is at most 100 years.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend, TryLock};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("job:report")?;
    /// if let TryLock::Granted(guard) = lock.try_lock()? {
    ///     println!("reporting"); // each host tries, at about the same time
    ///     guard.keep_for(Duration::from_secs(600))?;
    /// }
    /// assert!(lock.is_locked()? && !lock.is_held());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold had ended before. [`Error::Misuse`] when the owner holds the lock by another guard as well: this
    /// guard is then unlocked, and the last one can keep the lock. [`Error::Unavailable`] after the
    /// [outage limit](crate::ClientBuilder::outage_limit): the lock may be kept, or end with its lease. [`Error::Denied`] when the
    /// server refuses, and [`Error::InvalidConfig`] when the backend can't keep locks: the lock ends with its lease.
    pub fn keep_for(mut self, at_least: Duration) -> Result<()> {
        self.spent = true;
        self.shared.parts().keep(&self.claim, at_least)
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

/// What a call returns whose work returned `result`, and whose release ended like this.
pub(super) fn finished<R>(released: Result<()>, result: R) -> Result<R> {
    match released {
        // The hold was certain at the end of the work. The release is repeated in the background.
        Ok(()) | Err(Error::Unavailable { .. } | Error::Denied { .. }) => Ok(result),
        Err(error) => Err(error),
    }
}

/// How the release of a dropped guard ended.
pub(super) fn log_drop(released: Result<()>) {
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
/// guard; [`Lock::try_with`](crate::Lock::try_with) and [`Lock::with_for`](crate::Lock::with_for) return it with the closure's
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
    /// The lock was granted, and is held until this guard is dropped. Or it was granted to `try_with` or `with_for`, and this is
    /// the closure's result.
    Granted(G),
    /// Other owners had the lock, or stood ahead in its queue, until the wait was over. After a slow wait [`Busy`](crate::Busy) says who.
    Busy(Busy),
}

impl<G: AnyGuard> TryLock<G> {
    /// The guard, if the lock was granted, or all locks were.
    #[must_use = "if it is unused what was granted is given back at once"]
    pub fn guard(self) -> Option<G> {
        match self {
            TryLock::Granted(guard) => Some(guard),
            TryLock::Busy(_) => None,
        }
    }
}

/// What is no closure's result: a [`Guard`], or an [`AllGuard`](crate::AllGuard). Not exported.
pub trait AnyGuard {}

impl<O: Ownership> AnyGuard for Guard<O> {}

/// The guard of one lock, which an [`AllGuard`](crate::AllGuard) has several of. Not exported.
pub trait OneGuard: Sized {
    #[doc(hidden)]
    fn name(&self) -> &str;
    #[doc(hidden)]
    fn valid_for(&self) -> Duration;
    #[doc(hidden)]
    fn check(&self) -> Result<()>;
    #[doc(hidden)]
    fn token(&self) -> FencingToken;
    /// Releases all, the last one first.
    #[doc(hidden)]
    fn drop_all(guards: Vec<Self>);
}

impl OneGuard for LockGuard {
    fn name(&self) -> &str {
        Guard::name(self)
    }

    fn valid_for(&self) -> Duration {
        Guard::valid_for(self)
    }

    fn check(&self) -> Result<()> {
        Guard::check(self)
    }

    fn token(&self) -> FencingToken {
        self.token
    }

    fn drop_all(guards: Vec<LockGuard>) {
        log_drop(release_all(guards, Effort::Once));
    }
}

/// Releases all, the last one first. After an error it goes on with the others.
pub(super) fn release_all(mut guards: Vec<LockGuard>, mut effort: Effort) -> Result<()> {
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

/// Renews all in one call.
pub(super) fn renew_all(guards: &[LockGuard]) -> Result<Duration> {
    let claims: Vec<_> = guards.iter().map(|guard| &guard.claim).collect();
    guards.first().map_or(Ok(Duration::ZERO), |first| first.shared.parts().renew_now(&claims))
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
