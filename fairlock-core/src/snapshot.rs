//! What a client holds and waits for at this moment.

use std::time::Duration;

use crate::ids::{FencingToken, LockKind, LockName, OwnerId};

/// A hold of this client, see [`Client::held`](crate::Client::held).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock.
    pub lock: LockName,
    /// Its kind.
    pub kind: LockKind,
    /// The owner that holds the lock.
    pub owner: OwnerId,
    /// How many units the hold takes.
    pub units: u32,
    /// The fencing token.
    pub token: FencingToken,
    /// The hold count: guards and leaked holds.
    pub hold_count: u32,
    /// How many of these holds were leaked: no guard will release them.
    pub leaked: u32,
    /// How long ago the hold was granted.
    pub held_for: Duration,
    /// For how long the hold is certain without another renewal.
    pub valid_for: Duration,
}

/// A request of this client that waits, see [`Client::waiting`](crate::Client::waiting).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitingRequest {
    /// The lock.
    pub lock: LockName,
    /// Its kind.
    pub kind: LockKind,
    /// The owner that waits for the lock.
    pub owner: OwnerId,
    /// How many units the request waits for.
    pub units: u32,
    /// How many waiters are ahead, as last heard; 0 is next. None for a plain lock, and before the first answer.
    pub rank: Option<u64>,
    /// For how long it has waited.
    pub waiting_for: Duration,
}
