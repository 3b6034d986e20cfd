//! What the rules of all locks use: the servers with the keys and scripts, and the words for a look.

use std::borrow::Borrow;
use std::sync::Arc;

use fairlock_core::backend::{BackendError, Hold, LockId};
use redis::Value;

use crate::durable::Calls;
use crate::net::{Order, Servers};
use crate::script::keys::{KeyCache, Keys};
use crate::script::{Call, CallFailure, run, run_all};
use crate::wake_ups::WakeUps;

/// Which part of a lock's state an operator wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The first rank in the queue, and how many are listed.
    pub(crate) from: u64,
    pub(crate) many: u64,
    /// How many waiters are examined for absent ones.
    pub(crate) examined: u64,
    pub(crate) kinds: Kinds,
}

/// Whether a name in use as another kind of lock is refused, or shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    This,
    Any,
}

/// Whether the request itself leaves the queue, or an operator kicks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Waiter,
    Operator,
}

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
