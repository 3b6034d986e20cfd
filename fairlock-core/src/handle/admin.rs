//! What an operator does to a lock that others hold or wait for: looks at the lock, and takes it from its holders. For threads, and for
//! tasks.

use std::ops::Range;
use std::sync::Arc;

use super::guard::Ownership;
use super::lock::Lock;
use super::tasks::{AsyncLock, Ends, asked};
use crate::backend::{Answer, Backend, ForceReleased, Hold, LockId, LockState, MOST_INSPECTED};
use crate::error::{Error, Result};
use crate::ids::{LockKind, LockName, OwnerId};
use crate::shared::Handles;

/// How many waiters `inspect` lists.
const FIRST_OF_THE_QUEUE: u64 = 100;

/// An operator's calls about one lock. [`Client::admin`](crate::Client::admin) makes one for a name, whatever kind of lock has it, and
/// each handle has one for its lock ([`Lock::admin`]). Cheap to clone.
///
/// No call waits for the lock, and none is about holds or requests of this client alone. Where only the name is known a call may need
/// one round trip more, or two for a read-write lock or a semaphore.
#[derive(Clone, Debug)]
pub struct Admin {
    shared: Arc<Handles>,
    name: LockName,
    /// None if each call has to find it.
    kind: Option<LockKind>,
}

impl Admin {
    pub(super) fn new(shared: &Arc<Handles>, name: LockName, kind: Option<LockKind>) -> Admin {
        Admin { shared: Arc::clone(shared), name, kind }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The same calls for tasks.
    pub fn to_async(&self) -> AsyncAdmin {
        AsyncAdmin { admin: self.clone(), _ends: Ends::new(&self.shared) }
    }

    /// The holders of the lock and how many units each has (a writer `u32::MAX`, a reader 1), the length of its queue, and the first
    /// 100 waiters. One round trip.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// let state = lock.admin().inspect()?;
    /// let holder = state.holder().cloned().expect("the guard is there");
    /// assert_eq!((&holder.owner, holder.token), (guard.owner(), Some(guard.token())));
    /// assert_eq!(state.queue_length, 0);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`], [`Error::Corrupt`], [`Error::Unsupported`], [`Error::Shutdown`].
    pub fn inspect(&self) -> Result<LockState> {
        self.inspect_queue(0..FIRST_OF_THE_QUEUE)
    }

    /// [`inspect`](Self::inspect) for another part of the queue: `100..200` are the second hundred. One call reads at most 500
    /// waiters, and so never keeps the server busy, however many wait. For more, ask again from `part.start + queue.len()` until
    /// the list is empty; waiters may move up between two calls.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn inspect_queue(&self, part: Range<u64>) -> Result<LockState> {
        let end = part.end.min(part.start.saturating_add(MOST_INSPECTED));
        let part = part.start..end.max(part.start);
        let look_as = |kind| {
            let lock = LockId::new(self.name.clone(), kind);
            self.ask(|backend| backend.inspect(&lock, part.clone()))
        };
        match look_as(self.kind.unwrap_or(LockKind::Fair)) {
            // It can have several holders. A look as a read-write lock sees semaphores, too.
            Err(Error::Mismatch { .. })
                if self.kind.is_none() && self.shared.backend.supports(LockKind::ReadWrite) =>
            {
                look_as(LockKind::ReadWrite)
            }
            seen => seen,
        }
    }

    /// Takes the lock from its holders; false if the lock is free. The queue stays, and the first waiter gets the lock. A holder
    /// that is a fairlock client is told at once, any other holder by its next renewal.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let store = MemoryBackend::new();
    /// # let (client, operator) = (Client::new(store.clone())?, Client::new(store)?);
    /// let guard = client.fair_lock("lock:orders")?.lock()?;
    /// assert!(operator.admin("lock:orders")?.force_unlock()?);
    /// println!("{}", guard.lost().recv().expect("the loss is told"));
    /// assert!(guard.is_lost());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect). After [`Error::Unavailable`] the lock may still be taken for
    /// [`Backend::attempt_ttl`].
    pub fn force_unlock(&self) -> Result<bool> {
        let lock = self.lock()?;
        let answer = self.ask(|backend| backend.force_release(&lock))?;
        Ok(answer == ForceReleased::Taken)
    }

