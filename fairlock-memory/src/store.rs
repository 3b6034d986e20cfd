//! The locks of one shard, by name. Pure: the time is given.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use fairlock_core::LockName;
use fairlock_rules::{LockEntry, Moment, OperationContext, Presence, StoreContext, WakeUp};

use crate::wake_ups::WakeUps;

/// With more locks than this, empty entries are not kept, and the shard looks for abandoned ones.
const FEW_LOCKS: usize = 16;

/// The locks of a shard that are held or waited for. Some empty entries are kept for reuse, and count as absent.
pub(crate) struct Store {
    locks: HashTable<(LockName, LockEntry)>,
    store_context: StoreContext,
    wake_ups: Arc<WakeUps>,
    /// With more locks than this, abandoned ones are removed.
    sweep_above: usize,
}

impl Store {
    pub(crate) fn new(wake_ups: Arc<WakeUps>) -> Store {
        Store {
            locks: HashTable::new(),
            store_context: StoreContext::default(),
            wake_ups,
            sweep_above: FEW_LOCKS,
        }
    }

    /// The wake-ups to deliver, in this order, once the shard's mutex is free.
    pub(crate) fn take_outgoing(&mut self) -> Vec<WakeUp> {
        self.store_context.take_wake_ups()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.iter().all(|(_, entry)| entry.is_empty())
    }

    /// Operates on a lock. A lock without an entry is like an empty entry, which is not kept if there are many locks.
    pub(crate) fn with<T>(
        &mut self,
        now: Moment,
        lock: &LockName,
        operate: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> T,
    ) -> T {
        let Store { locks, store_context, wake_ups, sweep_above } = self;
        let presence = |owner: &_| Presence::if_listening(wake_ups.is_subscribed(owner));
        let mut context = store_context.operation(lock, now, &presence);
        let are_few = locks.len() <= FEW_LOCKS;
        match locks.entry(lock.hash_code(), |(name, _)| name == lock, |(name, _)| name.hash_code()) {
            Entry::Occupied(mut found) => {
                let (_, entry) = found.get_mut();
                let answer = operate(entry, &mut context);
                if entry.is_empty() && !are_few {
                    found.remove();
                }
                answer
            }
            Entry::Vacant(free) => {
                let mut entry = LockEntry::default();
                let answer = operate(&mut entry, &mut context);
                if !entry.is_empty() {
                    free.insert((lock.clone(), entry));
                    if locks.len() > *sweep_above {
                        // Otherwise, only a call for the same lock removes what has expired: dead holders and waiters of
                        // locks that are never used again would stay for ever. Redis has TTLs for this.
                        locks.retain(|(_, entry)| now < entry.over_at());
                        *sweep_above = FEW_LOCKS.max(locks.len() * 2);
                    }
                }
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock_core::backend::{Acquire, LockId, Place, RequestId};
    use fairlock_core::{LockKind, OwnerId};

    use super::*;

    /// A lock of this number, held from then on for 30 s.
    fn hold(store: &mut Store, number: u64, since: u64) {
        let lock = LockId::new(LockName::new(&number.to_string()).unwrap(), LockKind::Fair);
        let owner = OwnerId::new("c:1");
        let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(number)), Duration::from_secs(30));
        store
            .with(Duration::from_secs(since), &lock.name, |entry, context| entry.acquire(context, &ask))
            .unwrap();
    }

    /// A shard looks for abandoned locks each time that it has doubled.
    #[test]
    fn a_shard_that_doubles_looks_for_abandoned_locks() {
        let mut store = Store::new(Arc::default());
        let mut looks = Vec::new();
        for number in 0..80 {
            let before = store.sweep_above;
            hold(&mut store, number, 0);
            looks.extend((store.sweep_above != before).then_some(store.locks.len()));
        }
        assert_eq!((looks, store.locks.len()), (vec![17, 35, 71], 80));
    }

    #[test]
    fn locks_that_their_holders_abandoned_do_not_pile_up() {
        let mut store = Store::new(Arc::default());
        for number in 0..10_000 {
            hold(&mut store, number, number);
        }
        // The last 30 are still held. When there are twice as many entries the others are removed.
        assert!(store.locks.len() <= FEW_LOCKS.max(2 * 30) + 1, "{}", store.locks.len());
    }
}
