//! The times of durable clients, and what follows from them.

use std::time::Duration;

use fairlock_core::backend::{BackendError, in_words};

use crate::checks::{in_range, invalid};
use crate::net::{Arrangement, MajorityTerms};
use crate::script::arguments::millis;

/// How long durable clients believe what a server told them, and how far clocks may differ; see
/// [`RedisBuilder::durable`](crate::RedisBuilder::durable).
///
/// The life of a server is its past. A server that restarts empty or with an old file, is flushed, or is promoted from a replica
/// may have forgotten holds. For one grace it then grants nothing: holders reclaim forgotten holds by their renewals, and
/// waiters get their places back in order. In a cluster each hash slot has its own life, which is new as well when the slot
/// moves to another node.
///
/// Behind sentinels, and in a cluster, a request is only sent to a server that a majority has named within the last quarter of the
/// trust: most sentinels as the master, or most nodes of the cluster, replicas too, as the node that keeps the lock's hash slot.
/// So a master that was deposed and still answers grants nothing that a client believes in once the new master grants locks.
///
/// - **The longest lease** is the trust; with a majority three quarters of it: 7.5 s by default.
/// - **The grace** is the longest lease, with a majority and the trust; 1 % of that, since clocks run at different rates; 2 ms; and
///   the skew. By default 10.6 s, and 18.2 s with a majority.
///
/// ```no_run
/// # use std::time::Duration;
/// # use fairlock_redis::{Durability, RedisBackend};
/// let durability = Durability::default().trust(Duration::from_secs(20));
/// let backend = RedisBackend::builder("redis://localhost").durable(durability).connect()?;
/// # Ok::<(), fairlock_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is for `RedisBuilder::durable`"]
pub struct Durability {
    asks_quorum: bool,
    trust: Duration,
    pub(crate) skew: Duration,
}

impl Default for Durability {
    /// A trust of 10 s, and a skew of 500 ms.
    fn default() -> Durability {
        Durability { asks_quorum: false, trust: Duration::from_secs(10), skew: Duration::from_millis(500) }
    }
}

impl Durability {
    /// The times for clients of these servers: with a majority if there is one to ask.
    pub(crate) fn among(self, servers: Arrangement) -> Durability {
        Durability { asks_quorum: servers != Arrangement::Single, ..self }
    }

    /// Sets how long a client believes an answer of a server; with a majority, from when the client last asked that majority. From 1 s
    /// to 1 h, default 10 s. All clients of a server need the same value.
    pub fn trust(mut self, time: Duration) -> Durability {
        self.trust = time;
        self
    }

    /// Sets by how much the clock of a server may jump, and by how much the clocks of two servers may differ. From 0 to 1 min,
    /// default 500 ms. All clients of a server need the same value.
    pub fn skew(mut self, time: Duration) -> Durability {
        self.skew = time;
        self
    }

    /// The longest lease that a lock can have: the trust, and with a quorum three quarters of it (7.5 s by default).
    pub(crate) fn longest_lease(&self) -> Duration {
        if self.asks_quorum { self.trust - self.proof_age() } else { self.trust }
    }

    /// How long ago a quorum may have been asked when a request is sent.
    fn proof_age(&self) -> Duration {
        self.trust / 4
    }

    /// For how long a server with a new past grants nothing: the longest lease, with a quorum and the trust; 1 % of that, since
    /// clocks run at different rates; 2 ms; and the skew. By default 10.6 s, and 18.2 s with a quorum.
    pub(crate) fn grace(&self) -> Duration {
        let time = if self.asks_quorum { self.longest_lease() + self.trust } else { self.trust };
        time + time / 100 + Duration::from_millis(2) + self.skew
    }

    pub(crate) fn asks_quorum(&self) -> bool {
        self.asks_quorum
    }

