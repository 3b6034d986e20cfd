//! The conformance suite on the memory backend, in virtual time: fair and plain.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::Backend;
use fairlock_core::conformance::{Harness, Promise};
use fairlock_core::{Client, Clock, LockKind, ManualClock};
use fairlock_memory::MemoryBackend;

/// A store, and the clock that it shares with its clients.
struct Memory {
    kind: LockKind,
    clock: ManualClock,
    store: MemoryBackend,
}

impl Memory {
    fn of(kind: LockKind) -> Memory {
        let clock = ManualClock::new();
        let store = MemoryBackend::with_clock(clock.clone());
        Memory { kind, clock, store }
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let client = Client::builder(self.store.clone()).clock(self.clock.clone()).build().unwrap();
        let state = client.fair_lock(name).unwrap().inspect().unwrap();
        assert!(state.holder.is_none() && state.line.is_empty(), "{state:?}");
    }
}

macro_rules! harness {
    ($name:ident, $kind:expr, $promises:expr) => {
        struct $name(Memory);

        impl Harness for $name {
            fn new() -> Self {
                $name(Memory::of($kind))
            }

            fn kind(&self) -> LockKind {
                self.0.kind
            }

            fn backend(&self) -> Arc<dyn Backend> {
                Arc::new(self.0.store.clone())
            }

            fn clock(&self) -> Clock {
                self.0.clock.clone().into()
            }

            fn pass(&self, time: Duration) {
                self.0.clock.advance(time);
            }

            fn lose_hold(&self, name: &str) {
                self.0.store.faults().lose_hold(name);
            }

            fn promises(&self, _promise: Promise) -> bool {
                $promises
            }

            fn assert_nothing_is_left(&self, name: &str) {
                self.0.assert_nothing_is_left(name);
            }
        }
    };
}

harness!(Fair, LockKind::Fair, true);
harness!(Plain, LockKind::Plain, false);

mod fair {
    fairlock_core::conformance_tests!(super::Fair);
}

mod plain {
    fairlock_core::conformance_tests!(super::Plain);
}
