//! What all operations of a backend use.

use std::borrow::Borrow;
use std::sync::Arc;

use fairlock_core::backend::{BackendError, Hold, LockId};
use redis::Value;

use crate::durable::Calls;
use crate::net::{Order, Servers};
use crate::script::keys::{KeyCache, Keys};
use crate::script::{Call, CallFailure, run, run_all};
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

    /// Runs one script, and sends the messages that the script could not.
    pub(crate) fn run(&self, call: &Call<'_>) -> Result<Value, BackendError> {
        let mut reply = run(&self.servers, call)?;
        self.wake_ups.untold.send([(call.lock(), &mut reply)]);
        Ok(reply)
    }

    /// Runs many scripts, see [`run_all`], and sends the messages that the scripts could not.
    pub(crate) fn run_all<'a, C: Borrow<Call<'a>> + Sync>(
        &self,
        calls: &[C],
        order: Order,
    ) -> Vec<Result<Value, CallFailure>> {
        let mut answers = run_all(&self.servers, calls, order);
        self.wake_ups.untold.send(
            answers
                .iter_mut()
                .zip(calls)
                .filter_map(|(answer, call)| Some((call.borrow().lock(), answer.as_mut().ok()?))),
        );
        answers
    }
}
