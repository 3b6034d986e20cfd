//! For how long a hold is valid: leases, their margins, and the limits that a handle sets.

use std::time::{Duration, Instant};

use crate::config::{LONGEST, SHORTEST, at_least};
use crate::error::{LostCause, Result};

/// How the holds of a request live and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// The watchdog renews this lease for as long as the hold lasts.
    Renewed(Duration),
    /// The hold ends by itself after this time.
    Fixed(Duration),
    /// The lease is renewed, but not beyond `limit` after the grant.
    Capped { lease: Duration, limit: Duration },
}

impl Terms {
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a duration that is too short.
    pub(crate) fn check(self) -> Result<Terms> {
        match self {
            Terms::Renewed(_) => Ok(self),
            Terms::Fixed(lease) => at_least("fixed_lease", lease, SHORTEST).map(Terms::Fixed),
            Terms::Capped { lease, limit } => {
                at_least("max_hold", limit, SHORTEST).map(|limit| Terms::Capped { lease, limit })
            }
        }
    }

    /// The lease to ask for with the lock.
    pub(crate) fn first_lease(self) -> Duration {
        match self {
            Terms::Renewed(lease) | Terms::Fixed(lease) => lease,
            Terms::Capped { lease, limit } => lease.min(limit),
        }
    }

    /// When a hold ends for good whose request was sent at `base`. By the server's clock it ends no earlier.
    pub(crate) fn end(self, base: Instant) -> Option<Instant> {
        match self {
            Terms::Renewed(_) => None,
            Terms::Fixed(time) | Terms::Capped { limit: time, .. } => base.checked_add(time),
        }
    }

    /// The lease to ask for in a renewal that is sent at `now`.
    pub(crate) fn next_lease(self, now: Instant, end: Option<Instant>) -> Duration {
        let lease = match self {
            Terms::Renewed(lease) | Terms::Fixed(lease) | Terms::Capped { lease, .. } => lease,
        };
        end.map_or(lease, |end| lease.min(end.saturating_duration_since(now)))
    }

    /// How a hold on these terms may end that no other can.
    pub(crate) fn own_end(self) -> Option<LostCause> {
        match self {
            Terms::Renewed(_) => None,
            Terms::Fixed(_) => Some(LostCause::LeaseOver),
            Terms::Capped { .. } => Some(LostCause::MaxHold),
        }
    }

    /// Why a hold on these terms expired at `now`.
    pub(crate) fn cause_of_end(self, now: Instant, end: Option<Instant>) -> LostCause {
        let ended = end.is_some_and(|end| end <= now + margin(self.first_lease()));
        match self {
            Terms::Fixed(_) if ended => LostCause::LeaseOver,
            Terms::Capped { .. } if ended => LostCause::MaxHold,
            _ => LostCause::NotRenewed,
        }
    }
}

/// What a client leaves unused of each lease, for clocks that run at different rates: 1 % and 2 ms.
pub(crate) fn margin(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Until when a client may rely on a lease that was asked for at `sent`. The client's lease counts from before the request was
/// sent, never from the answer, and so ends before the server's lease.
pub(crate) fn valid_until(sent: Instant, lease: Duration) -> Instant {
    let certain = lease.saturating_sub(margin(lease));
    sent.checked_add(certain).unwrap_or_else(|| sent + LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn validity_ends_before_the_lease() {
        let sent = Instant::now();
        assert_eq!(valid_until(sent, 30 * S), sent + Duration::from_millis(29_698));
        assert_eq!(valid_until(sent, Duration::from_millis(1)), sent);
        assert!(valid_until(sent, Duration::MAX) > sent);
    }

    #[test]
    fn the_last_renewal_of_a_capped_hold_is_cut() {
        let terms = Terms::Capped { lease: 30 * S, limit: 70 * S };
        let base = Instant::now();
        let end = terms.end(base);
        assert_eq!(terms.next_lease(base + 10 * S, end), 30 * S);
        assert_eq!(terms.next_lease(base + 50 * S, end), 20 * S);
        assert_eq!(terms.next_lease(base + 71 * S, end), Duration::ZERO);
        assert_eq!(terms.cause_of_end(base + 70 * S, end), LostCause::MaxHold);
        assert_eq!(terms.cause_of_end(base + 40 * S, end), LostCause::NotRenewed);
    }

    #[test]
    fn a_fixed_lease_that_ends_early_was_not_renewed() {
        let (terms, base) = (Terms::Fixed(30 * S), Instant::now());
        let cause = |at: Duration| terms.cause_of_end(base + at, terms.end(base));
        let early = 30 * S - margin(30 * S);
        assert_eq!(cause(early - Duration::from_nanos(1)), LostCause::NotRenewed);
        assert_eq!(cause(early), LostCause::LeaseOver);
    }

    #[test]
    fn only_limited_terms_have_an_end_of_their_own() {
        let all = [Terms::Renewed(S), Terms::Fixed(S), Terms::Capped { lease: S, limit: S }];
        assert_eq!(all.map(Terms::own_end), [None, Some(LostCause::LeaseOver), Some(LostCause::MaxHold)]);
    }

    #[test]
    fn durations_that_are_too_short_are_refused_by_name() {
        let error = Terms::Fixed(Duration::ZERO).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid configuration: the time is 0 s, it has to be from 10 ms to 100 years (fixed_lease)"
        );
        let longest = Terms::Capped { lease: S, limit: LONGEST };
        assert_eq!(Terms::Capped { lease: S, limit: Duration::MAX }.check().unwrap(), longest);
        assert!(Terms::Fixed(SHORTEST).check().is_ok());
    }
}
