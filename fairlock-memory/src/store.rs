//! The locks of one shard, by name. Pure: the time is given.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use fairlock_core::LockName;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldCountSet, HoldKept, LockId, LockState, Place,
    Released, Renew, Renewal, RequestId, Withdrawn,
};

use crate::lock_entry::LockEntry;
use crate::turn::{Moment, Sequence, Turn};
use crate::wake_ups::{Outgoing, WakeUps};

/// With more locks than this, empty entries are not kept, and the shard looks for abandoned ones.
const FEW_LOCKS: usize = 16;

/// The locks of a shard that are held or waited for. Some empty entries are kept for reuse, and count as absent.
pub(crate) struct Store {
    locks: HashTable<(LockName, LockEntry)>,
    sequence: Sequence,
    wake_ups: Arc<WakeUps>,
    outgoing: Vec<Outgoing>,
    calls: u64,
    /// With more locks than this, abandoned ones are removed.
    sweep_above: usize,
    last_label: Arc<str>,
}

impl Store {
    /// `made_at`: the wall clock now, since 1970.
    pub(crate) fn new(made_at: Duration, wake_ups: Arc<WakeUps>) -> Store {
        Store {
            locks: HashTable::new(),
            sequence: Sequence::new(made_at),
            wake_ups,
            outgoing: Vec::new(),
            calls: 0,
            sweep_above: FEW_LOCKS,
            last_label: Arc::default(),
        }
    }

