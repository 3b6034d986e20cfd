//! The holds of several locks in the program's hands, taken together and released together.

use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::error::{Error, Lost, LostCause, Result};
use crate::flow::Effort;
use crate::handle::guard::{AnyGuard, LockGuard, OneGuard, TryLock, release_all, renew_all};
use crate::ids::FencingToken;
use crate::losses::FirstLoss;

/// The holds of all locks that [`Client::lock_all`](crate::Client::lock_all) has taken. If one hold is lost, the guard is lost.
///
/// Dropping it releases the locks, the last name first, each as the drop of a [`Guard`](crate::Guard) does: by one attempt, which is
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
#[must_use = "if unused the locks are released at once"]
#[derive(Debug)]
pub struct AllGuard<G: OneGuard = LockGuard> {
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
        self.guards.iter().map(OneGuard::name)
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
        let at = self.guards.binary_search_by(|guard| guard.name().cmp(name)).ok()?;
        self.guards.get(at).map(OneGuard::token)
    }

    /// How long all holds are certain without another renewal: the least [`Guard::valid_for`](crate::Guard::valid_for). Zero when a hold
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
        self.guards.iter().map(OneGuard::valid_for).min().unwrap_or(Duration::ZERO)
    }

    /// Whether any of the holds has ended or may have: another owner may have that lock.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// client.fair_lock("account:7")?.force_unlock()?; // by an operator
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
    /// client.fair_lock("account:7")?.force_unlock()?; // by an operator
    /// let Err(Error::Lost(lost)) = guard.check() else { panic!("it was lost") };
    /// assert_eq!(lost.lock.as_str(), "account:7");
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true, about the first lost lock in the order of names.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(OneGuard::check)
    }
}

impl AllGuard {
    /// A channel for a `select!`: one message when the first hold is lost, then the channel is closed. The drop or unlock of the guard
    /// closes the channel without a message.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let guard = client.lock_all(&["account:3", "account:7"])?;
    /// let lost = guard.lost().clone();
    /// client.fair_lock("account:7")?.force_unlock()?; // by an operator
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
    /// As [`Guard::renew`](crate::Guard::renew), about the first lock in the order of names that was not renewed. The other locks are
    /// renewed all the same, unless a hold was known to be lost before.
    pub fn renew(&self) -> Result<Duration> {
        renew_all(&self.guards)
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
    /// The first error, each as of [`Guard::unlock`](crate::Guard::unlock). When one lock's server did not answer up to the
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

impl<G: OneGuard> AnyGuard for AllGuard<G> {}

/// At a shutdown each hold is lost, and the call says what the program did.
fn ended_by(lost: Lost) -> Error {
    match lost.cause {
        LostCause::Shutdown => Error::Shutdown { lock: Some(lost.lock) },
        _ => Error::Lost(lost),
    }
}
