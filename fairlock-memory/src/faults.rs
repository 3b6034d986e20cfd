//! Faults on demand: tests make calls fail, lose replies and wake-ups, and cut clients off.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::Wake;
use fairlock_core::{ClientId, LockName};

use crate::plans::{Fault, Operation};
use crate::shared::Shared;

/// Injects faults into a [`MemoryBackend`](crate::MemoryBackend), from
/// [`MemoryBackend::faults`](crate::MemoryBackend::faults). Clones share everything.
///
/// Plans add up. A delayed call can also fail or lose its reply. A call that fails has no reply to lose, so a
/// [`lose_reply`](Faults::lose_reply) is kept for the first call that is carried out.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

impl Faults {
    pub(crate) fn of(shared: Arc<Shared>) -> Faults {
        Faults(shared)
    }

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
    /// not subscribed. (`force_release`, `take_hold`, `kick` and `inspect` don't name their client, so they still work.)
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
