//! The backend itself: faults are applied before each operation on the store, wake-ups delivered after it. Tests inject the faults.

use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId, LockState,
    Place, Released, Renew, Renewal, Subscription, Wake, WakeSink, Withdrawn, one_by_one,
};
use fairlock_core::{ClientId, Clock, LockKind, LockName, OwnerId};
use fairlock_rules::{LockEntry, OperationContext, lock_of};

use crate::store::{Fate, Fault, Operation, Shared, WakeUps};

/// How many holds and places are renewed under a shard's mutex at once: that takes less than half a millisecond.
const RENEWED_AT_ONCE: usize = 1000;

/// A store of locks in this process. Clones are the same store; a lock is shared by all clients made with them.
///
/// It follows the Redis backend's default discipline, without I/O. It starts no threads: what has expired is removed by the
/// next call for that lock.
#[derive(Clone)]
pub struct MemoryBackend(Arc<Shared>);

// No call runs code of the program on its thread: no panic of the program leaves the middle of one.
impl UnwindSafe for MemoryBackend {}
impl RefUnwindSafe for MemoryBackend {}

/// The caller, as far as a call names it.
#[derive(Clone, Copy)]
enum Caller<'a> {
    Owner(&'a OwnerId),
    Client(ClientId),
    Unknown,
}

impl MemoryBackend {
    /// A new store on the system's clock.
    pub fn new() -> Self {
        MemoryBackend::with_clock(Clock::system())
    }

    /// A new store on this clock, usually a [`ManualClock`](fairlock_core::ManualClock). Give the same clock to its clients.
    pub fn with_clock(clock: impl Into<Clock>) -> Self {
        MemoryBackend(Arc::new(Shared::new(clock.into())))
    }

    /// The store's clock.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Injects faults, for tests.
    pub fn faults(&self) -> Faults {
        Faults(Arc::clone(&self.0))
    }

    /// Whether no lock is held or waited for, and nothing is left of former ones.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        MemoryBackend::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}

impl Shared {
    /// Carries a call about this lock out, unless a fault prevents it.
    fn call<T>(
        &self,
        lock: &LockName,
        operation: Operation,
        caller: Caller<'_>,
        operate: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> T,
    ) -> Result<T, BackendError> {
        let (store, fate) = self.admit(|| self.store_of(lock), operation, caller)?;
        let now = self.now();
        let answer = self.then_deliver(store, |store| store.with(now, lock, operate));
        reply(fate, answer)
    }

    /// Takes what the call needs, or fails the call before it is carried out.
    fn admit<G>(
        &self,
        take: impl Fn() -> G,
        operation: Operation,
        caller: Caller<'_>,
    ) -> Result<(G, Fate), BackendError> {
        let mut taken = take();
        if !self.has_faults() {
            return Ok((taken, Fate::default()));
        }
        caller.check(&self.wake_ups)?;
        let fate = self.plans.lock().draw(operation);
        if !fate.delay.is_zero() {
            drop(taken);
            self.clock.sleep(fate.delay);
            taken = take();
            // It may have been cut off while the call was delayed.
            caller.check(&self.wake_ups)?;
        }
        if fate.fails {
            return Err(unavailable("the memory backend's faults made this call fail"));
        }
        Ok((taken, fate))
    }

    /// Renews shard by shard, and in portions, so that no other caller waits long for a shard.
    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Result<Vec<Renewal>, BackendError> {
        let caller = Caller::Client(client);
        let ((), fate) = self.admit(|| (), Operation::Renew, caller)?;
        let name_of = |at: &usize| &lock_of(&items[*at]).name;
        let shard_of = |at: &usize| Shared::shard_of(name_of(at));
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_cached_key(|at| (shard_of(at), name_of(at).hash_code(), name_of(at)));
        let mut answers = Vec::with_capacity(items.len());
        for of_shard in order.chunk_by(|one, other| shard_of(one) == shard_of(other)) {
            for part in of_shard.chunks(RENEWED_AT_ONCE) {
                let store = self.shard(shard_of(&part[0]));
                if self.has_faults() {
                    caller.check(&self.wake_ups)?;
                }
                let now = self.now();
                let part_items: Vec<Renew<'_>> = part.iter().map(|at| items[*at]).collect();
                let renewed = self.then_deliver(store, |store| {
                    let by_lock = part_items.chunk_by(|one, other| lock_of(one).name == lock_of(other).name);
                    let renew = |items: &[_]| {
                        store
                            .with(now, &lock_of(&items[0]).name, |entry, context| entry.renew(context, items))
                    };
                    by_lock.flat_map(renew).collect::<Vec<_>>()
                });
                answers.extend(part.iter().copied().zip(renewed));
            }
        }
        answers.sort_unstable_by_key(|(at, _)| *at);
        reply(fate, answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

/// The answer, unless a fault loses it.
fn reply<T>(fate: Fate, answer: T) -> Result<T, BackendError> {
    if fate.loses_reply {
        return Err(unavailable("the memory backend's faults lost this reply"));
    }
    Ok(answer)
}

impl Caller<'_> {
    /// Fails if a test has cut this client off.
    fn check(self, wake_ups: &WakeUps) -> Result<(), BackendError> {
        let is_cut_off = match self {
            Caller::Owner(owner) => wake_ups.is_cut_off(owner.client()),
            Caller::Client(client) => wake_ups.is_cut_off(&client.to_string()),
            Caller::Unknown => false,
        };
        if is_cut_off {
            return Err(unavailable("the memory backend's faults have cut this client off"));
        }
        Ok(())
    }
}

fn unavailable(message: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, message)
}

impl Backend for MemoryBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        one_by_one(asks, |ask| {
            let Place { lock, owner, .. } = ask.place;
            let caller = Caller::Owner(owner);
            self.0
                .call(&lock.name, Operation::Acquire, caller, |entry, context| entry.acquire(context, ask))?
        })
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        one_by_one(holds, |hold| {
            let Hold { lock, owner, .. } = hold;
            let caller = Caller::Owner(owner);
            self.0.call(&lock.name, Operation::Release, caller, |entry, context| entry.release(context, hold))
        })
    }

    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Result<Renewal, BackendError> {
        let caller = Caller::Owner(owner);
        self.0.call(&hold.lock.name, Operation::Adopt, caller, |entry, context| {
            entry.adopt(context, hold, owner, lease)
        })?
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        match self.0.renew(client, items) {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); items.len()],
        }
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        one_by_one(places, |place| {
            let Place { lock, owner, .. } = place;
            let caller = Caller::Owner(owner);
            self.0.call(&lock.name, Operation::Withdraw, caller, |entry, context| {
                entry.withdraw(context, place)
            })
        })
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        let caller = Caller::Unknown;
        self.0.call(&lock.name, Operation::ForceRelease, caller, |entry, context| {
            entry.force_release(context, lock)
        })?
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        let caller = Caller::Unknown;
        self.0.call(&hold.lock.name, Operation::ForceRelease, caller, |entry, context| {
            entry.take_hold(context, hold)
        })
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        let caller = Caller::Unknown;
        self.0.call(&lock.name, Operation::Inspect, caller, |entry, context| {
            entry.inspect(context, lock, part)
        })?
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        let ((), fate) = self.0.admit(|| (), Operation::Subscribe, Caller::Client(client))?;
        let name: Box<str> = client.to_string().into();
        let (number, replaced) = self.0.wake_ups.listen(&name, sink);
        drop(replaced);
        // Made before the reply: if a fault loses that, dropping it ends the subscription.
        let listening = Listening { shared: Arc::downgrade(&self.0), client: name, number };
        reply(fate, Subscription::new(listening))
    }

    fn supports(&self, _kind: LockKind) -> bool {
        true
    }

    fn store_clock(&self) -> Option<Clock> {
        Some(self.clock())
    }

    /// Unless a call is to be delayed. A delay that is planned after this was asked may meet the caller's call.
    fn is_non_blocking(&self) -> bool {
        !self.0.has_faults() || !self.0.plans.lock().has_delays()
    }
}

