//! Several locks at once: taken in the order of their names, and all given back if one can't be had.

use std::time::{Duration, Instant};

use super::Client;
use crate::backend::Wait;
use crate::error::{Error, Result};
use crate::handle::all_guard::AllGuard;
use crate::handle::caller::wait_of;
use crate::handle::guard::TryLock;
use crate::handle::lock::Lock;

impl Client {
    /// Waits for all of these locks, without a time limit, and holds them by one guard. They are fair locks, and excluded by every
    /// other handle of their names.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let (from, to) = ("account:7", "account:3");
    /// let guard = client.lock_all(&[from, to])?; // another thread may name them the other way round
    /// guard.check()?; // between two steps: stops if any of them is lost
    /// guard.unlock()?; // or drop it
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// - **All or none.** The locks are taken in turn, in the order of the bytes of their names, and all are given back if one
    ///   can't be had. A repeated name counts once.
    /// - **It holds what it has while it waits** for the next. So a lock of the list may be kept from others for as long as a later
    ///   one is busy. If one that it has is lost meanwhile, the call ends at once with [`Error::Lost`].
    /// - **Threads that use nothing but `lock_all`, one guard at a time, never deadlock**, whatever the order of the names, and
    ///   even with several clients: no thread waits for a lock while it holds a lock of a later name.
    /// - **What may deadlock:** a thread that holds a lock, by [`lock`](Lock::lock), another guard of `lock_all` or a granted request,
    ///   and then waits for one of an earlier name. If both names are in the list that is [`Error::Misuse`]; otherwise the client can't
    ///   know it, so don't wait for more locks while you hold some. Two owners, also two clients, of one thread wait for each other
    ///   in the same way.
    /// - The holds belong to the calling thread. If the thread already holds one of the locks, it re-enters that lock, by the
    ///   terms of the earlier hold.
    ///
    /// # Errors
    /// The errors of [`Lock`]; and
    /// - [`Error::InvalidConfig`] for an empty list: a guard that holds nothing would keep no other owner out.
    /// - [`Error::Misuse`] when the thread holds a lock of the list, but not one of an earlier name.
    /// - [`Error::Lost`] when a hold was lost before the last lock was granted.
    ///
    /// After an error, a panic, or [`Client::shutdown`] in the middle nothing is held that was not held before. It is given back as by
    /// a drop of the guards: by one attempt each, which is repeated in the background if the server does not answer.
    pub fn lock_all(&self, names: &[impl AsRef<str>]) -> Result<AllGuard> {
        loop {
            // Busy is only a lock that the thread held, and that was lost in this moment.
            if let TryLock::Granted(guard) = self.obtain_all(names, Wait::Forever)? {
                return Ok(guard);
            }
        }
    }

    /// As [`lock_all`](Self::lock_all), but makes one attempt for each lock, and waits for none.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// use fairlock::TryLock;
    ///
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let theirs = other.fair_lock("account:7")?.lock()?;
    /// assert!(matches!(client.try_lock_all(&["account:3", "account:7"])?, TryLock::Busy(_)));
    /// assert!(!client.fair_lock("account:3")?.is_locked()?); // all or none
    /// theirs.unlock()?;
    /// assert!(matches!(client.try_lock_all(&["account:3", "account:7"])?, TryLock::Granted(_)));
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock_all`](Self::lock_all).
    pub fn try_lock_all(&self, names: &[impl AsRef<str>]) -> Result<TryLock<AllGuard>> {
        self.obtain_all(names, Wait::No)
    }

    /// As [`lock_all`](Self::lock_all), but waits at most `timeout` for all of them together; zero is
    /// [`try_lock_all`](Self::try_lock_all). What it has by then is released.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend, TryLock};
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let theirs = other.fair_lock("account:7")?.lock()?;
    /// let names = ["account:3", "account:7"];
    /// assert!(matches!(client.try_lock_all_for(&names, Duration::from_millis(20))?, TryLock::Busy(_)));
    /// assert!(!client.fair_lock("account:3")?.is_locked()?);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock_all`](Self::lock_all).
    pub fn try_lock_all_for(
        &self,
        names: &[impl AsRef<str>],
        timeout: Duration,
    ) -> Result<TryLock<AllGuard>> {
        self.obtain_all(names, wait_of(timeout))
    }

    /// Every way out but the last drops `all`, which gives back what it has.
    fn obtain_all(&self, names: &[impl AsRef<str>], wait: Wait) -> Result<TryLock<AllGuard>> {
        let _here = self.0.config.clock.attend();
        let deadline = self.deadline(wait);
        let locks = self.in_order(names)?;
        let held = held_in_order(&locks)?;
        let mut all = AllGuard::new();
        for (at, lock) in locks.iter().enumerate() {
            let wait = match deadline {
                // A re-entry. Were the hold lost since, a wait for it could deadlock with the later ones that are held.
                _ if at < held => Wait::No,
                Some(deadline) => wait_of(lock.0.time_to(deadline)),
                None => wait,
            };
            match lock.cancelled_by(all.first_loss().cancel()).0.obtain(wait) {
                Ok(TryLock::Granted(guard)) => {
                    guard.claim.tell_when_lost(all.first_loss());
                    all.add(guard);
                }
                Ok(TryLock::Busy(busy)) => return Ok(TryLock::Busy(busy)),
                Err(error) => return Err(all.ended(error)),
            }
        }
        all.complete()
    }

    pub(super) fn deadline(&self, wait: Wait) -> Option<Instant> {
        match wait {
            Wait::UpTo(time) => self.0.now().checked_add(time),
            Wait::No | Wait::Forever => None,
        }
    }

    /// The locks in the order of their names, each once.
    pub(super) fn in_order(&self, names: &[impl AsRef<str>]) -> Result<Vec<Lock>> {
        let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            let reason = "lock_all was given no names, and would keep no other owner out".to_owned();
            return Err(Error::InvalidConfig { reason, setting: None });
        }
        names.into_iter().map(|name| self.fair_lock(name)).collect()
    }
}

/// How many of the locks the thread holds; they have to be the first ones.
fn held_in_order(locks: &[Lock]) -> Result<usize> {
    let held = locks.iter().take_while(|lock| lock.is_held()).count();
    let [free, later @ ..] = &locks[held..] else { return Ok(held) };
    match later.iter().find(|lock| lock.is_held()) {
        Some(later) => {
            let reason = format!(
                "this thread holds {} already, which is taken after {}: to wait now can deadlock with a thread that takes both in the \
                 order of their names; take all locks by one lock_all",
                later.lock_name(),
                free.lock_name()
            );
            Err(Error::Misuse { lock: free.lock_name().clone(), reason })
        }
        None => Ok(held),
    }
}
