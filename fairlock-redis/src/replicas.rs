//! A grant that counts only once enough replicas have it; otherwise it is released before any caller believes it.
//!
//! WAIT blocks its connection, so it has one of its own beside those for calls. It counts the writes of its own
//! connection, so the hold is renewed there first: that write follows the grant.

use std::time::Duration;

use fairlock_core::FencingToken;
use fairlock_core::backend::{Backend, BackendError, Hold, Place};

use crate::disciplines::hold;
use crate::inner::RedisBackend;
use crate::run::run_and_replicate;

/// How much longer the renewed lease is than that of the grant, so that it is a write even in the same millisecond.
const LONGER: Duration = Duration::from_millis(10);

impl RedisBackend {
    /// Called with every grant before it is passed on: the place has become a hold with this `token`, for `lease`.
    ///
    /// # Errors
    /// Not enough replicas have the grant, or that is not known. The lock was released, if that could be done.
    pub(crate) fn confirm(
        &self,
        place: &Place<'_>,
        token: FencingToken,
        lease: Duration,
    ) -> Result<(), BackendError> {
        let Some(wait) = self.0.settings.replicas else { return Ok(()) };
        let hold = Hold::new(place.lock, place.owner, place.request, token);
        let rules = self.0.rules(place.lock);
        let renewal = hold::renew(&self.0, rules, &[&hold], 1, lease + LONGER);
        let confirmed = renewal.and_then(|renewal| run_and_replicate(&self.0.servers, &renewal, wait));
        confirmed.inspect_err(|error| {
            log::warn!(
                target: "fairlock::acquire",
                event = "released", lock = place.lock.name.as_str(), error:% = error;
                "lock {} is released: {error}", place.lock.name
            );
            // If this fails the hold ends with its lease; a repeat of the request finds it, and is confirmed in its turn.
            if let Err(error) = self.release(&hold, None) {
                log::debug!(
                    target: "fairlock::acquire",
                    event = "not released", lock = place.lock.name.as_str(), error:% = error;
                    "lock {} is not released: {error}", place.lock.name
                );
            }
        })
    }
}
