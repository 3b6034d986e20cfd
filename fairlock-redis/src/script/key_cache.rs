//! The keys of the locks in use, so that a lock that is used again and again is spelled once.

use std::sync::Arc;

use fairlock_core::backend::{BackendError, LockId};
use parking_lot::Mutex;

use super::keys::Keys;

/// How many locks' keys are kept: some hundred bytes each, and at most four kilobytes.
const SLOTS: usize = 1024;

/// A lock's name decides its slot, and the latest lock of a slot stays there. So nothing has to be evicted, threads with
/// different locks hardly ever meet at a mutex, and among many more locks than slots it costs no more than no cache: some
/// allocations for each use.
pub(crate) struct KeyCache {
    slots: Box<[Mutex<Option<Arc<Keys>>>]>,
}

impl Default for KeyCache {
    fn default() -> KeyCache {
        KeyCache { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }
}

impl KeyCache {
    /// # Errors
    /// As [`Keys::of`].
    pub(crate) fn of(&self, lock: &LockId) -> Result<Arc<Keys>, BackendError> {
        let slot = usize::try_from(lock.name.hash_code() % SLOTS as u64).unwrap_or(0);
        let mut kept = self.slots[slot].lock();
        match &*kept {
            Some(keys) if keys.are_of(lock) => Ok(Arc::clone(keys)),
            _ => Ok(Arc::clone(kept.insert(Arc::new(Keys::of(lock)?)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::{LockKind, LockName};

    fn of(kept: &KeyCache, name: &str) -> Result<Arc<Keys>, BackendError> {
        kept.of(&LockId::new(LockName::new(name).unwrap(), LockKind::Fair))
    }

    /// A lock in use is spelled once, and no lock gets the keys of another lock.
    #[test]
    fn a_lock_in_use_is_spelled_once_and_keeps_its_keys() {
        let kept = KeyCache::default();
        assert!(Arc::ptr_eq(&of(&kept, "a").unwrap(), &of(&kept, "a").unwrap()));
        for round in 0..2 {
            for n in 0..3 * SLOTS {
                let name = format!("lock:{n}");
                assert_eq!(of(&kept, &name).unwrap().lock(), name, "round {round}");
            }
        }
        assert!(kept.slots.iter().filter(|slot| slot.lock().is_some()).count() > SLOTS / 2);
        assert!(of(&kept, "fairlock_queue:{a}").is_err());
    }
}
