//! The whole conformance suite, at a time that the cases move.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlock_conformance::time::{Moved, pass_beside};
use fairlock_conformance::{Harness, Promise};
use fairlock_core::backend::{Backend, LockId};
use fairlock_core::{ClientId, Clock, LockKind, LockName, ManualClock};

use crate::FileBackend;
use crate::machine::Machine;

/// A new directory. Each `backend()` acts like one in another process.
struct Files {
    dir: PathBuf,
    /// Of the clients.
    clock: ManualClock,
    /// Of the machine, in microseconds.
    time: Arc<AtomicU64>,
}

impl Files {
    fn open(&self) -> FileBackend {
        let mut machine = Machine::of_boot(1);
        (machine.moved, machine.bound) = (Some(self.time.clone()), Duration::from_secs(10));
        FileBackend::open_on(&self.dir, machine).unwrap()
    }
}

impl Harness for Files {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(ClientId::random().to_string());
        Files { dir, clock: ManualClock::new(), time: Arc::new(AtomicU64::new(1)) }
    }

    fn kind(&self) -> LockKind {
        LockKind::Fair
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Moved::new(self.open())
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    fn pass(&self, time: Duration) {
        pass_beside(&self.clock, time, |step| {
            self.time.fetch_add(u64::try_from(step.as_micros()).unwrap(), Ordering::SeqCst);
        });
    }

    fn lose_hold(&self, name: &str) {
        self.open().step(&LockName::new(name).unwrap(), |entry, _| entry.lose_hold()).unwrap();
    }

    fn promises(&self, _: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let lock = LockId::new(LockName::new(name).unwrap(), self.kind());
        let state = self.open().inspect(&lock, 0..1).unwrap();
        assert!(state.holder().is_none() && state.queue.is_empty(), "{state:?}");
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

mod fair {
    fairlock_conformance::conformance_tests!(super::Files);
}
