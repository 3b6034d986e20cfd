//! Which claim an owner has on a lock in this client: at most one.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::{Mutex, MutexGuard};

use crate::claim::Claim;
use crate::ids::{LockName, OwnerId, hash_of};

/// Has shards by the lock's name, so that threads with different locks seldom wait for one another. No thread takes the mutexes of
/// two shards at once. A look at all claims sees one shard after the other; a claim stays in the shard of its lock.
pub(crate) struct Registry {
    shards: [Shard; SHARDS],
    /// Lost claims with leaked holds: no guard reports the loss, so `unlock` has to.
    lost_leaks: Mutex<VecDeque<Arc<Claim>>>,
}

/// How many lost claims with leaked holds are remembered, the latest: a program that leaks holds and never unlocks them must
/// not grow.
const LOST_LEAKS: usize = 256;

/// The number of shards: many more than a machine has cores, so that two threads rarely meet in one shard.
const SHARDS: usize = 64;

/// Up to this many locks a shard keeps the entries of idle locks: they are used again.
const FEW_LOCKS: usize = 4;

/// Aligned, so that no two shards share a line of a processor's cache.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<HashTable<LockClaims>>);

/// The claims on one lock, by owner.
struct LockClaims {
    lock: LockName,
    claims: HashTable<Arc<Claim>>,
}

/// Where the owner's claim on the lock is, or would be.
fn owners<'a>(
    locks: &'a mut HashTable<LockClaims>,
    lock: &LockName,
    owner: &OwnerId,
) -> Entry<'a, Arc<Claim>> {
    let of_lock = locks
        .entry(lock.hash_code(), |of_lock| of_lock.lock == *lock, |of_lock| of_lock.lock.hash_code())
        .or_insert_with(|| LockClaims { lock: lock.clone(), claims: HashTable::new() })
        .into_mut();
    let is_owners = |claim: &Arc<Claim>| claim.owner == *owner;
    of_lock.claims.entry(owner.hash_code(), is_owners, |claim| claim.owner.hash_code())
}

impl Default for Registry {
    fn default() -> Registry {
        Registry { shards: std::array::from_fn(|_| Shard::default()), lost_leaks: Mutex::default() }
    }
}

impl Registry {
    pub(crate) fn get(&self, lock: &str, owner: &str) -> Option<Arc<Claim>> {
        let (lock_hash, owner_hash) = (hash_of(lock), hash_of(owner));
        let locks = self.locks(lock_hash);
        let of_lock = locks.find(lock_hash, |of_lock| of_lock.lock.as_str() == lock)?;
        of_lock.claims.find(owner_hash, |claim| claim.owner.as_str() == owner).cloned()
    }

    /// The owner's claim on the lock if `join` accepts it, else the one of `make`. Both run under the shard's mutex, so that
    /// two threads with one owner can't make two claims.
    pub(crate) fn get_or_make<T>(
        &self,
        lock: &LockName,
        owner: &OwnerId,
        join: impl FnOnce(&Arc<Claim>) -> Option<T>,
        make: impl FnOnce() -> (Arc<Claim>, T),
    ) -> T {
        let mut _former = None; // dropped without the mutex: its end may run a subscriber of the program
        match owners(&mut self.locks(lock.hash_code()), lock, owner) {
            Entry::Occupied(mut found) => join(found.get()).unwrap_or_else(|| {
                debug_assert!(found.get().has_ended(), "a second claim of {owner} on {lock}");
                let (claim, made) = make();
                _former = Some(std::mem::replace(found.get_mut(), claim));
                made
            }),
            Entry::Vacant(free) => {
                let (claim, made) = make();
                free.insert(claim);
                made
            }
        }
    }

