//! Which claim an owner has on a lock in this client: at most one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::claim::Claim;
use crate::{LockName, OwnerId};

#[derive(Default)]
pub(crate) struct Registry {
    claims: Mutex<Claims>,
    /// Lost claims with leaked holds: no guard reports the loss, so `unlock` has to.
    lost_leaks: Mutex<VecDeque<Arc<Claim>>>,
}

/// How many lost claims with leaked holds are remembered, the latest: a program that leaks holds and never unlocks them must
/// not grow.
const LOST_LEAKS: usize = 256;

/// Up to this many locks the map keeps the entries of idle locks: they are used again.
const FEW_LOCKS: usize = 64;

type Claims = HashMap<LockName, HashMap<OwnerId, Arc<Claim>>>;

impl Registry {
    pub(crate) fn get(&self, lock: &str, owner: &str) -> Option<Arc<Claim>> {
        self.claims.lock().get(lock)?.get(owner).cloned()
    }

    /// The owner's claim on the lock if `join` accepts it, else the one of `make`. Both run under the registry's mutex, so that
    /// two threads with one owner can't make two claims.
    pub(crate) fn get_or_make<T>(
        &self,
        lock: &LockName,
        owner: &OwnerId,
        join: impl FnOnce(&Arc<Claim>) -> Option<T>,
        make: impl FnOnce() -> (Arc<Claim>, T),
    ) -> T {
        let mut claims = self.claims.lock();
        let owners = match claims.get_mut(lock) {
            Some(owners) => owners,
            None => claims.entry(lock.clone()).or_default(),
        };
        match owners.entry(owner.clone()) {
            Entry::Occupied(mut found) => join(found.get()).unwrap_or_else(|| {
                let (claim, made) = make();
                found.insert(claim);
                made
            }),
            Entry::Vacant(free) => {
                let (claim, made) = make();
                free.insert(claim);
                made
            }
        }
    }

    /// Removes the claim, if it is still its owner's.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let mut claims = self.claims.lock();
        let Some(owners) = claims.get_mut(&claim.lock.name) else { return };
        if let Entry::Occupied(current) = owners.entry(claim.owner.clone())
            && Arc::ptr_eq(current.get(), claim)
        {
            current.remove();
            if owners.is_empty() && claims.len() > FEW_LOCKS {
                claims.remove(&claim.lock.name);
            }
        }
    }

    /// Replaces `old` by `new`, if that is still there.
    pub(crate) fn replace(&self, old: &Arc<Claim>, new: &Arc<Claim>) {
        let mut claims = self.claims.lock();
        let current = claims.get_mut(&old.lock.name).and_then(|owners| owners.get_mut(&old.owner));
        if let Some(current) = current.filter(|current| Arc::ptr_eq(current, old)) {
            *current = Arc::clone(new);
        }
    }

    /// Remembers the claim, if it is lost and has leaked holds.
    pub(crate) fn remember_lost_leak(&self, claim: &Arc<Claim>) {
        if !claim.has_lost_leak() {
            return;
        }
        let mut lost = self.lost_leaks.lock();
        if lost.iter().any(|other| Arc::ptr_eq(other, claim)) {
            return;
        }
        lost.truncate(LOST_LEAKS - 1);
        lost.push_front(Arc::clone(claim));
    }

    /// Takes one leaked hold of the owner that was lost, the latest one.
    pub(crate) fn take_lost_leak(&self, lock: &str, owner: &OwnerId) -> Option<Arc<Claim>> {
        let mut lost = self.lost_leaks.lock();
        let is_of_owner = |claim: &Arc<Claim>| claim.lock.name.as_str() == lock && claim.owner == *owner;
        let at = lost.iter().position(|claim| is_of_owner(claim) && claim.unleak().is_ok())?;
        let claim = Arc::clone(lost.get(at)?);
        if !claim.has_lost_leak() {
            lost.remove(at);
        }
        Some(claim)
    }

    /// Any claim on the lock that `is_wanted`, which must be quick.
    pub(crate) fn any(&self, lock: &str, is_wanted: impl Fn(&Claim) -> bool) -> Option<Arc<Claim>> {
        self.claims.lock().get(lock)?.values().find(|claim| is_wanted(claim)).cloned()
    }

    /// Calls `visit`, which must be quick, with every claim.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Claim>)) {
        self.claims.lock().values().flat_map(HashMap::values).for_each(&mut visit);
    }

    /// Whether any claim `is_it`, which must be quick.
    pub(crate) fn has(&self, is_it: impl Fn(&Claim) -> bool) -> bool {
        self.claims.lock().values().flat_map(HashMap::values).any(|claim| is_it(claim))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Claim>> {
        self.claims.lock().values().flat_map(HashMap::values).cloned().collect()
    }
}
