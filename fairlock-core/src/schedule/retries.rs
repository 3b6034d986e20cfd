//! When an unanswered request is repeated: all of one kind together, after a pause that grows with each failure.
//!
//! The pauses are the client's, not a claim's: ten thousand holds that the server does not renew are one call after
//! each pause, not one each.

use std::time::{Duration, Instant};

use super::outage::{MINUTE, Outage};
use crate::backoff;
use crate::claim::Pauses;
use crate::config::Config;

/// The retries of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    /// How many rounds in a row had a failure.
    failures: u32,
    /// Nothing is repeated before then.
    not_before: Option<Instant>,
}

impl Retries {
    pub(crate) fn failed(&mut self, now: Instant, longest: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + backoff::pause_up_to(self.failures, longest));
    }

    pub(crate) fn answered(&mut self) {
        *self = Retries::default();
    }

    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// The last failure has led to the first real pause: there is none after the first failure.
    pub(crate) fn begins_to_pause(&self) -> bool {
        self.failures == 2
    }

    /// The server probably answers now.
    fn hurry(&mut self, now: Instant) {
        self.not_before = self.not_before.map(|at| at.min(now));
    }
}

/// What the watchdog remembers from round to round.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// How long the next round may take, judged by the last ones.
    pub(crate) meanwhile: Duration,
    pub(crate) renewals: Retries,
    pub(crate) asks: Retries,
    pub(crate) chores: Retries,
    pub(crate) outage: Outage,
    /// When the last line about a panic was written.
    panic_logged: Option<Instant>,
}

impl Rounds {
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { renewals: self.renewals.not_before(), asks: self.asks.not_before() }
    }

    pub(crate) fn hurry(&mut self, now: Instant) {
        self.kinds().into_iter().for_each(|kind| kind.hurry(now));
    }

    /// A round panicked; in which kind of request is not known. Returns whether it is to be logged.
    pub(crate) fn panicked(&mut self, now: Instant, longest: Duration) -> bool {
        self.kinds().into_iter().for_each(|kind| kind.failed(now, longest));
        let is_due = self.panic_logged.is_none_or(|logged| now.saturating_duration_since(logged) >= MINUTE);
        if is_due {
            self.panic_logged = Some(now);
        }
        is_due
    }

    fn kinds(&mut self) -> [&mut Retries; 3] {
        [&mut self.renewals, &mut self.asks, &mut self.chores]
    }
}

/// The longest pause. It is short beside a lease and a place's time to live, so that a retry after it still comes in time.
pub(crate) fn longest_pause(config: &Config) -> Duration {
    backoff::LONGEST.min(config.lease / 9).min(config.place_ttl / 9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Clock;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn only_the_second_failure_in_a_row_begins_to_pause() {
        let mut retries = Retries::default();
        let mut fails = || {
            retries.failed(Instant::now(), S);
            retries.begins_to_pause()
        };
        assert_eq!([fails(), fails(), fails()], [false, true, false]);
    }

    #[test]
    fn the_longest_pause_is_a_second_or_a_ninth_of_the_lease_or_of_a_place() {
        for (lease, place_ttl, longest) in [(30, 18, S), (30, 5, 5 * S / 9), (2, 5, 2 * S / 9)] {
            let (lease, place_ttl) = (lease * S, place_ttl * S);
            let config = Config { lease, place_ttl, ..Config::of_tests(Clock::system()) };
            assert_eq!(longest_pause(&config), longest);
        }
    }
}
