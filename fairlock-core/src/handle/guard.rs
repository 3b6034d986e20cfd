//! A hold in the user's hands: it is given back when it is dropped.

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use crate::claim::Claim;
use crate::flow::{Effort, Taken};
use crate::handle::{Owner, Ownership, ThisThread};
use crate::logging::log_safely;
use crate::shared::Shared;
use crate::{Error, FencingToken, Lost, OwnerId, Result};

/// A hold of a lock. [`LockGuard`] is that of a thread, [`OwnedGuard`] that of an [`Owner`].
///
/// Dropping it gives the lock back, as [`unlock`](Self::unlock) does, with one attempt: errors go to `log`, and
/// what the server did not answer is repeated in the background.
///
/// A thread's guard is, like std's, `Sync` and not `Send`:
///
/// ```compile_fail,E0277
/// fn needs_send<T: Send>(_: T) {}
/// fn give_away(guard: fairlock::LockGuard) {
///     needs_send(guard); // `StaysOnItsThread` can't be sent between threads; use an `Owner` and its `OwnedGuard`
/// }
/// ```
#[must_use = "if unused the lock is given back at once"]
#[derive(Debug)]
pub struct Guard<O: Ownership = ThisThread> {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    token: FencingToken,
    lost: OnceLock<Receiver<Lost>>,
    /// Unlocked back already, or leaked: the drop has nothing to do.
    spent: bool,
    mobility: PhantomData<O::Mobility>,
}

/// A hold of the thread that took it, which it can't leave.
pub type LockGuard = Guard<ThisThread>;

/// A hold of an [`Owner`]; it may move between threads.
pub type OwnedGuard = Guard<Owner>;

impl<O: Ownership> Guard<O> {
    pub(crate) fn new(shared: Arc<Shared>, taken: Taken) -> Guard<O> {
        let Taken { claim, token } = taken;
        Guard { shared, claim, token, lost: OnceLock::new(), spent: false, mobility: PhantomData }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.claim.lock.name.as_str()
    }

    /// Who holds it.
    pub fn owner(&self) -> &OwnerId {
        &self.claim.owner
    }

    /// The fencing token of this acquisition; the same for all guards of a re-entry.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// For how long the hold is certain without another renewal; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        let until = self.claim.valid_until();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.shared.now()))
    }

    /// Whether the hold is over, or may be: somebody else may have the lock. True before the server lets anybody
    /// else in, by this process's clock, even if no thread of ours has had a chance to notice.
    pub fn is_lost(&self) -> bool {
        self.valid_for() == Duration::ZERO
    }

    /// Hears of the loss of this hold, beside other channels in a `select!`: one message, then it is closed. It is
    /// also closed, without one, when the hold is given back.
    pub fn lost(&self) -> &Receiver<Lost> {
        self.lost.get_or_init(|| {
            let (sender, lost) = bounded(1);
            self.claim.tell_when_lost(sender);
            lost
        })
    }

    /// Asks the server now whether the hold is still ours, and prolongs it: a fixed lease begins anew, a longest hold
    /// stays what it is. Returns for how long it is certain.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Unavailable`] or [`Error::Denied`] when the server did not say, after which the
    /// hold is as valid as before.
    pub fn renew(&self) -> Result<Duration> {
        self.shared.renew_now(&self.claim)
    }

    /// Lets the others go first: if anybody waits, gives the lock to the next in line, takes a new place behind the
    /// last, and waits for it; the hold is a new one then, with a new token. Does nothing if nobody waits, if it is
    /// held more than once, or on a plain lock, which has no line. One round trip if nobody waits.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Unavailable`], [`Error::Denied`], [`Error::Shutdown`]: then the hold is over.
    pub fn bump(&mut self) -> Result<()> {
        match self.shared.bump(&self.claim) {
            Ok(None) => Ok(()),
            Ok(Some(taken)) => {
                // The old hold is over; this guard is of the new one.
                let guard = Guard::new(Arc::clone(&self.shared), taken);
                std::mem::replace(self, guard).spent = true;
                Ok(())
            }
            Err(error) => {
                self.spent = true;
                Err(error)
            }
        }
    }

    /// Gives the lock back. It tries again, up to the outage limit, while the server does not answer.
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold had ended before: the work under it may not have been alone.
    /// [`Error::Unavailable`] or [`Error::Denied`] when the server did not take it; it is repeated in the
    /// background, and at the latest the lease ends it.
    pub fn unlock(mut self) -> Result<()> {
        self.spent = true;
        self.shared.unlock(&self.claim, Effort::Persistent)
    }

    /// Keeps the hold without a guard: it is renewed until [`Lock::unlock`](crate::Lock::unlock) of the same
    /// owner) gives it back, its [`max_hold`](crate::Lock::max_hold) is over, or the client ends. It outlives its thread.
    pub fn leak(mut self) {
        self.spent = true;
        self.claim.leak();
        self.shared.registry.remember_lost_leak(&self.claim); // it may have been lost before
    }
}

impl<O: Ownership> Drop for Guard<O> {
    fn drop(&mut self) {
        if self.spent {
            return;
        }
        match self.shared.unlock(&self.claim, Effort::Once) {
            Ok(()) => {}
            // The loss itself has had its warning.
            Err(error @ (Error::Lost(_) | Error::NotHeld { .. })) => {
                log_safely(|| {
                    log::debug!(
                        target: "fairlock::release",
                        event = "dropped too late", error:% = error;
                        "a guard was dropped too late: {error}"
                    );
                });
            }
            // The watchdog repeats it, and warns if that fails too.
            Err(error) => log_safely(|| {
                log::debug!(
                    target: "fairlock::release",
                    event = "not answered", error:% = error;
                    "will be repeated: {error}"
                );
            }),
        }
    }
}

impl<O: Ownership> UnwindSafe for Guard<O> {}
impl<O: Ownership> RefUnwindSafe for Guard<O> {}