    /// Takes what one holder has, as [`inspect`](Self::inspect) lists the holders; all other holders keep their units. Returns false if
    /// this owner holds nothing, or is a peer without tokens, such as Redisson. Two round trips.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let mails = client.semaphore("mails", 5)?;
    /// let (stuck, other) = (mails.acquire()?, mails.acquire()?);
    /// assert!(mails.admin().force_unlock_of(stuck.owner())?);
    /// assert!(stuck.is_lost() && !other.is_lost());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`force_unlock`](Self::force_unlock).
    pub fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool> {
        let state = self.inspect_queue(0..0)?;
        let lock = self.seen(&state);
        let Some(holder) = state.holders.iter().find(|holder| holder.owner == *owner) else {
            return Ok(false);
        };
        let Some((request, token)) = holder.request.zip(holder.token) else { return Ok(false) };
        let hold = Hold::new(&lock, owner, request, token);
        Ok(self.ask(|backend| backend.take_hold(&hold))? == ForceReleased::Taken)
    }

    fn ask<A>(&self, ask: impl FnOnce(&dyn Backend) -> Answer<A>) -> Result<A> {
        self.shared.config.check_running(Some(&self.name))?;
        ask(&*self.shared.backend).map_err(|error| Error::about(&self.name, error))
    }

    /// The lock, as the kind that it is now.
    fn lock(&self) -> Result<LockId> {
        match self.kind {
            Some(kind) => Ok(LockId::new(self.name.clone(), kind)),
            None => Ok(self.seen(&self.inspect_queue(0..0)?)),
        }
    }

    /// The lock, as the kind that a look shows if none was given. A name that nobody uses is any kind.
    fn seen(&self, state: &LockState) -> LockId {
        let kind = self.kind.unwrap_or(match state.capacity {
            None | Some(1) => LockKind::Fair,
            Some(u32::MAX) => LockKind::ReadWrite,
            Some(permits) => LockKind::Semaphore { permits },
        });
        LockId::new(self.name.clone(), kind)
    }
}

/// [`Admin`] for tasks. A call begins with the first poll of its future, and goes on if the future is dropped.
#[derive(Clone, Debug)]
pub struct AsyncAdmin {
    admin: Admin,
    _ends: Ends,
}

impl AsyncAdmin {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.admin.name()
    }

    /// As [`Admin::inspect`].
    ///
    /// # Errors
    /// As [`Admin::inspect`].
    pub async fn inspect(&self) -> Result<LockState> {
        self.ask(Admin::inspect).await
    }

    /// As [`Admin::inspect_queue`].
    ///
    /// # Errors
    /// As [`Admin::inspect`].
    pub async fn inspect_queue(&self, part: Range<u64>) -> Result<LockState> {
        self.ask(|admin| admin.inspect_queue(part)).await
    }

    /// As [`Admin::force_unlock`].
    ///
    /// # Errors
    /// As [`Admin::force_unlock`].
    pub async fn force_unlock(&self) -> Result<bool> {
        self.ask(Admin::force_unlock).await
    }

    /// As [`Admin::force_unlock_of`].
    ///
    /// # Errors
    /// As [`Admin::force_unlock`].
    pub async fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool> {
        let owner = owner.clone();
        self.ask(move |admin| admin.force_unlock_of(&owner)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Admin) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let admin = self.admin.clone();
        asked(&self.admin.shared, &self.admin.name, move || call(&admin)).await
    }
}

impl<O: Ownership> Lock<O> {
    /// What an operator does to this lock, also while others hold it. Makes no round trip.
    pub fn admin(&self) -> Admin {
        let LockId { name, kind } = self.0.lock.clone();
        Admin::new(&self.0.shared, name, Some(kind))
    }
}

impl AsyncLock {
    /// As [`Lock::admin`].
    pub fn admin(&self) -> AsyncAdmin {
        Lock(self.0.clone()).admin().to_async()
    }
}
