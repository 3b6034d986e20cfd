//! Feature `metrics`: counters, gauges and histograms of the crate of that name, which hands them to the program's recorder.
//! `docs/reference.md` has the names and labels. Without the feature nothing here does anything.
//!
//! The recorder is the program's code: it runs without any mutex of this crate, and its panics end here. Its handles are taken
//! once, when the client is built and when a lock is first counted, since a look-up by name for each event would cost more than
//! the event.

#[cfg(feature = "metrics")]
pub(crate) use recorded::{ClientMeters, Meters};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{ClientMeters, Meters};

#[cfg(feature = "metrics")]
mod recorded {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    use metrics::{
        Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
        gauge, histogram,
    };

    use crate::backend::LockId;
    use crate::claim::{GrantedBy, Punctuality};
    use crate::error::LostCause;
    use crate::ids::{KINDS, LockKind};
    use crate::logging::log_safely;
    use crate::stats::{Event, OUTCOMES, Outcome};

    pub(crate) struct Meters {
        /// The value of the label `lock`. Empty for locks that are not counted singly: the number of series is bounded.
        lock: String,
        waits: [Histogram; 3],
        /// The counters of each kind that the lock is used as.
        not_granted: [OnceLock<[Counter; OUTCOMES.len()]>; KINDS.len()],
        failed_waits: Histogram,
        holding: Level,
        holds: Histogram,
        /// Plain locks have no queue.
        queue_length: OnceLock<Histogram>,
        /// The counter of each cause that the lock's losses can have.
        lost: [OnceLock<Counter>; CAUSES.len()],
        slow_waits: Counter,
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

        #[allow(clippy::cast_precision_loss, reason = "no queue is that long")]
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
        describe_counter!("fairlock_slow_waits_total", "Slow waits that the log explains.");
        describe_gauge!("fairlock_holds", "Holds.");
        describe_gauge!("fairlock_waiting", "Requests that wait.");
        describe_gauge!("fairlock_outage", "Clients whose store does not answer.");
        describe_histogram!("fairlock_hold_seconds", Unit::Seconds, "How long finished holds lasted.");
        describe_histogram!("fairlock_queue_length", "Waiters ahead of a request when it joined the queue.");
        describe_counter!("fairlock_lost_total", "Lost holds.");
        describe_counter!("fairlock_renewals_total", "Renewals of holds that were answered.");
        describe_counter!("fairlock_late_renewals_total", "Renewals of holds that were late.");
    }

    impl Meters {
        /// The meters of one lock, for what can happen to it: their series begin at zero, since a series that appears with its first
        /// event shows no increase. None: the meters of all other locks, to which anything can happen.
        pub(crate) fn new(lock: Option<&LockId>) -> Meters {
            if lock.is_none() {
                log_safely(describe);
            }
            let mut meters = Meters {
                lock: lock.map_or("", |lock| lock.name.as_str()).to_owned(),
                waits: [const { Histogram::noop() }; 3],
                not_granted: [const { OnceLock::new() }; KINDS.len()],
                failed_waits: Histogram::noop(),
                holding: Level::noop(),
                holds: Histogram::noop(),
                queue_length: OnceLock::new(),
                lost: [const { OnceLock::new() }; CAUSES.len()],
                slow_waits: Counter::noop(),
                renewals: Counter::noop(),
                late_renewals: Counter::noop(),
            };
            log_safely(|| meters.register());
            let is_any = |place: usize| lock.is_none_or(|lock| lock.kind.place() == place);
            (0..KINDS.len())
                .filter(|place| is_any(*place))
                .for_each(|place| _ = meters.not_granted_of(place));
            if lock.is_none_or(|lock| lock.kind != LockKind::Plain) {
                meters.queue_length();
            }
            let is_own_end = |cause| matches!(cause, LostCause::LeaseOver | LostCause::MaxHold);
            for (cause, _) in CAUSES {
                if lock.is_none() || !is_own_end(cause) {
                    meters.lost_by(cause);
                }
            }
            meters
        }