/// Ends a subscription when dropped. Weak, so that a client that is never dropped does not keep the store.
struct Listening {
    shared: Weak<Shared>,
    client: Box<str>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let ended = shared.wake_ups.stop_listening(&self.client, self.number);
        // In its own statement, after the mutex is free: dropping a sink is foreign code.
        drop(ended);
    }
}

/// Injects faults into a [`MemoryBackend`], from
/// [`MemoryBackend::faults`](crate::MemoryBackend::faults). Clones share everything.
///
/// Plans add up. A delayed call can also fail or lose its reply. A call that fails has no reply to lose, so a
/// [`lose_reply`](Faults::lose_reply) is kept for the first call that is carried out.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

impl UnwindSafe for Faults {}
impl RefUnwindSafe for Faults {}

impl Faults {
    /// The next `times` calls of this operation fail with `Unavailable` and are not carried out.
    pub fn fail_next(&self, operation: Operation, times: usize) {
        self.plan(operation, Fault::Fail, times);
    }

    /// The next `times` calls of this operation are carried out, but their callers get `Unavailable`.
    pub fn lose_reply(&self, operation: Operation, times: usize) {
        self.plan(operation, Fault::LoseReply, times);
    }

    /// The next `times` calls of this operation sleep on the backend's clock before they are carried out.
    pub fn delay_next(&self, operation: Operation, times: usize, by: Duration) {
        self.plan(operation, Fault::Delay(by), times);
    }

    /// The next `times` wake-ups, of any kind, are not delivered.
    pub fn lose_wake_ups(&self, times: usize) {
        self.0.wake_ups.lose_next(times);
    }

    /// All holds of this lock vanish without a wake-up, as if the server had lost them. The queue stays, and the next call for
    /// this lock finds it free.
    pub fn lose_hold(&self, name: &str) {
        // An invalid name names no lock, so there is no hold to lose.
        let Ok(name) = LockName::new(name) else { return };
        let mut store = self.0.store_of(&name);
        store.with(self.0.now(), &name, |entry, _| entry.lose_hold());
    }

    /// The places of all waiters for this lock vanish without a wake-up, as if the server had lost them. Live waiters ask again
    /// after their clients' next heartbeats, within a third of the places' time to live, and get their places back.
    pub fn lose_queue(&self, name: &str) {
        let Ok(name) = LockName::new(name) else { return };
        let mut store = self.0.store_of(&name);
        store.with(self.0.now(), &name, |entry, _| entry.lose_queue());
    }

    /// Every call of this client fails with `Unavailable`, and no wake-up reaches it, until it is brought back: it counts as
    /// not subscribed. (`force_release`, `take_hold` and `inspect` don't name their client, so they still work.)
    pub fn cut_off(&self, client: ClientId) {
        self.0.inject(|| self.0.wake_ups.cut_off(&client.to_string()));
    }

    /// Ends [`cut_off`](Faults::cut_off). A `Wake::Gap` tells the client that it may have missed wake-ups.
    pub fn bring_back(&self, client: ClientId) {
        if let Some(sink) = self.0.wake_ups.bring_back(&client.to_string()) {
            sink.wake(Wake::Gap);
        }
    }

    fn plan(&self, operation: Operation, fault: Fault, times: usize) {
        self.0.inject(|| self.0.plans.lock().add(operation, fault, times));
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}

#[cfg(test)]
mod tests;
