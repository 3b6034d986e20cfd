//! The outcome of an attempt that may end without the lock.

use crate::Result;
use crate::handle::guard::Guard;
use crate::handle::owner::Ownership;

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
    /// Other owners had the lock, or stood ahead in its line, until the wait was over.
    Busy,
}

impl<G: AnyGuard> TryLock<G> {
    /// The guard, if the lock was granted, or all locks were.
    #[must_use = "if it is unused what was granted is given back at once"]
    pub fn guard(self) -> Option<G> {
        match self {
            TryLock::Granted(guard) => Some(guard),
            TryLock::Busy => None,
        }
    }
}

/// What is no closure's result: a [`Guard`], or an [`AllGuard`](crate::AllGuard). Not exported.
pub trait AnyGuard {}

impl<O: Ownership> AnyGuard for Guard<O> {}

impl<O: Ownership> TryLock<Guard<O>> {
    /// Runs `f` under the lock, if it was granted.
    pub(super) fn finish<R>(self, f: impl FnOnce(&Guard<O>) -> R) -> Result<TryLock<R>> {
        match self {
            TryLock::Granted(guard) => guard.finish(f).map(TryLock::Granted),
            TryLock::Busy => Ok(TryLock::Busy),
        }
    }
}
