//! When what was not answered is repeated: all of one kind together, after a pause that grows with each failure.
//!
//! The pauses are those of the client, not of a claim: ten thousand holds that the server does not renew are one call
//! in each pause, not one each.

use std::time::{Duration, Instant};

use super::outage::{MINUTE, Outage};
use crate::backoff;
use crate::claim::Pauses;
use crate::shared::Config;

/// The retries of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries {
    /// How many rounds in a row had a failure.
    failures: u32,
    /// Nothing is repeated before.
    not_before: Option<Instant>,
}

impl Retries {
    pub(super) fn failed(&mut self, now: Instant, longest: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + backoff::pause_up_to(self.failures, longest));
    }

    pub(super) fn answered(&mut self) {
        *self = Retries::default();
    }

    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// There is a reason to believe that it would be answered now.
    fn hurry(&mut self, now: Instant) {
        self.not_before = self.not_before.map(|at| at.min(now));
    }
}

/// What the watchdog remembers from round to round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// How long the next one may take, judged by the last ones.
    pub(super) meanwhile: Duration,
    pub(super) renewals: Retries,
    pub(super) asks: Retries,
    pub(super) chores: Retries,
    pub(super) outage: Outage,
    /// When there was last a line about releases and withdrawals that fail, and one about a panic.
    chores_told: Option<Instant>,
    panic_told: Option<Instant>,
}

impl Rounds {
    pub(super) fn pauses(&self) -> Pauses {
        Pauses { renewals: self.renewals.not_before(), asks: self.asks.not_before() }
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        self.kinds().into_iter().for_each(|kind| kind.hurry(now));
    }

    /// Which kind of request it was about is not known. Returns whether it is to be told of.
    pub(super) fn panicked(&mut self, now: Instant, longest: Duration) -> bool {
        self.kinds().into_iter().for_each(|kind| kind.failed(now, longest));
        is_due(&mut self.panic_told, now)
    }

    /// Returns whether it is to be told of.
    pub(super) fn chore_failed(&mut self, now: Instant, longest: Duration) -> bool {
        self.chores.failed(now, longest);
        is_due(&mut self.chores_told, now)
    }

    fn kinds(&mut self) -> [&mut Retries; 3] {
        [&mut self.renewals, &mut self.asks, &mut self.chores]
    }
}

/// A line a minute at most.
fn is_due(told: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = told.is_none_or(|told| now.saturating_duration_since(told) >= MINUTE);
    if is_due {
        *told = Some(now);
    }
    is_due
}

/// The longest pause: short beside a lease and a place, so that what waits for its end has time enough after it.
pub(super) fn longest_pause(config: &Config) -> Duration {
    backoff::LONGEST.min(config.lease / 9).min(config.place_ttl / 9)
}
