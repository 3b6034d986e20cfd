//! rslock on Redis. It is made for tokio, so each thread blocks on its runtime.

use std::sync::Arc;
use std::time::Duration;

use rslock::LockManager;
use tokio::runtime::Runtime;

use crate::Outcome;
use crate::peer::{Lock, Peer};
use crate::workload::Order;

pub struct RsLock {
    runtime: Arc<Runtime>,
    manager: LockManager,
    lease: Duration,
}

pub struct Handle {
    runtime: Arc<Runtime>,
    manager: LockManager,
    name: String,
    lease: Duration,
}

impl RsLock {
    pub fn connect(url: &str, order: &Order) -> Outcome<RsLock> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(RsLock { runtime: Arc::new(runtime), manager: LockManager::new(vec![url]), lease: order.lease })
    }
}

impl Peer for RsLock {
    type Lock = Handle;

    fn lock(&self, name: &str) -> Outcome<Handle> {
        let (runtime, manager) = (Arc::clone(&self.runtime), self.manager.clone());
        Ok(Handle { runtime, manager, name: name.to_owned(), lease: self.lease })
    }
}

impl Lock for Handle {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        self.runtime.block_on(async {
            let lock =
                self.manager.acquire(self.name.as_bytes(), self.lease).await.map_err(|e| e.to_string())?;
            held();
            self.manager.unlock(&lock.lock).await;
            Ok(())
        })
    }

    fn keep(&self) -> Outcome {
        let lock = self.manager.acquire(self.name.as_bytes(), self.lease);
        // Its guard does nothing when dropped: the key stays until it expires.
        let _ = self.runtime.block_on(lock).map_err(|e| e.to_string())?;
        Ok(())
    }
}
