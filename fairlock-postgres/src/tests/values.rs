//! Locks, requests and times that tests have in common.

use std::time::Duration;

use fairlock_core::backend::{Acquire, Hold, LockId, Place, RequestId};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

#[cfg(feature = "servers")]
pub(crate) fn soon() -> std::time::Instant {
    std::time::Instant::now() + SECOND * 15
}

pub(crate) fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

/// With a place that outlives the test.
pub(crate) fn ask<'a>(lock: &'a LockId, owner: &'a OwnerId, request: u64) -> Acquire<'a> {
    let mut place = Place::new(lock, owner, RequestId::new(request));
    place.ttl = LEASE * 2;
    Acquire::new(place, LEASE)
}

/// The hold of the first request.
pub(crate) fn hold<'a>(lock: &'a LockId, owner: &'a OwnerId, token: FencingToken) -> Hold<'a> {
    Hold::new(lock, owner, RequestId::new(1), token)
}