    /// Removes the claim, if it is still the owner's claim on the lock.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let lock = &claim.lock.name;
        let mut locks = self.locks(lock.hash_code());
        let is_full = locks.len() > FEW_LOCKS;
        let Ok(mut of_lock) = locks.find_entry(lock.hash_code(), |of_lock| of_lock.lock == *lock) else {
            return;
        };
        let claims = &mut of_lock.get_mut().claims;
        if let Ok(current) = claims.find_entry(claim.owner.hash_code(), |other| Arc::ptr_eq(other, claim)) {
            current.remove();
            if claims.is_empty() && is_full {
                of_lock.remove();
            }
        }
    }

    /// Makes `new` the owner's claim in place of `old`; unless the owner has another claim by now, which is returned.
    pub(crate) fn replace(&self, old: &Arc<Claim>, new: &Arc<Claim>) -> Option<Arc<Claim>> {
        let lock = &old.lock.name;
        match owners(&mut self.locks(lock.hash_code()), lock, &old.owner) {
            Entry::Occupied(found) if !Arc::ptr_eq(found.get(), old) => return Some(Arc::clone(found.get())),
            Entry::Occupied(mut found) => *found.get_mut() = Arc::clone(new),
            Entry::Vacant(free) => _ = free.insert(Arc::clone(new)),
        }
        None
    }

    /// Remembers the claim, if it is lost and has leaked holds.
    pub(crate) fn remember_lost_leak(&self, claim: &Arc<Claim>) {
        if !claim.has_lost_leak() {
            return;
        }
        let _forgotten; // dropped without the mutex, as above
        let mut lost = self.lost_leaks.lock();
        if lost.iter().any(|other| Arc::ptr_eq(other, claim)) {
            return;
        }
        _forgotten = if lost.len() < LOST_LEAKS { None } else { lost.pop_back() };
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
        let hash = hash_of(lock);
        let locks = self.locks(hash);
        let of_lock = locks.find(hash, |of_lock| of_lock.lock.as_str() == lock)?;
        of_lock.claims.iter().find(|claim| is_wanted(claim)).cloned()
    }

    /// Calls `visit`, which must be quick, with every claim.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Claim>)) {
        for shard in &self.shards {
            shard.0.lock().iter().flat_map(|of_lock| &of_lock.claims).for_each(&mut visit);
        }
    }

    /// Whether any claim `is_it`, which must be quick.
    pub(crate) fn has(&self, is_it: impl Fn(&Claim) -> bool) -> bool {
        let has = |shard: &Shard| {
            shard.0.lock().iter().flat_map(|of_lock| &of_lock.claims).any(|claim| is_it(claim))
        };
        self.shards.iter().any(has)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Claim>> {
        let mut all = Vec::new();
        self.for_each(|claim| all.push(Arc::clone(claim)));
        all
    }

    /// The shard of the locks with this hash.
    fn locks(&self, hash: u64) -> MutexGuard<'_, HashTable<LockClaims>> {
        self.shards[shard_of(hash)].0.lock()
    }
}

/// From the middle of the hash: its ends find the place in the shard's table.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Adds the first claim of this owner on this lock.
    fn add(registry: &Registry, lock: &LockName, owner: &str) -> Arc<Claim> {
        let claim = Claim::of_tests(lock, owner);
        let join = |_: &Arc<Claim>| panic!("it is there");
        registry.get_or_make(lock, &claim.owner, join, || (Arc::clone(&claim), ()));
        claim
    }

    /// The number of locks in one shard.
    fn of_one_shard(count: usize) -> Vec<LockName> {
        let names = (0..10_000).map(|n| LockName::new(&format!("lock:{n}")).unwrap());
        names.filter(|name| shard_of(name.hash_code()) == 0).take(count).collect()
    }

    #[test]
    fn a_claim_that_goes_takes_no_other_of_its_lock_along() {
        let registry = Registry::default();
        let pairs: Vec<_> = of_one_shard(FEW_LOCKS + 1)
            .iter()
            .map(|lock| ["u:1", "u:2"].map(|owner| add(&registry, lock, owner)))
            .collect();
        for [gone, kept] in &pairs {
            registry.remove(gone);
            let find = |claim: &Claim| registry.get(claim.lock.name.as_str(), claim.owner.as_str());
            assert!(find(gone).is_none() && find(kept).is_some());
        }
    }

    /// A claim that was followed by another claim does not take its successor along when it is removed.
    #[test]
    fn a_claim_does_not_take_its_successor_along() {
        let registry = Registry::default();
        let lock = &of_one_shard(1)[0];
        let (old, new) = (add(&registry, lock, "u:1"), Claim::of_tests(lock, "u:1"));
        old.retire();
        registry.get_or_make(lock, &new.owner, |_| None, || (Arc::clone(&new), ()));
        registry.remove(&old);
        assert!(registry.get(lock.as_str(), "u:1").is_some_and(|claim| Arc::ptr_eq(&claim, &new)));
        let newest = Claim::of_tests(lock, "u:1");
        assert!(registry.replace(&old, &newest).is_some_and(|claim| Arc::ptr_eq(&claim, &new)));
        assert!(!registry.has(|claim| std::ptr::eq(claim, &*newest)));
        assert!(registry.replace(&new, &newest).is_none());
        assert!(registry.has(|claim| std::ptr::eq(claim, &*newest)));
        registry.remove(&newest);
        assert!(registry.replace(&newest, &new).is_none() && registry.get(lock.as_str(), "u:1").is_some());
    }

    #[test]
    fn a_shard_keeps_the_entries_of_a_few_idle_locks_only() {
        let registry = Registry::default();
        let locks = of_one_shard(FEW_LOCKS + 2);
        let claims: Vec<_> = locks.iter().map(|lock| add(&registry, lock, "u:1")).collect();
        claims.iter().for_each(|claim| registry.remove(claim));
        assert_eq!((registry.all().len(), registry.shards[0].0.lock().len()), (0, FEW_LOCKS));
    }

    #[test]
    fn a_lock_does_not_wait_for_a_lock_of_another_shard() {
        let registry = Arc::new(Registry::default());
        let shard = |name: &str| shard_of(hash_of(name));
        let other =
            (0..1000).map(|n| format!("other:{n}")).find(|name| shard(name) != shard("held")).unwrap();
        let held = registry.locks(hash_of("held"));
        let (sender, found) = mpsc::channel();
        let asks = Arc::clone(&registry);
        thread::spawn(move || sender.send(asks.get(&other, "owner").is_some()));
        assert_eq!(found.recv_timeout(Duration::from_secs(10)), Ok(false));
        drop(held);
    }
}
