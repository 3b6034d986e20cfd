//! Feature `metrics`: counters, gauges and histograms of the crate of that name, which hands them to the program's recorder.
//! `docs/operating.md` has the names and labels. Without the feature nothing here does anything.
//!
//! The recorder is the program's code: it runs without any mutex of this crate, and its panics end here. Its handles are taken
//! once, when the client is built and when a lock is first counted, since a look-up by name for each event would cost more than
//! the event.

use std::time::Duration;

use super::not_granted::Outcome;
use crate::claim::{GrantedBy, Punctuality};
use crate::error::LostCause;
use crate::ids::{LockKind, LockName};

#[cfg(feature = "metrics")]
pub(crate) use recorded::{ClientMeters, Meters};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{ClientMeters, Meters};

#[cfg(feature = "metrics")]
mod recorded {
    use std::sync::atomic::{AtomicI64, Ordering};

    use metrics::{
        Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
        gauge, histogram,
    };

    use super::{Duration, GrantedBy, LockKind, LockName, LostCause, Outcome, Punctuality};
    use crate::logging::log_safely;
    use crate::stats::not_granted::{KINDS, OUTCOMES, place_of};

    pub(crate) struct Meters {
        waits: [Histogram; 3],
        not_granted: [[Counter; OUTCOMES.len()]; KINDS.len()],
        failed_waits: Histogram,
        holding: Level,
        holds: Histogram,
        line_length: Histogram,
        lost: [Counter; 5],
        renewals: Counter,
        late_renewals: Counter,
    }

    /// What has no lock.
    pub(crate) struct ClientMeters {
        waiting: Level,
        outage: Level,
    }

    /// A client's share of a gauge: clients with one recorder add up. The rest of it is taken back at the end.
    struct Level {
        gauge: Gauge,
        share: AtomicI64,
    }

    impl Level {
        const fn noop() -> Level {
            Level { gauge: Gauge::noop(), share: AtomicI64::new(0) }
        }

        fn add(&self) {
            self.share.fetch_add(1, Ordering::Relaxed);
            log_safely(|| self.gauge.increment(1.0));
        }

        fn take(&self) {
            self.share.fetch_sub(1, Ordering::Relaxed);
            log_safely(|| self.gauge.decrement(1.0));
        }

        #[allow(clippy::cast_precision_loss, reason = "no line is that long")]
        fn set(&self, now: i64) {
            let more = now.saturating_sub(self.share.swap(now, Ordering::Relaxed));
            if more != 0 {
                log_safely(|| self.gauge.increment(more as f64));
            }
        }
    }

    impl Drop for Level {
        fn drop(&mut self) {
            self.set(0);
        }
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
        describe_counter!("fairlock_not_granted_total", "Calls that ended without the lock.");
        describe_histogram!(
            "fairlock_failed_wait_seconds",
            Unit::Seconds,
            "Waits of calls that ended without the lock."
        );
        describe_gauge!("fairlock_holds", "Holds.");
        describe_gauge!("fairlock_waiting", "Requests that wait.");
        describe_gauge!("fairlock_outage", "Clients whose server does not answer.");
        describe_histogram!("fairlock_hold_seconds", Unit::Seconds, "How long finished holds lasted.");
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
                not_granted: [const { [const { Counter::noop() }; OUTCOMES.len()] }; KINDS.len()],
                failed_waits: Histogram::noop(),
                holding: Level::noop(),
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
            for (counters, kind) in self.not_granted.iter_mut().zip(KINDS) {
                for (of, (_, outcome)) in counters.iter_mut().zip(OUTCOMES) {
                    *of = counter!("fairlock_not_granted_total", "lock" => lock.clone(), "kind" => kind, "outcome" => outcome);
                }
            }
            self.failed_waits = histogram!("fairlock_failed_wait_seconds", "lock" => lock.clone());
            self.holding.gauge = gauge!("fairlock_holds", "lock" => lock.clone());
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
            self.holding.add();
        }

        pub(crate) fn not_granted(&self, kind: LockKind, outcome: Outcome, waited: Duration) {
            log_safely(|| self.not_granted[place_of(kind)][outcome as usize].increment(1));
            if outcome != Outcome::Busy {
                log_safely(|| self.failed_waits.record(waited));
            }
        }

        pub(crate) fn held(&self, held_for: Duration) {
            self.holding.take();
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

    impl ClientMeters {
        pub(crate) fn new() -> ClientMeters {
            let mut meters = ClientMeters { waiting: Level::noop(), outage: Level::noop() };
            log_safely(|| meters.waiting.gauge = gauge!("fairlock_waiting"));
            log_safely(|| meters.outage.gauge = gauge!("fairlock_outage"));
            meters
        }

        pub(crate) fn waiting(&self, now: usize) {
            self.waiting.set(i64::try_from(now).unwrap_or(i64::MAX));
        }

        pub(crate) fn outage(&self, lasts: bool) {
            self.outage.set(i64::from(lasts));
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod silent {
    use super::{Duration, GrantedBy, LockKind, LockName, LostCause, Outcome, Punctuality};

    pub(crate) struct Meters;

    pub(crate) struct ClientMeters;

    impl ClientMeters {
        pub(crate) fn new() -> ClientMeters {
            ClientMeters
        }

        pub(crate) fn waiting(&self, _: usize) {}

        pub(crate) fn outage(&self, _: bool) {}
    }

    impl Meters {
        pub(crate) fn new(_: Option<&LockName>) -> Meters {
            Meters
        }

        pub(crate) fn granted(&self, _: GrantedBy, _: Duration) {}

        pub(crate) fn not_granted(&self, _: LockKind, _: Outcome, _: Duration) {}

        pub(crate) fn held(&self, _: Duration) {}

        pub(crate) fn asked(&self, _: u64) {}

        pub(crate) fn lost(&self, _: LostCause) {}

        pub(crate) fn renewed(&self, _: Punctuality) {}
    }
}