    /// How the answers of a quorum count; none if there is none. A voter counts once each proof that it may have been part of
    /// before it started has ended: after the trust, 1 % of that, since clocks run at different rates, the skew, and a second, by
    /// which a time in whole seconds may be too long.
    pub(crate) fn majority_terms(&self) -> Option<MajorityTerms> {
        let least = self.trust + self.trust / 100 + self.skew + Duration::from_secs(1);
        self.asks_quorum.then_some(MajorityTerms { proof_age: self.proof_age(), least_uptime: least })
    }

    /// What the scripts need to know (milliseconds), see `scripts/lib/life.lua`: for how much longer the server keeps a hold than
    /// its holder believes in it, and the grace. With a quorum, a lease and what is kept are a grace: the holder may have reclaimed
    /// its lock at a new master while another client trusts this server, whose clock may jump.
    pub(super) fn arguments(&self) -> [u64; 2] {
        let grace = millis(self.grace());
        [if self.asks_quorum { grace - millis(self.longest_lease()) } else { 0 }, grace]
    }

    /// # Errors
    /// `InvalidConfig` for a time that is out of range.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        in_range("trust", self.trust, Duration::from_secs(1)..=Duration::from_secs(3600))?;
        in_range("skew", self.skew, Duration::ZERO..=Duration::from_secs(60))
    }

    /// # Errors
    /// `InvalidConfig` for a lease that is longer than the longest.
    pub(super) fn check_lease(&self, lease: Duration) -> Result<(), BackendError> {
        let longest = self.longest_lease();
        if lease <= longest {
            return Ok(());
        }
        Err(invalid(format!(
            "a lease of {} is longer than {}, the longest with a trust of {}: a server that has forgotten the \
             hold could grant the lock before the lease is over; shorten the lease, or raise `Durability::trust` for all clients",
            in_words(lease),
            in_words(longest),
            in_words(self.trust)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::backend::BackendErrorKind;

    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// The times for a single server, and with a majority.
    fn both() -> [Durability; 2] {
        [Arrangement::Single, Arrangement::Sentinels].map(|servers| Durability::default().among(servers))
    }

    #[test]
    fn a_grace_outlasts_all_that_a_client_may_still_believe() {
        let [life, quorum] = both();
        assert_eq!([life.longest_lease(), quorum.longest_lease()], [ms(10_000), ms(7_500)]);
        assert_eq!([life.grace(), quorum.grace()], [ms(10_602), ms(18_177)]);
        let other = |durability: Durability| durability.trust(seconds(20)).skew(seconds(1));
        assert_eq!([life, quorum].map(|durability| other(durability).grace()), [ms(21_202), ms(36_352)]);
    }

    #[test]
    fn a_server_of_a_quorum_keeps_a_hold_for_a_whole_grace() {
        assert_eq!(both()[0].arguments(), [0, 10_602]);
        assert_eq!(both()[1].arguments(), [10_677, 18_177]);
    }

    #[test]
    fn only_a_quorum_has_terms_for_its_voters() {
        let [life, quorum] = both();
        assert!(life.majority_terms().is_none() && !life.asks_quorum() && quorum.asks_quorum());
        let terms = quorum.majority_terms().unwrap();
        assert_eq!((terms.proof_age, terms.least_uptime), (ms(2_500), ms(11_600)));
    }

    #[test]
    fn times_have_bounds() {
        let usual = Durability::default();
        for (trust, skew) in [(seconds(1), Duration::ZERO), (seconds(3600), seconds(60))] {
            assert!(usual.trust(trust).skew(skew).check().is_ok());
        }
        for out in [
            usual.trust(seconds(1) - NANOSECOND),
            usual.trust(seconds(3600) + NANOSECOND),
            usual.skew(seconds(60) + NANOSECOND),
        ] {
            let error = out.check().unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
            assert!(error.to_string().contains("it has to be"), "{error}");
        }
    }

    #[test]
    fn a_lease_is_at_most_the_longest() {
        let [_, quorum] = both();
        assert!(quorum.check_lease(ms(7_500)).is_ok());
        let error = quorum.check_lease(ms(7_500) + NANOSECOND).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
    }
}
