//! The rules that a lock follows: how each operation becomes a script, and what the reply means; and what all rules use.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldKept, LockId, LockState, Place, Released,
    RequestId, Withdrawn,
};
use redis::Value;

use crate::durable::Calls;
use crate::net::{Order, Servers};
use crate::script::keys::{KeyCache, Keys};
use crate::script::reply::Row;
use crate::script::{Call, CallFailure, reply, run, run_all};
use crate::wake_ups::WakeUps;

/// One set of rules.
pub(crate) trait Rules: Send + Sync {
    /// Whether these rules have locks of this kind.
    fn supports(&self, kind: LockKind) -> bool;

    /// The script that asks for a lock.
    fn acquire<'a>(&self, ask: &'a Acquire<'_>) -> Result<Call<'a>, BackendError>;

    /// The answer to this call, whose first reply is `reply`. Some answers need more than one script.
    fn acquired(&self, ask: &Acquire<'_>, call: &Call<'_>, reply: Value) -> Result<Acquired, BackendError>;

    /// The script that gives a hold up.
    fn release<'a>(&self, hold: &'a Hold<'_>) -> Result<Call<'a>, BackendError>;

    fn released(&self, _hold: &Hold<'_>, reply: &Value) -> Result<Released, BackendError> {
        reply::released(&Row::of(reply)?)
    }

    /// Gives the hold up, and leaves its units taken, by another request of its owner.
    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError>;

    /// A renewal of the round that begins tells this count.
    fn will_tell(&self, _count: u32) {}

    /// The script that renews holds. All have the same count and lease, the same server, and the same number of keys.
    fn renew_holds<'a>(
        &self,
        holds: &[&'a Hold<'_>],
        count: u32,
        lease: Duration,
    ) -> Result<Call<'a>, BackendError>;

    /// The script that renews places of one lock. Each place comes with the lease of its grant.
    fn renew_places<'a>(
        &self,
        lock: &LockId,
        places: &[(&'a Place<'_>, Duration)],
    ) -> Result<Call<'a>, BackendError>;

    /// The script that takes a request out of the queue.
    fn withdraw<'a>(&self, place: &'a Place<'_>, by: By) -> Result<Call<'a>, BackendError>;

    fn withdrawn(&self, _place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
        reply::withdrawn(&Row::of(reply)?)
    }

    /// Notes that the place's owner waits no longer.
    fn stop_listening(&self, _place: &Place<'_>) {}

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError>;

    /// Takes one hold away. If no message tells the holder before, its next renewal does.
    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError>;

    /// Whether an owner's place is found by its owner alone.
    fn keeps_place_by_owner(&self) -> bool {
        false
    }
}

/// The rules of locks with a queue, which can be looked at.
pub(crate) trait Queue: Rules {
    /// The script that looks at a lock.
    fn look(&self, lock: &LockId, at: &Look) -> Result<Call<'static>, BackendError>;

    /// The state in the script's reply, of a lock that was asked for as this kind.
    fn seen(&self, asked: LockKind, reply: &Value) -> Result<LockState, BackendError>;

    /// Patterns for SCAN that find the keys of locks whose names match `pattern`, beside the locks' own, and their type.
    fn keys_like(&self, pattern: &str) -> (Vec<String>, &'static str);

    /// The commands of the scripts for a lock with these keys; and the commands that only locks of several holders need.
    fn needed<'k>(&self, keys: &'k Keys, client_channel: &'k str) -> [Vec<Vec<&'k str>>; 2];
}

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
