//! A grant that counts only when enough replicas have it: else it is given back, and nobody has believed it.
//!
//! WAIT holds up its connection, so it goes over a connection of its own, beside those that carry the calls. It counts what
//! that connection has written: the hold is renewed there first, which is a write that comes after the grant.

use std::time::Duration;

use fairlock_core::backend::{Backend, BackendError, Hold, Place};
use fairlock_core::{FencingToken, LockKind};

use crate::RedisBackend;
use crate::builder::Discipline;
use crate::run::run_aside;
use crate::{hand_off, hold};

/// How many replicas, and how long they have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitReplicas {
    pub(crate) count: usize,
    pub(crate) within: Duration,
}

/// So much longer than the grant's the renewed lease is, so that it is a write even in the same millisecond.
const LONGER: Duration = Duration::from_millis(10);

impl RedisBackend {
    /// Called with every grant, before it is passed on: `token` is what the place has become, for `lease`.
    ///
    /// # Errors
    /// Not enough replicas have it, or nobody knows; the lock was given back as far as that could be done.
    pub(crate) fn confirm(
        &self,
        place: &Place<'_>,
        token: FencingToken,
        lease: Duration,
    ) -> Result<(), BackendError> {
        let Some(wait) = self.0.settings.replicas else { return Ok(()) };
        let hold = Hold::new(place.lock, place.owner, place.request, token);
        let renewal = match (place.lock.kind, self.0.settings.discipline) {
            (LockKind::Fair, Discipline::HandOff) => hand_off::renew_hold(&hold, 1, lease + LONGER),
            (LockKind::Fair, Discipline::Redisson) | (LockKind::Plain, _) => {
                hold::renew(&hold, 1, lease + LONGER)
            }
        };
        let confirmed = renewal.and_then(|renewal| run_aside(&self.0.servers, &renewal, wait));
        confirmed.inspect_err(|error| {
            log::warn!(
                target: "fairlock::acquire",
                event = "given back", lock = place.lock.name.as_str(), error:% = error;
                "lock {} is given back: {error}", place.lock.name
            );
            // Unanswered it ends with its lease; a repeat of the request finds it, and is confirmed or not in its turn.
            if let Err(error) = self.release(&hold, None) {
                log::debug!(
                    target: "fairlock::acquire",
                    event = "not given back", lock = place.lock.name.as_str(), error:% = error;
                    "lock {} not given back: {error}", place.lock.name
                );
            }
        })
    }
}
