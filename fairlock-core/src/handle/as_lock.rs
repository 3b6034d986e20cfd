//! What other handles do as a [`Lock`](crate::handle::lock::Lock) does: macros, so that it is written once.

/// The handle has a method `with_lock`, which changes its locks.
macro_rules! terms {
    ($handle:ident $(<$o:ident: $bound:path>)?) => {
        impl $(<$o: $bound>)? $handle $(<$o>)? {
            /// As [`Lock::fixed_lease`](crate::Lock::fixed_lease), for all holds by this handle.
            #[must_use]
            pub fn fixed_lease(&self, lease: std::time::Duration) -> Self {
                self.with_lock(|lock| lock.fixed_lease(lease))
            }

            /// As [`Lock::max_hold`](crate::Lock::max_hold), for all holds by this handle. A slow holder delays all waiters by this
            /// time at most.
            #[must_use]
            pub fn max_hold(&self, limit: std::time::Duration) -> Self {
                self.with_lock(|lock| lock.max_hold(limit))
            }

            /// As [`Lock::cancelled_by`](crate::Lock::cancelled_by), for all waits by this handle.
            #[must_use]
            pub fn cancelled_by(&self, cancel: &crate::cancel::Cancel) -> Self {
                self.with_lock(|lock| lock.cancelled_by(cancel))
            }
        }
    };
}

/// The handle of a lock that several hold. `all` is the field with the lock that takes all units.
macro_rules! as_lock {
    ($handle:ident $(<$o:ident: $bound:path>)?, all $all:ident) => {
        impl $(<$o: $bound>)? $handle $(<$o>)? {
            /// All holders and how many units each has (a writer `u32::MAX`, a reader 1), the length of the queue, and the first
            /// 100 waiters. One round trip.
            ///
            /// ```
            /// # use fairlock::{Client, MemoryBackend};
            /// # let store = MemoryBackend::new();
            /// # let (client, other) = (Client::new(store.clone())?, Client::new(store)?);
            /// let _reading = client.rw_lock("prices")?.read()?;
            /// let _too = other.rw_lock("prices")?.read()?;
            /// let state = client.rw_lock("prices")?.inspect()?;
            /// assert_eq!((state.holders.len(), state.taken()), (2, 2));
            /// # Ok::<(), fairlock::Error>(())
            /// ```
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub fn inspect(&self) -> crate::error::Result<crate::backend::LockState> {
                self.$all.inspect()
            }

            /// As [`Lock::inspect_queue`](crate::Lock::inspect_queue).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub fn inspect_queue(
                &self,
                part: std::ops::Range<u64>,
            ) -> crate::error::Result<crate::backend::LockState> {
                self.$all.inspect_queue(part)
            }

            /// As [`Lock::find_waiter`](crate::Lock::find_waiter).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub fn find_waiter(
                &self,
                owner: &crate::ids::OwnerId,
            ) -> crate::error::Result<Option<(u64, crate::backend::Waiter)>> {
                self.$all.find_waiter(owner)
            }

            /// As [`Lock::kick`](crate::Lock::kick).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub fn kick(&self, waiter: &crate::backend::Waiter) -> crate::error::Result<bool> {
                self.$all.kick(waiter)
            }

            /// Takes all units from their holders; false if no unit is held. See [`Lock::force_unlock`](crate::Lock::force_unlock).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub fn force_unlock(&self) -> crate::error::Result<bool> {
                self.$all.force_unlock()
            }

            /// Takes the units of one holder, as [`inspect`](Self::inspect) lists the holders; false if this owner holds none.
            /// All other holders keep their units. Two round trips.
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
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub fn force_unlock_of(&self, owner: &crate::ids::OwnerId) -> crate::error::Result<bool> {
                self.$all.take_from(owner)
            }
        }
    };
}

pub(super) use {as_lock, terms};