        fn register(&mut self) {
            let lock = &self.lock;
            for (of, by) in self.waits.iter_mut().zip(WAYS) {
                *of = histogram!("fairlock_wait_seconds", "lock" => lock.clone(), "by" => by.name());
            }
            self.failed_waits = histogram!("fairlock_failed_wait_seconds", "lock" => lock.clone());
            self.holding.gauge = gauge!("fairlock_holds", "lock" => lock.clone());
            self.holds = histogram!("fairlock_hold_seconds", "lock" => lock.clone());
            self.slow_waits = counter!("fairlock_slow_waits_total", "lock" => lock.clone());
            self.renewals = counter!("fairlock_renewals_total", "lock" => lock.clone());
            self.late_renewals = counter!("fairlock_late_renewals_total", "lock" => lock.clone());
        }

        fn not_granted_of(&self, place: usize) -> &[Counter; OUTCOMES.len()] {
            self.not_granted[place].get_or_init(|| {
                let mut counters = [const { Counter::noop() }; OUTCOMES.len()];
                let kind = KINDS[place];
                log_safely(|| {
                    for (of, (_, outcome)) in counters.iter_mut().zip(OUTCOMES) {
                        *of = counter!("fairlock_not_granted_total", "lock" => self.lock.clone(), "kind" => kind, "outcome" => outcome);
                    }
                });
                counters
            })
        }

        fn queue_length(&self) -> &Histogram {
            self.queue_length.get_or_init(|| {
                let mut length = Histogram::noop();
                log_safely(|| length = histogram!("fairlock_queue_length", "lock" => self.lock.clone()));
                length
            })
        }

        fn lost_by(&self, of: LostCause) -> Option<&Counter> {
            let at = CAUSES.iter().position(|(cause, _)| *cause == of)?;
            Some(self.lost[at].get_or_init(|| {
                let mut lost = Counter::noop();
                log_safely(|| {
                    lost =
                        counter!("fairlock_lost_total", "lock" => self.lock.clone(), "cause" => CAUSES[at].1)
                });
                lost
            }))
        }

        pub(crate) fn record(&self, kind: LockKind, event: Event) {
            match event {
                #[allow(clippy::cast_precision_loss, reason = "no queue is that long")]
                Event::Asked(waiters_ahead) => {
                    log_safely(|| self.queue_length().record(waiters_ahead as f64))
                }
                Event::SlowWait => log_safely(|| self.slow_waits.increment(1)),
                Event::Granted { by, waited, own_end } => {
                    own_end.map(|cause| self.lost_by(cause));
                    let way = WAYS.iter().position(|way| *way == by);
                    if let Some(waits) = way.and_then(|at| self.waits.get(at)) {
                        log_safely(|| waits.record(waited));
                    }
                    self.holding.add();
                }
                Event::NotGranted(outcome, waited) => {
                    let counters = self.not_granted_of(kind.place());
                    log_safely(|| counters[outcome as usize].increment(1));
                    if outcome != Outcome::Busy {
                        log_safely(|| self.failed_waits.record(waited));
                    }
                }
                Event::Renewed(punctuality) => {
                    log_safely(|| self.renewals.increment(1));
                    if punctuality == Punctuality::Late {
                        log_safely(|| self.late_renewals.increment(1));
                    }
                }
                Event::Held(time) => {
                    self.holding.take();
                    log_safely(|| self.holds.record(time));
                }
                Event::Lost(cause) => {
                    if let Some(lost) = self.lost_by(cause) {
                        log_safely(|| lost.increment(1));
                    }
                }
                Event::PlaceLost => {}
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
    use crate::backend::LockId;
    use crate::ids::LockKind;
    use crate::stats::Event;

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
        pub(crate) fn new(_: Option<&LockId>) -> Meters {
            Meters
        }

        pub(crate) fn record(&self, _: LockKind, _: Event) {}
    }
}
