//! The whole conformance suite, for each kind of lock.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock_conformance::{Harness, Promise};
use fairlock_core::backend::{Backend, LockId};
use fairlock_core::{ClientId, Clock, LockKind, LockName};

use crate::FileBackend;

/// The kinds of lock that one owner holds alone, those of several units when it takes them all.
const KINDS: [LockKind; 4] =
    [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 1 }];

/// A new directory. Each `backend()` acts like one in another process.
struct Files<const KIND: usize>(std::path::PathBuf);

impl<const KIND: usize> Harness for Files<KIND> {
    fn new() -> Self {
        Files(std::env::temp_dir().join(ClientId::random().to_string()))
    }

    fn kind(&self) -> LockKind {
        KINDS[KIND]
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(FileBackend::open(&self.0).unwrap())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        let (backend, name) = (FileBackend::open(&self.0).unwrap(), LockName::new(name).unwrap());
        backend.step(&name, |entry, _| entry.lose_hold()).unwrap();
    }

    fn promises(&self, promise: Promise) -> bool {
        self.kind() != LockKind::Plain || promise == Promise::BothKinds
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let lock = LockId::new(LockName::new(name).unwrap(), self.kind());
        let state = FileBackend::open(&self.0).unwrap().inspect(&lock, 0..1).unwrap();
        assert!(state.holder().is_none() && state.queue.is_empty(), "{state:?}");
    }
}

impl<const KIND: usize> Drop for Files<KIND> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

mod fair {
    fairlock_conformance::conformance_tests!(super::Files<0>);
}

mod plain {
    fairlock_conformance::conformance_tests!(super::Files<1>, exclusive);
}

mod read_write {
    fairlock_conformance::conformance_tests!(super::Files<2>, exclusive);
}

mod permit {
    fairlock_conformance::conformance_tests!(super::Files<3>, exclusive);
}
