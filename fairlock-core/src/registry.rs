//! Which claim an owner has on a lock in this client: at most one at a time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::claim::Claim;
use crate::{LockName, OwnerId};

#[derive(Default)]
pub(crate) struct Registry(Mutex<Claims>);

type Claims = HashMap<LockName, HashMap<OwnerId, Arc<Claim>>>;

impl Registry {
    pub(crate) fn get(&self, lock: &LockName, owner: &OwnerId) -> Option<Arc<Claim>> {
        self.0.lock().get(lock)?.get(owner).cloned()
    }

    /// The owner's claim on the lock, unless `replace` says that it is over: then the one that `make` makes. Both
    /// run under the registry's mutex, so that two threads with one owner can't make two claims.
    pub(crate) fn get_or_make<T>(
        &self,
        lock: &LockName,
        owner: &OwnerId,
        join: impl FnOnce(&Arc<Claim>) -> Option<T>,
        make: impl FnOnce() -> (Arc<Claim>, T),
    ) -> T {
        let mut claims = self.0.lock();
        if let Some(claim) = claims.get(lock).and_then(|owners| owners.get(owner))
            && let Some(joined) = join(claim)
        {
            return joined;
        }
        let (claim, made) = make();
        claims.entry(lock.clone()).or_default().insert(owner.clone(), claim);
        made
    }

    /// Forgets the claim, if it is still its owner's.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let mut claims = self.0.lock();
        let Some(owners) = claims.get_mut(&claim.lock.name) else { return };
        if owners.get(&claim.owner).is_some_and(|current| Arc::ptr_eq(current, claim)) {
            owners.remove(&claim.owner);
            if owners.is_empty() {
                claims.remove(&claim.lock.name);
            }
        }
    }

    /// Puts `new` where `old` is, if it is still there.
    pub(crate) fn replace(&self, old: &Arc<Claim>, new: &Arc<Claim>) {
        let mut claims = self.0.lock();
        let current = claims.get_mut(&old.lock.name).and_then(|owners| owners.get_mut(&old.owner));
        if let Some(current) = current.filter(|current| Arc::ptr_eq(current, old)) {
            *current = Arc::clone(new);
        }
    }

    /// Any claim on the lock that waits.
    pub(crate) fn any_waiting(&self, lock: &LockName) -> Option<Arc<Claim>> {
        self.0.lock().get(lock)?.values().find(|claim| claim.is_waiting()).cloned()
    }

    /// Looks at every claim; `look` must be quick.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&Arc<Claim>)) {
        self.0.lock().values().flat_map(HashMap::values).for_each(&mut look);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Claim>> {
        self.0.lock().values().flat_map(HashMap::values).cloned().collect()
    }
}
