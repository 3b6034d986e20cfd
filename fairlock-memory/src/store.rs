//! What all clones of a backend share: the clock, the locks in shards, by name, the subscribed clients, and the planned faults.
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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::{Mutex, MutexGuard};

use fairlock_core::backend::WakeSink;
use fairlock_core::{Clock, LockName, OwnerId};
use fairlock_rules::{LockEntry, Moment, OperationContext, Presence, StoreContext, WakeUp};

/// Many more than a machine has cores: then two threads that run at the same time rarely meet in one.
const SHARDS: usize = 64;
/// With more locks than this, empty entries are not kept, and the shard looks for abandoned ones.
const FEW_LOCKS: usize = 16;

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

/// The locks of a shard that are held or waited for, or whose last grants are noted. Some empty entries are kept for reuse, and count as absent.
pub(crate) struct Store {
    locks: HashTable<(LockName, LockEntry)>,
    store_context: StoreContext,
    wake_ups: Arc<WakeUps>,
    /// With more locks than this, abandoned ones are removed.
    sweep_above: usize,
}

impl Store {
    fn new(wake_ups: Arc<WakeUps>) -> Store {
        Store {
            locks: HashTable::new(),
            store_context: StoreContext::default(),
            wake_ups,
            sweep_above: FEW_LOCKS,
        }
    }

    /// The wake-ups to deliver, in this order, once the shard's mutex is free.
    fn take_outgoing(&mut self) -> Vec<WakeUp> {
        self.store_context.take_wake_ups()
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
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
                        locks.retain(|(_, entry)| now < entry.over_at().max(entry.note_ends()));
                        *sweep_above = FEW_LOCKS.max(locks.len() * 2);
                    }
                }
                answer
            }
        }
    }
}

struct Subscriber {
    sink: Arc<dyn WakeSink>,
    /// Tells the client's subscriptions apart.
    number: u64,
}

/// Who is subscribed. All shards share it, behind its own mutex.
#[derive(Default)]
pub(crate) struct WakeUps(Mutex<Listeners>);

/// The listeners by client, as owners spell it.
#[derive(Default)]
struct Listeners {
    by_client: HashMap<Box<str>, Subscriber>,
    subscriptions: u64,
    /// Clients that a test has cut off.
    cut_off: HashSet<Box<str>>,
    /// How many of the next wake-ups are lost.
    to_lose: usize,
}

impl WakeUps {
    /// Delivers to `sink` from now on. Returns the number of the subscription, and the sink that it replaces: drop that one
    /// when all mutexes are free, since its drop is foreign code.
    pub(crate) fn listen(&self, client: &str, sink: Arc<dyn WakeSink>) -> (u64, Option<Arc<dyn WakeSink>>) {
        let mut listeners = self.0.lock();
        listeners.subscriptions += 1;
        let number = listeners.subscriptions;
        let replaced = listeners.by_client.insert(client.into(), Subscriber { sink, number });
        (number, replaced.map(|listener| listener.sink))
    }

    /// Ends a subscription, unless a newer one of the client has replaced it. Drop the sink when all mutexes are free.
    pub(crate) fn stop_listening(&self, client: &str, number: u64) -> Option<Arc<dyn WakeSink>> {
        let mut listeners = self.0.lock();
        listeners.by_client.get(client).filter(|listener| listener.number == number)?;
        listeners.by_client.remove(client).map(|listener| listener.sink)
    }

    /// Whether the owner's client is subscribed. (A wake-up for it may still get lost.)
    fn is_subscribed(&self, owner: &OwnerId) -> bool {
        self.0.lock().sink(owner.client()).is_some()
    }

    /// Tells the owner's client, if it is subscribed. All mutexes must be free: a sink is foreign code.
    fn deliver(&self, wake_up: &WakeUp) {
        let sink = self.0.lock().sink_to_tell(wake_up.owner.client());
        if let Some(sink) = sink {
            sink.wake(wake_up.as_wake());
        }
    }

    pub(crate) fn lose_next(&self, times: usize) {
        let mut listeners = self.0.lock();
        listeners.to_lose = listeners.to_lose.saturating_add(times);
    }

    pub(crate) fn cut_off(&self, client: &str) {
        self.0.lock().cut_off.insert(client.into());
    }

    /// The client is back: tell it that it may have missed wake-ups.
    pub(crate) fn bring_back(&self, client: &str) -> Option<Arc<dyn WakeSink>> {
        let mut listeners = self.0.lock();
        if !listeners.cut_off.remove(client) {
            return None;
        }
        listeners.sink_to_tell(client)
    }

    pub(crate) fn is_cut_off(&self, client: &str) -> bool {
        self.0.lock().is_cut_off(client)
    }

    #[cfg(test)]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl Listeners {
    fn is_cut_off(&self, client: &str) -> bool {
        !self.cut_off.is_empty() && self.cut_off.contains(client)
    }

    fn sink(&self, client: &str) -> Option<&Arc<dyn WakeSink>> {
        if self.is_cut_off(client) {
            return None;
        }
        self.by_client.get(client).map(|listener| &listener.sink)
    }

    /// The client's sink, unless what it would be told is lost.
    fn sink_to_tell(&mut self, client: &str) -> Option<Arc<dyn WakeSink>> {
        let sink = Arc::clone(self.sink(client)?);
        if self.to_lose > 0 {
            self.to_lose -= 1;
            return None;
        }
        Some(sink)
    }
}

/// The planned faults, oldest first.
#[derive(Default)]
pub(crate) struct Plans(Vec<Plan>);

struct Plan {
    operation: Operation,
    fault: Fault,
    times: usize,
}

