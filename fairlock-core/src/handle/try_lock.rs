//! The outcome of an attempt that may end without the lock.

/// What [`Lock::try_lock`](crate::Lock::try_lock), the timed waits and [`Request::wait_for`](crate::Request::wait_for) return.
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
#[must_use = "if it was granted, dropping it gives the lock back at once: bind the guard"]
#[derive(Debug)]
pub enum TryLock<G> {
    /// The lock is held until this guard is dropped.
    Granted(G),
    /// Other owners had the lock, or stood ahead in its line, until the wait was over.
    Busy,
}

impl<G> TryLock<G> {
    /// The guard, if the lock was granted.
    #[must_use = "if it is unused the lock is given back at once"]
    pub fn guard(self) -> Option<G> {
        match self {
            TryLock::Granted(guard) => Some(guard),
            TryLock::Busy => None,
        }
    }
}