    /// The wake-ups to deliver, in this order, once the shard's mutex is free.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    pub(crate) fn acquire(&mut self, now: Moment, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        self.calls += 1;
        self.with(now, &ask.place.lock.name, |entry, turn| entry.acquire(turn, ask))
    }

    pub(crate) fn set_hold_count(&mut self, now: Moment, hold: &Hold<'_>, holds: u32) -> HoldCountSet {
        self.calls += 1;
        self.with(now, &hold.lock.name, |entry, turn| entry.set_hold_count(turn, hold, holds))
    }

    pub(crate) fn release(&mut self, now: Moment, hold: &Hold<'_>) -> Released {
        self.calls += 1;
        self.with(now, &hold.lock.name, |entry, turn| entry.release(turn, hold))
    }

    pub(crate) fn keep(
        &mut self,
        now: Moment,
        hold: &Hold<'_>,
        keeper: RequestId,
        lease: Duration,
    ) -> HoldKept {
        self.calls += 1;
        self.with(now, &hold.lock.name, |entry, turn| entry.keep(turn, hold, keeper, lease))
    }

    /// Refreshes all items before it answers any: a free lock goes to the first in line of *all* waiters of this call, whatever
    /// the order of the items.
    pub(crate) fn renew(&mut self, now: Moment, items: &[Renew<'_>]) -> Vec<Renewal> {
        self.calls += 1;
        for item in items {
            self.with(now, &lock_of(item).name, |entry, turn| entry.refresh(turn, item));
        }
        let answer = |item| self.with(now, &lock_of(item).name, |entry, turn| entry.answer(turn, item));
        items.iter().map(answer).collect()
    }

    pub(crate) fn withdraw(&mut self, now: Moment, place: &Place<'_>) -> Withdrawn {
        self.calls += 1;
        self.with(now, &place.lock.name, |entry, turn| entry.withdraw(turn, place))
    }

    pub(crate) fn kick(&mut self, now: Moment, place: &Place<'_>) -> Withdrawn {
        self.calls += 1;
        self.with(now, &place.lock.name, |entry, turn| entry.kick(turn, place))
    }

    pub(crate) fn force_release(
        &mut self,
        now: Moment,
        lock: &LockId,
    ) -> Result<ForceReleased, BackendError> {
        self.calls += 1;
        self.with(now, &lock.name, |entry, turn| entry.force_release(turn, lock))
    }

    pub(crate) fn take_hold(&mut self, now: Moment, hold: &Hold<'_>) -> ForceReleased {
        self.calls += 1;
        self.with(now, &hold.lock.name, |entry, turn| entry.take_hold(turn, hold))
    }

    /// Changes nothing: even what has expired stays.
    pub(crate) fn inspect(
        &self,
        now: Moment,
        lock: &LockId,
        part: Range<u64>,
    ) -> Result<LockState, BackendError> {
        let found = self.locks.find(lock.name.hash_code(), |(name, _)| *name == lock.name);
        let inspect =
            |(_, entry): &(LockName, LockEntry)| entry.inspect(now, &self.wake_ups, lock.kind, part);
        found.map_or_else(|| Ok(LockState::default()), inspect)
    }

    /// A test makes the places vanish, without a wake-up.
    pub(crate) fn lose_line(&mut self, now: Moment, lock: &LockName) {
        self.with(now, lock, |entry, _| entry.lose_line());
    }

    /// A test makes the holds vanish, without a wake-up.
    pub(crate) fn lose_hold(&mut self, now: Moment, lock: &LockName) {
        self.with(now, lock, |entry, _| entry.lose_hold());
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.iter().all(|(_, entry)| entry.is_empty())
    }

    /// Operates on a lock. A lock without an entry is like an empty entry, which is not kept if there are many locks.
    fn with<T>(
        &mut self,
        now: Moment,
        lock: &LockName,
        operate: impl FnOnce(&mut LockEntry, &mut Turn<'_>) -> T,
    ) -> T {
        let Store { locks, sequence, wake_ups, outgoing, calls, sweep_above, last_label } = self;
        let mut turn = Turn { lock, now, call: *calls, wake_ups, outgoing, sequence, last_label };
        let are_few = locks.len() <= FEW_LOCKS;
        match locks.entry(lock.hash_code(), |(name, _)| name == lock, |(name, _)| name.hash_code()) {
            Entry::Occupied(mut found) => {
                let (_, entry) = found.get_mut();
                let answer = operate(entry, &mut turn);
                if entry.is_empty() && !are_few {
                    found.remove();
                }
                answer
            }
            Entry::Vacant(free) => {
                let mut entry = LockEntry::default();
                let answer = operate(&mut entry, &mut turn);
                if !entry.is_empty() {
                    free.insert((lock.clone(), entry));
                    if locks.len() > *sweep_above {
                        // Otherwise, only a call for the same lock removes what has expired: dead holders and waiters of
                        // locks that are never used again would stay for ever. Redis has TTLs for this.
                        locks.retain(|(_, entry)| !entry.is_abandoned(now));
                        *sweep_above = FEW_LOCKS.max(locks.len() * 2);
                    }
                }
                answer
            }
        }
    }
}

/// The lock that this item is about.
pub(crate) fn lock_of<'a>(item: &Renew<'a>) -> &'a LockId {
    match item {
        Renew::Hold { hold, .. } => hold.lock,
        Renew::Place { place, .. } => place.lock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::{LockKind, OwnerId};

    /// A lock of this number, held from then on for 30 s.
    fn hold(store: &mut Store, number: u64, since: u64) {
        let lock = LockId::new(LockName::new(&number.to_string()).unwrap(), LockKind::Fair);
        let owner = OwnerId::new("c:1");
        let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(number)), Duration::from_secs(30));
        store.acquire(Duration::from_secs(since), &ask).unwrap();
    }

    #[test]
    fn a_shard_looks_for_abandoned_locks_each_time_that_it_has_doubled() {
        let mut store = Store::new(Duration::ZERO, Arc::default());
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
        let mut store = Store::new(Duration::ZERO, Arc::default());
        for number in 0..10_000 {
            hold(&mut store, number, number);
        }
        // The last 30 are still held. When there are twice as many entries the others are removed.
        assert!(store.locks.len() <= FEW_LOCKS.max(2 * 30) + 1, "{}", store.locks.len());
    }
}
