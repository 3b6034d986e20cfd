//! How long to pause after a failure: not at all after the first, then 50 ms, doubling to 1 s, with jitter so that clients
//! do not retry in step.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::ids::random;

const FIRST: Duration = Duration::from_millis(50);
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The pause after this many failures in a row: between half of the full pause and all of it, so that clients do not retry in step.
/// There is none after the first: that usually means only that an idle connection was closed. After the second it is 50 ms, and
/// doubles to 1 s. For a backend: before it connects again.
pub fn pause(failures: u32) -> Duration {
    pause_up_to(failures, LONGEST)
}

/// The pause before a repeat, with another longest pause.
pub(crate) fn pause_up_to(failures: u32, longest: Duration) -> Duration {
    if failures <= 1 {
        return Duration::ZERO;
    }
    let full = FIRST.saturating_mul(1 << (failures - 2).min(10)).min(longest);
    full / 2 + (full / 2).mul_f64((random() >> 11) as f64 / (1_u64 << 53) as f64)
}

/// When unanswered requests of one kind are repeated: all of a client's together, after a pause that grows with each failure. Ten
/// thousand holds that the server does not renew are one call after each pause, not one each.
#[derive(Debug, Default)]
pub(crate) struct Retries(Mutex<Failures>);

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    /// How many attempts in a row had a failure.
    in_a_row: u32,
    /// Nothing is repeated before then.
    not_before: Option<Instant>,
}

/// What a failure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The failure has led to the first real pause: there is no pause after the first failure.
    PausesBegin,
    AsBefore,
}

impl Retries {
    /// The pause counts from `since`. If the server let the attempt wait, for example for a locked row, that wait was a pause
    /// itself: a further pause would miss the moments in which the row is free.
    pub(crate) fn failed(&self, since: Instant, longest: Duration) -> AfterFailure {
        let mut failures = self.0.lock();
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        failures.not_before = Some(since + pause_up_to(failures.in_a_row, longest));
        if failures.in_a_row == 2 { AfterFailure::PausesBegin } else { AfterFailure::AsBefore }
    }

    pub(crate) fn answered(&self) {
        *self.0.lock() = Failures::default();
    }

    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.0.lock().not_before
    }

    /// Whether what has failed is to be tried again only after a pause.
    pub(crate) fn is_pausing(&self, now: Instant) -> bool {
        self.not_before().is_some_and(|at| at > now)
    }

    /// The server probably answers now.
    pub(crate) fn hurry(&self, now: Instant) {
        let mut failures = self.0.lock();
        failures.not_before = failures.not_before.map(|at| at.min(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_in_their_bounds() {
        for (failures, full) in [(0, 0), (1, 0), (2, 50), (3, 100), (6, 800), (7, 1000), (u32::MAX, 1000)] {
            for _ in 0..50 {
                let pause = pause(failures);
                assert!(pause >= Duration::from_millis(full) / 2 && pause <= Duration::from_millis(full));
            }
        }
    }

    #[test]
    fn only_the_second_failure_in_a_row_begins_to_pause() {
        let retries = Retries::default();
        let fails = || retries.failed(Instant::now(), LONGEST) == AfterFailure::PausesBegin;
        assert_eq!([fails(), fails(), fails()], [false, true, false]);
    }
}
