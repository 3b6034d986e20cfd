//! What all operations of a backend use.

use std::sync::Arc;

use fairlock_core::backend::{BackendError, Hold, LockId};
use redis::Value;

use crate::durable::Calls;
use crate::net::Servers;
use crate::script::key_cache::KeyCache;
use crate::script::keys::Keys;
use crate::script::run::{Call, run};
use crate::wake_ups::WakeUps;

/// The servers, and what the operations share.
pub(crate) struct Shared {
    pub(crate) servers: Servers,
    pub(crate) calls: Calls,
    pub(crate) wake_ups: WakeUps,
    pub(crate) key_cache: KeyCache,
}

impl Shared {
    /// # Errors
    /// As [`Keys::of`].
    pub(crate) fn keys(&self, lock: &LockId) -> Result<Arc<Keys>, BackendError> {
        self.key_cache.of(lock)
    }

    /// The keys of the lock of each hold.
    ///
    /// # Errors
    /// As [`Keys::of`].
    pub(crate) fn keys_of(&self, holds: &[&Hold<'_>]) -> Result<Vec<Arc<Keys>>, BackendError> {
        holds.iter().map(|hold| self.keys(hold.lock)).collect()
    }

    pub(crate) fn run(&self, call: &Call<'_>) -> Result<Value, BackendError> {
        run(&self.servers, call)
    }
}
