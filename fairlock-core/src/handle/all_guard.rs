//! The holds of several locks in the program's hands, taken together and released together.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::cancel::Cancel;
use crate::error::{Error, Lost, Result};
use crate::flow::Effort;
use crate::handle::guard::{AnyGuard, Guard, LockGuard, log_drop};
use crate::ids::FencingToken;
use crate::losses::FirstLoss;
use crate::shared::Shared;

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
pub struct AllGuard {
    shared: Arc<Shared>,
    /// The guards, in the order of their names, which is the order in which the locks were taken.
    guards: Vec<LockGuard>,
    first_loss: FirstLoss,
    lost: Receiver<Lost>,
}

impl AllGuard {
    /// A guard that holds nothing yet.
    pub(super) fn new(shared: Arc<Shared>) -> AllGuard {
        let (first_loss, lost) = FirstLoss::new();
        AllGuard { shared, guards: Vec::new(), first_loss, lost }
    }

    /// Adds `guard`, whose name comes after those before.
    pub(super) fn add(&mut self, guard: LockGuard) {
        guard.claim.tell_when_lost(&self.first_loss);
        self.guards.push(guard);
    }

    /// A cancel that is triggered when a hold is lost.
    pub(super) fn cancelled_by_loss(&self) -> &Cancel {
        self.first_loss.cancel()
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
        self.guards.iter().map(LockGuard::name)
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
        self.guards.get(at).map(LockGuard::token)
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
        self.guards.iter().map(LockGuard::valid_for).min().unwrap_or(Duration::ZERO)
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
        self.guards.iter().try_for_each(LockGuard::check)
    }

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
        let claims: Vec<_> = self.guards.iter().map(|guard| &guard.claim).collect();
        self.shared.parts().renew_now(&claims)
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
        self.release(Effort::Persistent)
    }

    fn release(&mut self, mut effort: Effort) -> Result<()> {
        let _here = self.shared.config.clock.attend();
        let mut guards = std::mem::take(&mut self.guards);
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
}

impl Drop for AllGuard {
    fn drop(&mut self) {
        log_drop(self.release(Effort::Once));
        // The thread may hold a lock outside of this guard as well: that hold goes on, and keeps its share of the channel.
        self.first_loss.close();
    }
}

impl AnyGuard for AllGuard {}