/// An operation of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`acquire`](fairlock_core::backend::Backend::acquire).
    Acquire,
    /// [`release`](fairlock_core::backend::Backend::release).
    Release,
    /// [`adopt`](fairlock_core::backend::Backend::adopt).
    Adopt,
    /// [`renew`](fairlock_core::backend::Backend::renew); a call fails as a whole, all its items.
    Renew,
    /// [`withdraw`](fairlock_core::backend::Backend::withdraw).
    Withdraw,
    /// [`force_release`](fairlock_core::backend::Backend::force_release) and
    /// [`take_hold`](fairlock_core::backend::Backend::take_hold).
    ForceRelease,
    /// [`inspect`](fairlock_core::backend::Backend::inspect).
    Inspect,
    /// [`subscribe`](fairlock_core::backend::Backend::subscribe).
    Subscribe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fail,
    LoseReply,
    Delay(Duration),
}

/// The faults of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) fails: bool,
    pub(crate) loses_reply: bool,
}

impl Plans {
    /// This many of the next calls of this operation suffer this fault.
    pub(crate) fn add(&mut self, operation: Operation, fault: Fault, times: usize) {
        if times > 0 {
            self.0.push(Plan { operation, fault, times });
        }
    }

    /// Whether any call is to sleep.
    pub(crate) fn has_delays(&self) -> bool {
        self.0.iter().any(|plan| matches!(plan.fault, Fault::Delay(_)))
    }

    /// Uses up the faults that are next for a call of this operation.
    pub(crate) fn draw(&mut self, operation: Operation) -> Fate {
        let mut fate = Fate::default();
        if self.0.is_empty() {
            return fate;
        }
        if let Some(Fault::Delay(by)) = self.use_up(operation, |fault| matches!(fault, Fault::Delay(_))) {
            fate.delay = by;
        }
        fate.fails = self.use_up(operation, |fault| fault == Fault::Fail).is_some();
        fate.loses_reply = !fate.fails && self.use_up(operation, |fault| fault == Fault::LoseReply).is_some();
        fate
    }

    fn use_up(&mut self, operation: Operation, is_wanted: impl Fn(Fault) -> bool) -> Option<Fault> {
        let at = self.0.iter().position(|plan| plan.operation == operation && is_wanted(plan.fault))?;
        let plan = self.0.get_mut(at)?;
        plan.times -= 1;
        let fault = plan.fault;
        if plan.times == 0 {
            self.0.remove(at);
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use fairlock_core::LockKind;
    use fairlock_core::backend::{Acquire, Acquired, LockId, Place, RequestId, Since, Wait, Wake};
    use fairlock_rules::WakeUpKind;

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

    /// Its last grant has to be known for two periods.
    #[test]
    fn a_lock_with_a_note_is_not_taken_for_abandoned() {
        let mut store = Store::new(Arc::default());
        let lock = LockId::new(LockName::new("daily").unwrap(), LockKind::Fair);
        let owner = OwnerId::new("c:1");
        let mut ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(1)), Duration::from_secs(1));
        (ask.place.wait, ask.condition.not_granted) =
            (Wait::No, Some(Since::Ago(Duration::from_secs(10_000))));
        for (second, is_declined) in [(1, false), (9_000, true)] {
            (0..100).for_each(|number| hold(&mut store, number + second, second));
            let now = Duration::from_secs(second);
            let answer = store.with(now, &lock.name, |entry, context| entry.acquire(context, &ask)).unwrap();
            assert_eq!(matches!(answer, Acquired::Declined(_)), is_declined, "{answer:?}");
        }
    }

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl WakeSink for Counter {
        fn wake(&self, _: Wake<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_late_end_of_a_subscription_leaves_the_one_that_replaced_it() {
        let wake_ups = WakeUps::default();
        let (first, _) = wake_ups.listen("a", Arc::new(Counter::default()));
        let (second, replaced) = wake_ups.listen("a", Arc::new(Counter::default()));
        assert!(replaced.is_some());
        assert!(wake_ups.stop_listening("a", first).is_none());
        assert!(wake_ups.is_subscribed(&OwnerId::new("a:1")));
        assert!(wake_ups.stop_listening("a", second).is_some());
        assert!(!wake_ups.is_subscribed(&OwnerId::new("a:1")));
    }

    #[test]
    fn only_wake_ups_of_a_subscribed_client_count_as_lost() {
        let (wake_ups, heard) = (WakeUps::default(), Arc::new(Counter::default()));
        wake_ups.listen("a", heard.clone());
        wake_ups.lose_next(1);
        let heard_after = |owner| {
            let (lock, owner) = (LockName::new("x").unwrap(), OwnerId::new(owner));
            wake_ups.deliver(&WakeUp { lock, owner, kind: WakeUpKind::RecheckAny });
            heard.0.load(Ordering::SeqCst)
        };
        assert_eq!([heard_after("b:1"), heard_after("a:1"), heard_after("a:1")], [0, 0, 1]);
    }

    #[test]
    fn a_call_that_fails_leaves_the_lost_reply_for_the_next_one() {
        let second = Duration::from_secs(1);
        let mut plans = Plans::default();
        for (fault, times) in [(Fault::LoseReply, 1), (Fault::Fail, 1), (Fault::Delay(second), 2)] {
            plans.add(Operation::Release, fault, times);
        }
        assert_eq!(plans.draw(Operation::Acquire), Fate::default());
        assert_eq!(plans.draw(Operation::Release), Fate { delay: second, fails: true, loses_reply: false });
        assert_eq!(plans.draw(Operation::Release), Fate { delay: second, fails: false, loses_reply: true });
        assert_eq!(plans.draw(Operation::Release), Fate::default());
        plans.add(Operation::Release, Fault::Fail, 0);
        assert_eq!(plans.draw(Operation::Release), Fate::default(), "not at all");
        assert!(plans.0.is_empty());
    }
}
