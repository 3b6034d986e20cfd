//! The conformance suite in memory with virtual time. After each case nothing may be left: no entry, no thread.

use std::sync::Arc;
use std::time::Duration;

use fairlock::MemoryBackend;
use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{Backend, LockId};
use fairlock::settings::Clock;
use fairlock::testing::ManualClock;
use fairlock_conformance::{Harness, Promise};
use fairlock_tests::Alone;

/// A store in memory, and the clock that it shares with its clients. The cases take fair locks, or those of a semaphore with one permit.
struct InMemory<const PERMIT: bool> {
    clock: ManualClock,
    store: MemoryBackend,
    _alone: Alone,
}

impl<const PERMIT: bool> Harness for InMemory<PERMIT> {
    fn new() -> Self {
        let (alone, clock) = (Alone::here(), ManualClock::new());
        InMemory { store: MemoryBackend::with_clock(clock.clone()), clock, _alone: alone }
    }

    fn kind(&self) -> LockKind {
        if PERMIT { LockKind::Semaphore { permits: 1 } } else { LockKind::Fair }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn lose_hold(&self, name: &str) {
        self.store.faults().lose_hold(name);
    }

    fn promises(&self, _promise: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, name: &str) {
        // While it is in use a lock of another kind is an error.
        let lock = LockId::new(LockName::new(name).unwrap(), self.kind());
        let state = self.store.inspect(&lock, 0..1).unwrap();
        assert!(state.holder().is_none() && state.queue.is_empty(), "{state:?}");
    }
}

mod memory_fair {
    fairlock_conformance::conformance_tests!(super::InMemory<false>);
}

mod memory_one_permit {
    fairlock_conformance::conformance_tests!(super::InMemory<true>, exclusive);
}
