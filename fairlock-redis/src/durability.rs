//! Which faults a lock survives, and the times that this takes.

use std::time::Duration;

use fairlock_core::backend::BackendError;

use crate::checks::{in_range, invalid};

/// Which faults of the server a lock survives; see [`RedisBuilder::durable`](crate::RedisBuilder::durable).
///
/// The life of a server is its past. A server that restarts empty or with an old file, is flushed, or is promoted from a replica
/// may have forgotten holds. With [`Durability::life`] it then grants nothing for one [grace](Durability::grace). Meanwhile
/// holders claim by renewing what was forgotten, and waiters get their places back, in their order.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock_redis::Durability;
/// let durability = Durability::life().trust(Duration::from_secs(5));
/// assert_eq!(durability.grace(), Duration::from_millis(5552));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is for `RedisBuilder::durable`"]
pub struct Durability {
    trust: Duration,
    skew: Duration,
}

impl Durability {
    /// A server with a new past grants nothing for one grace.
    pub fn life() -> Durability {
        Durability { trust: Duration::from_secs(10), skew: Duration::from_millis(500) }
    }

    /// Sets how long a client believes in a hold that it can't renew: no lease is longer. From 1 s to 1 h, default 10 s. All
    /// clients of a server need the same value.
    pub fn trust(mut self, time: Duration) -> Durability {
        self.trust = time;
        self
    }

    /// Sets by how much the clock of a server may jump. From 0 to 1 min, default 500 ms. All clients of a server need the same
    /// value.
    pub fn skew(mut self, time: Duration) -> Durability {
        self.skew = time;
        self
    }

    /// For how long a server with a new past grants nothing: the trust and 1 % of it, since clocks run at different rates, 2 ms,
    /// and the skew. 10.6 s by default.
    pub fn grace(&self) -> Duration {
        self.trust + self.trust / 100 + Duration::from_millis(2) + self.skew
    }

    /// The longest lease.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.trust
    }

    /// # Errors
    /// `InvalidConfig` for a time that is out of range.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        in_range("trust", self.trust, Duration::from_secs(1)..=Duration::from_secs(3600))?;
        in_range("skew", self.skew, Duration::ZERO..=Duration::from_secs(60))
    }

    /// # Errors
    /// `InvalidConfig` for a lease that is longer than the trust.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), BackendError> {
        if lease <= self.trust {
            return Ok(());
        }
        Err(invalid(format!(
            "a lease of {lease:?} is longer than the trust of {:?}: a server that has forgotten the hold could grant the lock \
             before the lease is over; shorten the lease, or raise `Durability::trust` for all clients",
            self.trust
        )))
    }
}
