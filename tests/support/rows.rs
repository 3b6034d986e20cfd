//! A store in memory that keeps each lock as bytes, as a database keeps rows: each step reads the row, decides by fairlock-rules,
//! and writes it back. What the rules know beside those bytes is forgotten.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, HoldKept, LockId, LockState,
    Place, Released, Renew, Renewal, RequestId, Subscription, WakeSink, Withdrawn, one_by_one,
};
use fairlock::{ClientId, Clock, LockKind, LockName, ManualClock, MemoryBackend, OwnerId};
use fairlock_rules::{LockEntry, OperationContext, Presence, StoreContext, WakeUp, renew_by_lock};

/// A store in this process that a test can make on its clock, and make forget.
pub trait Memory: Backend {
    /// A new one.
    fn on(clock: &ManualClock) -> Self
    where
        Self: Sized;
    /// The holds vanish.
    fn lose_hold(&self, name: &str);
    /// The places vanish.
    fn lose_queue(&self, name: &str);
}

impl Memory for MemoryBackend {
    fn on(clock: &ManualClock) -> Self {
        MemoryBackend::with_clock(clock.clone())
    }

    fn lose_hold(&self, name: &str) {
        self.faults().lose_hold(name);
    }

    fn lose_queue(&self, name: &str) {
        self.faults().lose_queue(name);
    }
}

/// The rows, and the clients that listen.
pub struct Rows(Arc<Kept>);

struct Kept {
    clock: Clock,
    made: Instant,
    /// The bytes, and the last number that was drawn.
    rows: Mutex<HashMap<LockName, (Vec<u8>, u64)>>,
    sinks: Mutex<HashMap<String, Arc<dyn WakeSink>>>,
}

impl Memory for Rows {
    fn on(clock: &ManualClock) -> Self {
        let clock = Clock::from(clock.clone());
        Rows(Arc::new(Kept { made: clock.now(), clock, rows: Mutex::default(), sinks: Mutex::default() }))
    }

    fn lose_hold(&self, name: &str) {
        self.step(&LockName::new(name).unwrap(), |entry, _| entry.lose_hold());
    }

    fn lose_queue(&self, name: &str) {
        self.step(&LockName::new(name).unwrap(), |entry, _| entry.lose_queue());
    }
}

impl Rows {
    fn step<T>(
        &self,
        lock: &LockName,
        operate: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> T,
    ) -> T {
        let mut rows = self.0.rows.lock().unwrap();
        let now = Duration::from_secs(1_800_000_000) + (self.0.clock.now() - self.0.made);
        let (bytes, last) = rows.entry(lock.clone()).or_insert_with(|| (LockEntry::default().encode(), 0));
        let mut entry = LockEntry::decode(bytes).unwrap();
        let mut store_context = StoreContext::after(*last);
        let is_listening = |owner: &OwnerId| self.0.sinks.lock().unwrap().contains_key(owner.client());
        let presence = |owner: &OwnerId| Presence::if_listening(is_listening(owner));
        let answer = operate(&mut entry, &mut store_context.operation(lock, now, &presence));
        (*bytes, *last) = (entry.encode(), store_context.last_number());
        drop(rows);
        for wake_up in store_context.take_wake_ups() {
            // Also as a text, as it would be sent.
            let wake_up: WakeUp = wake_up.to_string().parse().unwrap();
            let sink = self.0.sinks.lock().unwrap().get(wake_up.owner.client()).cloned();
            if let Some(sink) = sink {
                sink.wake(wake_up.as_wake());
            }
        }
        answer
    }
}

impl Backend for Rows {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        one_by_one(asks, |ask| self.step(&ask.place.lock.name, |entry, context| entry.acquire(context, ask)))
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        Ok(self.step(&hold.lock.name, |entry, context| entry.set_hold_count(context, hold, holds)))
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        one_by_one(
            holds,
            |hold| Ok(self.step(&hold.lock.name, |entry, context| entry.release(context, hold))),
        )
    }

    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        Ok(self.step(&hold.lock.name, |entry, context| entry.keep(context, hold, keeper, lease)))
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let renewed =
            renew_by_lock(items, |lock, items| self.step(lock, |entry, context| entry.renew(context, items)));
        renewed.into_iter().map(Ok).collect()
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        one_by_one(places, |place| {
            Ok(self.step(&place.lock.name, |entry, context| entry.withdraw(context, place)))
        })
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        Ok(self.step(&place.lock.name, |entry, context| entry.kick(context, place)))
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.step(&lock.name, |entry, context| entry.force_release(context, lock))
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        Ok(self.step(&hold.lock.name, |entry, context| entry.take_hold(context, hold)))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.step(&lock.name, |entry, context| entry.inspect(context, lock, part))
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        self.0.sinks.lock().unwrap().insert(client.to_string(), sink);
        Ok(Subscription::new(Listening(Arc::clone(&self.0), client)))
    }

    fn supports(&self, _: LockKind) -> bool {
        true
    }

    fn store_clock(&self) -> Option<Clock> {
        Some(self.0.clock.clone())
    }
}

/// Ends a subscription when dropped.
struct Listening(Arc<Kept>, ClientId);

impl Drop for Listening {
    fn drop(&mut self) {
        let sink = self.0.sinks.lock().unwrap().remove(&self.1.to_string());
        drop(sink);
    }
}
