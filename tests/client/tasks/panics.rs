//! A backend that panics now and then, before or after it has done what was asked for.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock::{Client, ClientId, MemoryBackend};
use fairlock_tests::Alone;

use crate::support::{Resource, is_free_soon, multi, turn};

type Answer<T> = Result<T, BackendError>;

/// One call of so many panics: more than there are in a batch, or none would be answered.
const EACH: u32 = 97;

struct Panics {
    store: MemoryBackend,
    calls: Arc<AtomicU32>,
}

impl Panics {
    fn now_and_then<T>(&self, call: impl FnOnce(&MemoryBackend) -> T) -> T {
        let nth = self.calls.fetch_add(1, SeqCst);
        assert!(!nth.is_multiple_of(2 * EACH), "planned, before the call");
        let answer = call(&self.store);
        assert!(nth % (2 * EACH) != EACH, "planned, after the call");
        answer
    }
}

/// Several in a call are done one by one: a panic leaves the rest undone.
impl Backend for Panics {
    fn acquire(&self, ask: &Acquire<'_>) -> Answer<Acquired> {
        self.now_and_then(|store| store.acquire(ask))
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Answer<HoldCountSet> {
        self.store.set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Answer<Released> {
        self.now_and_then(|store| store.release(hold))
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
        self.now_and_then(|store| store.renew(client, items))
    }

    fn withdraw(&self, place: &Place<'_>) -> Answer<Withdrawn> {
        self.now_and_then(|store| store.withdraw(place))
    }

    fn kick(&self, place: &Place<'_>) -> Answer<Withdrawn> {
        self.store.kick(place)
    }

    fn force_release(&self, lock: &LockId) -> Answer<ForceReleased> {
        self.store.force_release(lock)
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Answer<LockState> {
        self.store.inspect(lock, part)
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Answer<Subscription> {
        self.store.subscribe(client, sink)
    }
}

#[test]
fn a_backend_that_panics_costs_no_task_its_turn_and_leaves_nothing_behind() {
    let _alone = Alone::here();
    let (store, calls) = (MemoryBackend::new(), Arc::<AtomicU32>::default());
    let client = Client::new(Panics { store: store.clone(), calls: Arc::clone(&calls) }).unwrap();
    let runtime = multi();
    let locks: Vec<_> =
        (0..5).map(|number| client.fair_lock(&format!("lock:{number}")).unwrap().to_async()).collect();
    let resources: Vec<_> = locks.iter().map(|_| Resource::new(1)).collect();
    let tasks: Vec<_> = (0..100)
        .map(|nth| {
            let (lock, resource) = (locks[nth % 5].clone(), Arc::clone(&resources[nth % 5]));
            runtime.spawn(async move {
                // Some are given up.
                if nth % 4 == 0 {
                    let waiting = tokio::time::timeout(Duration::from_millis(20), lock.lock());
                    drop(waiting.await);
                }
                turn(&lock, &resource, 1, nth).await;
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert!(resources.iter().all(|resource| resource.uses() == 20));
    assert!(calls.load(SeqCst) > 2 * EACH, "too few panicked");
    let other = Client::new(store).unwrap();
    for lock in &locks {
        is_free_soon(&other.fair_lock(lock.name()).unwrap().to_async());
    }
    assert_eq!(client.stats().lost, 0);
}
