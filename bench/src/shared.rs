//! fairlock's read-write lock and its semaphore on Redis, each as the lock of a workload.

use std::sync::atomic::{AtomicUsize, Ordering};

use fairlock::{Client, RwLock, Semaphore};

use crate::Outcome;
use crate::peer::{Lock, Peer};

/// Every tenth hold of a handle is a write. The other workers do the same, and the driver counts on it.
const WRITE_EVERY: usize = 10;
const PERMITS: u32 = 4;

pub struct ReadWrite(pub Client);

pub struct Reader {
    lock: RwLock,
    holds: AtomicUsize,
}

impl Peer for ReadWrite {
    type Lock = Reader;

    fn lock(&self, name: &str) -> Outcome<Reader> {
        Ok(Reader { lock: self.0.rw_lock(name)?, holds: AtomicUsize::new(0) })
    }

    fn polled(&self) -> Option<u64> {
        Some(self.0.stats().granted_by_polling)
    }
}

impl Lock for Reader {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        let number = self.holds.fetch_add(1, Ordering::Relaxed) + 1;
        let guard = if number % WRITE_EVERY == 0 { self.lock.write() } else { self.lock.read() }?;
        held();
        Ok(guard.unlock()?)
    }

    fn keep(&self) -> Outcome {
        self.lock.read()?.leak();
        Ok(())
    }
}

pub struct Permits(pub Client);

impl Peer for Permits {
    type Lock = Semaphore;

    fn lock(&self, name: &str) -> Outcome<Semaphore> {
        Ok(self.0.semaphore(name, PERMITS)?)
    }

    fn polled(&self) -> Option<u64> {
        Some(self.0.stats().granted_by_polling)
    }
}

impl Lock for Semaphore {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        let guard = self.acquire()?;
        held();
        Ok(guard.unlock()?)
    }

    fn keep(&self) -> Outcome {
        self.acquire()?.leak();
        Ok(())
    }
}
