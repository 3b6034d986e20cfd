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

/// The handle of a lock that several hold. `all` is the field with the lock that takes all units. The calls of a task's handle are
/// `async`, and `await` those of its lock.
macro_rules! as_lock {
    ($handle:ident $(<$o:ident: $bound:path>)?, all $all:ident $(, $async:tt $await:tt)?) => {
        impl $(<$o: $bound>)? $handle $(<$o>)? {
            /// The name of the lock.
            pub fn name(&self) -> &str {
                self.$all.name()
            }

            /// All holders and how many units each has (a writer `u32::MAX`, a reader 1), the length of the queue, and the first
            /// 100 waiters. One round trip.
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub $($async)? fn inspect(&self) -> crate::error::Result<crate::backend::LockState> {
                self.$all.inspect()$(.$await)?
            }

            /// As [`Lock::inspect_queue`](crate::Lock::inspect_queue).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub $($async)? fn inspect_queue(
                &self,
                part: std::ops::Range<u64>,
            ) -> crate::error::Result<crate::backend::LockState> {
                self.$all.inspect_queue(part)$(.$await)?
            }

            /// As [`Lock::find_waiter`](crate::Lock::find_waiter).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub $($async)? fn find_waiter(
                &self,
                owner: &crate::ids::OwnerId,
            ) -> crate::error::Result<Option<(u64, crate::backend::Waiter)>> {
                self.$all.find_waiter(owner)$(.$await)?
            }

            /// As [`Lock::kick`](crate::Lock::kick).
            ///
            /// # Errors
            /// As [`Lock::inspect`](crate::Lock::inspect).
            pub $($async)? fn kick(&self, waiter: &crate::backend::Waiter) -> crate::error::Result<bool> {
                self.$all.kick(waiter)$(.$await)?
            }

            /// Takes all units from their holders; false if no unit is held. See [`Lock::force_unlock`](crate::Lock::force_unlock).
            ///
            /// # Errors
            /// As [`Lock::force_unlock`](crate::Lock::force_unlock).
            pub $($async)? fn force_unlock(&self) -> crate::error::Result<bool> {
                self.$all.force_unlock()$(.$await)?
            }

            /// As [`Lock::force_unlock_of`](crate::Lock::force_unlock_of). All other holders keep their units.
            ///
            /// # Errors
            /// As [`Lock::force_unlock`](crate::Lock::force_unlock).
            pub $($async)? fn force_unlock_of(
                &self,
                owner: &crate::ids::OwnerId,
            ) -> crate::error::Result<bool> {
                self.$all.force_unlock_of(owner)$(.$await)?
            }
        }
    };
}

pub(super) use as_lock;
pub(super) use terms;
