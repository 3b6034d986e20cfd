//! What all clones of a backend share: the clock, the locks in shards, the subscribed clients, and the planned faults.
//!
//! | state | its mutex is taken by |
//! | --- | --- |
//! | a shard: the locks whose names hash to it, and their sequence | each call, for its lock |
//! | [`WakeUps`]: subscribed clients, those that are cut off | a call that holds a shard, to hand a lock on; or alone |
//! | [`Plans`]: the planned faults | a call that holds a shard, once `Faults` was used; or alone |
//!
//! A thread holds one shard at most, and takes none while it holds another mutex. No mutex is held while a wake-up is
//! delivered. What can meet:
//!
//! - Two calls for one lock: one after the other, since the name tells the shard.
//! - A renewal of locks in several shards: one shard after the other. Each lock has its own moment.
//! - A client that unsubscribes or is cut off after a lock was handed to its waiter and before the wake-up is queued: as if
//!   that message was lost.
//! - A fault that is planned, or a client that is cut off, while a call is under way: see [`Shared::inject`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use fairlock_core::{Clock, LockName};
use fairlock_rules::Moment;

use crate::plans::Plans;
use crate::store::Store;
use crate::wake_ups::WakeUps;

/// Many more than a machine has cores: then two threads that run at the same time rarely meet in one.
const SHARDS: usize = 64;

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    made: Instant,
    /// The wall clock then.
    made_at: Moment,
    shards: [Shard; SHARDS],
    pub(crate) wake_ups: Arc<WakeUps>,
    pub(crate) plans: Mutex<Plans>,
    /// `Faults` was used. Until then no call looks for faults.
    has_faults: AtomicBool,
}

/// Aligned, so that no two shards share a line of a processor's cache.
#[repr(align(64))]
struct Shard(Mutex<Store>);

impl Shared {
    pub(crate) fn new(clock: Clock) -> Shared {
        // A wall clock before 1970 is no reason to fail: tokens then start low, and still grow.
        let made_at: Duration = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wake_ups = Arc::new(WakeUps::default());
        let shard = |_| Shard(Mutex::new(Store::new(Arc::clone(&wake_ups))));
        Shared {
            made: clock.now(),
            made_at,
            clock,
            shards: std::array::from_fn(shard),
            wake_ups,
            plans: Mutex::default(),
            has_faults: AtomicBool::new(false),
        }
    }

    /// The store's time. Read under the lock's shard, the time never goes back from one call to the next.
    pub(crate) fn now(&self) -> Moment {
        self.made_at + self.clock.now().saturating_duration_since(self.made)
    }

    /// The number of a lock's shard. From the middle of the hash: its ends find the place in the shard's table.
    pub(crate) fn shard_of(lock: &LockName) -> usize {
        (lock.hash_code() >> 32) as usize % SHARDS
    }

    /// The shard with this number.
    pub(crate) fn shard(&self, number: usize) -> MutexGuard<'_, Store> {
        self.shards[number].0.lock()
    }

    /// The shard of this lock.
    pub(crate) fn store_of(&self, lock: &LockName) -> MutexGuard<'_, Store> {
        self.shard(Shared::shard_of(lock))
    }

    /// Whether calls have to look for faults. Ask with the lock's shard held.
    pub(crate) fn has_faults(&self) -> bool {
        self.has_faults.load(Ordering::SeqCst)
    }

    /// A test plans a fault, or cuts a client off. When this returns, each call that was not concerned has been carried out: it
    /// looked for faults with its shard held, and all shards have been free since.
    pub(crate) fn inject(&self, fault: impl FnOnce()) {
        fault();
        self.has_faults.store(true, Ordering::SeqCst);
        for number in 0..SHARDS {
            drop(self.shard(number));
        }
    }

    /// Operates on a shard, releases it, and *then* delivers the wake-ups: a sink is foreign code, and may take a mutex under
    /// which another thread calls this backend.
    pub(crate) fn then_deliver<T>(
        &self,
        mut store: MutexGuard<'_, Store>,
        operate: impl FnOnce(&mut Store) -> T,
    ) -> T {
        let answer = operate(&mut store);
        let outgoing = store.take_outgoing();
        drop(store);
        outgoing.iter().for_each(|wake_up| self.wake_ups.deliver(wake_up));
        answer
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.0.lock().is_empty())
    }

    #[cfg(test)]
    pub(crate) fn is_any_locked(&self) -> bool {
        self.shards.iter().any(|shard| shard.0.is_locked()) || self.wake_ups.is_locked()
    }
}
