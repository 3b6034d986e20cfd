//! Feature `metrics`: counters and histograms of the crate of that name, which hands them to the program's recorder.
//! `docs/operating.md` has the names and labels. Without the feature nothing here does anything.
//!
//! The recorder is the program's code: it runs without any mutex of this crate, and its panics end here. Its handles are taken
//! once, when the client is built and when a lock is first counted, since a look-up by name for each event would cost more than
//! the event.

use std::time::Duration;

use crate::claim::{GrantedBy, Punctuality};
use crate::{LockName, LostCause};

#[cfg(feature = "metrics")]
pub(crate) use recorded::Meters;
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::Meters;

#[cfg(feature = "metrics")]
mod recorded {
    use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

    use super::{Duration, GrantedBy, LockName, LostCause, Punctuality};
    use crate::logging::log_safely;

    pub(crate) struct Meters {
        waits: [Histogram; 3],
        holds: Histogram,
        line_length: Histogram,
        lost: [Counter; 5],
        renewals: Counter,
        late_renewals: Counter,
    }

    const WAYS: [GrantedBy; 3] = [GrantedBy::FirstAsk, GrantedBy::WakeUp, GrantedBy::Polling];

    /// With the value of the label `cause`.
    const CAUSES: [(LostCause, &str); 5] = [
        (LostCause::NotRenewed, "not_renewed"),
        (LostCause::LeaseOver, "lease_over"),
        (LostCause::MaxHold, "max_hold"),
        (LostCause::Taken, "taken"),
        (LostCause::Shutdown, "shutdown"),
    ];

    /// What an exporter shows as help.
    fn describe() {
        describe_histogram!("fairlock_wait_seconds", Unit::Seconds, "How long granted requests waited.");
        describe_histogram!("fairlock_hold_seconds", Unit::Seconds, "How long holds lasted that are over.");
        describe_histogram!("fairlock_line_length", "Waiters ahead of a request when it joined the line.");
        describe_counter!("fairlock_lost_total", "Lost holds.");
        describe_counter!("fairlock_renewals_total", "Renewals of holds that were answered.");
        describe_counter!("fairlock_late_renewals_total", "Renewals of holds that were late.");
    }

    impl Meters {
        /// Their label `lock` is empty for all locks that are not counted one by one: the number of series is bounded.
        pub(crate) fn new(lock: Option<&LockName>) -> Meters {
            if lock.is_none() {
                log_safely(describe);
            }
            let lock = lock.map_or("", LockName::as_str);
            let mut meters = Meters {
                waits: [const { Histogram::noop() }; 3],
                holds: Histogram::noop(),
                line_length: Histogram::noop(),
                lost: [const { Counter::noop() }; 5],
                renewals: Counter::noop(),
                late_renewals: Counter::noop(),
            };
            log_safely(|| meters.register(lock.to_owned()));
            meters
        }

        fn register(&mut self, lock: String) {
            for (of, by) in self.waits.iter_mut().zip(WAYS) {
                *of = histogram!("fairlock_wait_seconds", "lock" => lock.clone(), "by" => by.name());
            }
            for (of, (_, cause)) in self.lost.iter_mut().zip(CAUSES) {
                *of = counter!("fairlock_lost_total", "lock" => lock.clone(), "cause" => cause);
            }
            self.holds = histogram!("fairlock_hold_seconds", "lock" => lock.clone());
            self.line_length = histogram!("fairlock_line_length", "lock" => lock.clone());
            self.renewals = counter!("fairlock_renewals_total", "lock" => lock.clone());
            self.late_renewals = counter!("fairlock_late_renewals_total", "lock" => lock);
        }

        pub(crate) fn granted(&self, by: GrantedBy, waited: Duration) {
            let way = WAYS.iter().position(|way| *way == by);
            if let Some(waits) = way.and_then(|at| self.waits.get(at)) {
                log_safely(|| waits.record(waited));
            }
        }

        pub(crate) fn held(&self, held_for: Duration) {
            log_safely(|| self.holds.record(held_for));
        }

        pub(crate) fn asked(&self, waiters_ahead: u64) {
            #[allow(clippy::cast_precision_loss, reason = "no line is that long")]
            log_safely(|| self.line_length.record(waiters_ahead as f64));
        }

        pub(crate) fn lost(&self, of: LostCause) {
            let at = CAUSES.iter().position(|(cause, _)| *cause == of);
            if let Some(lost) = at.and_then(|at| self.lost.get(at)) {
                log_safely(|| lost.increment(1));
            }
        }

        pub(crate) fn renewed(&self, punctuality: Punctuality) {
            log_safely(|| self.renewals.increment(1));
            if punctuality == Punctuality::Late {
                log_safely(|| self.late_renewals.increment(1));
            }
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod silent {
    use super::{Duration, GrantedBy, LockName, LostCause, Punctuality};

    pub(crate) struct Meters;

    impl Meters {
        pub(crate) fn new(_: Option<&LockName>) -> Meters {
            Meters
        }

        pub(crate) fn granted(&self, _: GrantedBy, _: Duration) {}

        pub(crate) fn held(&self, _: Duration) {}

        pub(crate) fn asked(&self, _: u64) {}

        pub(crate) fn lost(&self, _: LostCause) {}

        pub(crate) fn renewed(&self, _: Punctuality) {}
    }
}
