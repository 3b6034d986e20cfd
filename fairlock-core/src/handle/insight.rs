//! What an operator does with a lock: inspects it, takes it from its holder, takes a place from a waiter.

use std::ops::Range;

use crate::backend::{
    Answer, Backend, ForceReleased, Hold, LockState, MOST_INSPECTED, Place, RequestId, Waiter, Withdrawn,
};
use crate::error::{Error, Result};
use crate::handle::caller::Caller;
use crate::handle::lock::Lock;
use crate::handle::owner::Ownership;
use crate::ids::OwnerId;

/// How many waiters `inspect` lists.
const FIRST_OF_THE_QUEUE: u64 = 100;

impl<O: Ownership> Lock<O> {
    /// Whether any owner holds the lock. One round trip, which does not read the queue.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn is_locked(&self) -> Result<bool> {
        self.inspect_queue(0..0).map(|state| state.holder().is_some())
    }

    /// The holder of the lock, the length of its queue, and the first 100 waiters. One round trip.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// let state = lock.inspect()?;
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
        self.ask(|backend| backend.inspect(&self.0.lock, part.start..end.max(part.start)))
    }

    /// The rank of an owner in the queue (0 is next) and its place. Reads the queue from the tail, 500 waiters in one round
    /// trip, until the owner is found: no call keeps the server busy, but a queue of thousands takes many round trips.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn find_waiter(&self, owner: &OwnerId) -> Result<Option<(u64, Waiter)>> {
        let mut length = self.inspect_queue(0..0)?.queue_length;
        let mut end = length;
        while end > 0 {
            // From the tail to the head: when waiters are granted or leave between two calls, the rest move up, into the part
            // that is still to be read. In a search from the head a waiter could slip past.
            let start = end.saturating_sub(MOST_INSPECTED);
            let state = self.inspect_queue(start..end)?;
            if let Some(found) = find_in(state.queue, start, owner) {
                return Ok(Some(found));
            }
            (end, length) = (start, state.queue_length);
        }
        // A waiter that was passed over as absent between two calls has moved from the unread part to the tail.
        let start = length.saturating_sub(MOST_INSPECTED);
        Ok(find_in(self.inspect_queue(start..length)?.queue, start, owner))
    }

    /// Takes the lock from its holder; false if the lock is free. The queue stays, and the first waiter gets the lock. A holder
    /// that is a fairlock client is told at once, any other holder by its next renewal.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let store = MemoryBackend::new();
    /// # let (client, operator) = (Client::new(store.clone())?, Client::new(store)?);
    /// let guard = client.fair_lock("lock:orders")?.lock()?;
    /// assert!(operator.fair_lock("lock:orders")?.force_unlock()?);
    /// println!("{}", guard.lost().recv().expect("the loss is told"));
    /// assert!(guard.is_lost());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect). After [`Error::Unavailable`] the lock may still be taken for
    /// [`Backend::attempt_ttl`].
    pub fn force_unlock(&self) -> Result<bool> {
        let answer = self.ask(|backend| backend.force_release(&self.0.lock))?;
        Ok(answer == ForceReleased::Taken)
    }

    /// Takes what one holder has, as [`inspect`](Self::inspect) lists the holders. Returns false if this owner holds nothing, or is a
    /// peer without tokens, such as Redisson. Two round trips.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let mails = client.semaphore("mails", 5)?;
    /// let (stuck, other) = (mails.acquire()?, mails.acquire()?);
    /// assert!(mails.force_unlock_of(stuck.owner())?);
    /// assert!(stuck.is_lost() && !other.is_lost());
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`force_unlock`](Self::force_unlock).
    pub fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool> {
        let state = self.inspect_queue(0..0)?;
        let Some(holder) = state.holders.iter().find(|holder| holder.owner == *owner) else {
            return Ok(false);
        };
        let Some((request, token)) = holder.request.zip(holder.token) else { return Ok(false) };
        let hold = Hold::new(&self.0.lock, owner, request, token);
        Ok(self.ask(|backend| backend.take_hold(&hold))? == ForceReleased::Taken)
    }

    fn ask<A>(&self, ask: impl FnOnce(&dyn Backend) -> Answer<A>) -> Result<A> {
        let Caller { shared, lock, .. } = &self.0;
        shared.config.check_running(Some(&lock.name))?;
        ask(&*shared.backend).map_err(|error| Error::about(&lock.name, error))
    }

    /// Moves a waiter, as listed by [`inspect`](Self::inspect) or [`find_waiter`](Self::find_waiter), to the tail of the queue.
    /// Returns false if the waiter already holds the lock or is not in the queue.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let store = MemoryBackend::new();
    /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
    /// let lock = client.fair_lock("lock:orders")?;
    /// let guard = lock.lock()?;
    /// let request = other.fair_lock("lock:orders")?.request()?;
    /// let waiter = &lock.inspect()?.queue[0];
    /// assert!(lock.kick(waiter)?);
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// One round trip if the waiter has a request number; otherwise (Redisson's queue keeps none) the waiter is searched for first.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn kick(&self, waiter: &Waiter) -> Result<bool> {
        let request = match waiter.request {
            Some(request) => request,
            None => match self.find_waiter(&waiter.owner)? {
                Some((_, found)) => found.request.unwrap_or(RequestId::new(0)),
                None => return Ok(false),
            },
        };
        let place = Place::new(&self.0.lock, &waiter.owner, request);
        Ok(self.ask(|backend| backend.kick(&place))? == Withdrawn::Left)
    }
}

fn find_in(queue: Vec<Waiter>, start: u64, owner: &OwnerId) -> Option<(u64, Waiter)> {
    (start..).zip(queue).find(|(_, waiter)| waiter.owner == *owner)
}
