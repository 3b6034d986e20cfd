//! Feature `metrics`: what is recorded when, by which label, and that a lock's series are asked for once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

use super::scene::*;
use super::store::{Op, queued};
use super::support::{S, World};
use crate::backend::LockId;
use crate::claim::GrantedBy;
use crate::stats::{Counters, Event, Outcome};
use crate::{LockKind, LockName, LostCause};

/// Keeps what is recorded, and which series were asked for.
#[derive(Default)]
struct Records {
    recorded: Arc<Mutex<Vec<(String, f64)>>>,
    registered: Mutex<BTreeMap<String, u32>>,
}

/// One series: the name, and the labels as `name=value`.
struct Series {
    name: String,
    recorded: Arc<Mutex<Vec<(String, f64)>>>,
}

impl Records {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        *self.registered.lock().entry(name.clone()).or_default() += 1;
        Arc::new(Series { name, recorded: Arc::clone(&self.recorded) })
    }

    /// What was recorded since the last call, in series whose name begins so.
    fn of(&self, name: &str) -> Vec<(String, f64)> {
        let all = std::mem::take(&mut *self.recorded.lock());
        all.into_iter().filter(|(series, _)| series.starts_with(name)).collect()
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.recorded.lock().push((self.name.clone(), value));
    }
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        self.record(by as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        self.record(by);
    }

    fn decrement(&self, by: f64) {
        self.record(-by);
    }

    fn set(&self, _: f64) {}
}

impl Recorder for Records {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

fn named(name: &str, kind: LockKind) -> LockId {
    LockId::new(LockName::new(name).unwrap(), kind)
}

fn fair(name: &str) -> LockId {
    named(name, LockKind::Fair)
}

fn granted(own_end: Option<LostCause>) -> Event {
    Event::Granted { by: GrantedBy::FirstAsk, waited: S, own_end }
}

/// A lock that is counted singly has the series of its kind and terms. What can't happen to a lock has no series; what can has
/// one from the beginning.
#[test]
fn a_lock_has_the_series_of_its_kind_and_terms() {
    let records = Records::default();
    metrics::with_local_recorder(&records, || {
        let counters = Counters::new(9);
        let grant = |lock: &LockId, own_end| counters.meter(lock, granted(own_end));
        grant(&fair("fair"), None);
        grant(&fair("fixed"), Some(LostCause::LeaseOver));
        grant(&fair("capped"), Some(LostCause::MaxHold));
        grant(&named("plain", LockKind::Plain), None);
        grant(&named("permits", LockKind::Semaphore { permits: 2 }), None);
        // The same name as another kind.
        grant(&named("both", LockKind::Plain), None);
        counters.happened(&fair("both"), Event::NotGranted(Outcome::Busy, S));
        counters.meter(&fair("both"), Event::Asked(0));
    });
    let registered = records.registered.lock();
    assert!(registered.values().all(|times| *times == 1), "{registered:?}");
    let of = |lock: &str, part: &str| {
        let label = format!(" lock={lock} ");
        let is_it = |series: &&String| series.contains(part) && format!("{series} ").contains(&label);
        registered.keys().filter(is_it).count()
    };
    let all =
        |lock| [of(lock, ""), of(lock, "not_granted"), of(lock, "lost_total"), of(lock, "queue_length")];
    assert_eq!(all("fair"), [18, 5, 3, 1]);
    assert_eq!(all("fixed"), [19, 5, 4, 1]);
    assert_eq!(all("capped"), [19, 5, 4, 1]);
    assert_eq!(all("plain"), [17, 5, 3, 0]);
    assert_eq!(all("permits"), [18, 5, 3, 1]);
    assert_eq!(all("both"), [23, 10, 3, 1]);
    assert_eq!(of("permits", "kind=semaphore"), 5);
    assert_eq!(of("fixed", "cause=lease_over"), 1);
}

#[test]
fn the_length_of_a_queue_is_recorded_when_a_request_joins_it() {
    let records = Records::default();
    let s = metrics::with_local_recorder(&records, threads);
    let joined = |lengths: &[f64]| {
        let recorded = records.of("fairlock_queue_length").into_iter().map(|(_, ahead)| ahead);
        assert_eq!(recorded.collect::<Vec<_>>(), lengths);
    };
    s.a().locks().unlocks().done();
    joined(&[0.0]);
    s.acquire().says([rank(3), rank(2), BUSY]).b().requests();
    joined(&[3.0]);
    s.b().is_woken().rank(2).is_pushed(9).waits().gets(9).unlocks().done();
    joined(&[]); // each is recorded once
    s.c().plain().requests().d().plain().locks().unlocks().done();
    joined(&[]); // a plain lock has no queue
}

/// A call without the lock is recorded by kind and outcome and its wait unless it had none.
#[test]
fn a_call_without_the_lock_is_recorded_by_its_outcome() {
    let records = Records::default();
    let s = metrics::with_local_recorder(&records, threads).acquire().says([
        BUSY,
        rank(0),
        DOWN.times(2),
        DENIED.times(2),
    ]);
    s.a().tries().is_busy().b().tries_for(2 * S).is_busy().c().plain().tries().fails(Unavailable).d().plain();
    s.d().locks().fails(Denied).requests().waits().fails(Denied);
    let recorded = records.of("fairlock_");
    let of = |name: &str| -> Vec<(String, f64)> {
        recorded.iter().filter(|(series, _)| series.starts_with(name)).cloned().collect()
    };
    let one =
        |kind, outcome| (format!("fairlock_not_granted_total lock= kind={kind} outcome={outcome}"), 1.0);
    let outcomes = [
        ("fair", "busy"),
        ("fair", "timed_out"),
        ("plain", "unavailable"),
        ("plain", "refused"),
        ("plain", "refused"),
    ];
    assert_eq!(of("fairlock_not_granted"), outcomes.map(|(kind, outcome)| one(kind, outcome)));
    let waits: Vec<f64> = of("fairlock_failed_wait").into_iter().map(|(_, waited)| waited).collect();
    assert_eq!(waits, [2.0, 0.0, 0.0, 0.0]);
}

/// Gauges tell who waits and an outage and nothing of a client that is gone. Gauges of several clients add up.
#[test]
fn gauges_tell_who_waits_and_of_an_outage() {
    let records = Records::default();
    let world = metrics::with_local_recorder(&records, World::new);
    let mut totals = BTreeMap::new();
    let mut of = |name: &str| {
        for (series, by) in records.of("fairlock_") {
            *totals.entry(series).or_insert(0.0) += by;
        }
        totals.get(name).copied().unwrap_or(0.0)
    };
    world.store.plan().acquire.extend([queued(0), queued(1)]);
    let (one, two) = (world.lock("queue").request().unwrap(), world.lock("queue").request().unwrap());
    world.clock.advance(2 * S);
    assert_eq!(of("fairlock_waiting"), 2.0);
    drop(one);
    world.clock.advance(2 * S);
    assert_eq!(of("fairlock_waiting"), 1.0);
    world.store.take_down(Op::Renew);
    world.clock.advance(2 * S);
    assert_eq!((of("fairlock_outage"), world.client.stats().outage.is_some()), (1.0, true));
    world.store.bring_up(Op::Renew);
    world.clock.advance(2 * S);
    assert_eq!((of("fairlock_outage"), world.client.stats().outage), (0.0, None));
    let guard = world.lock("held").lock().unwrap();
    assert_eq!((of("fairlock_holds lock="), world.client.stats().holding), (1.0, 1));
    guard.leak();
    drop(two);
    drop(world);
    // The watchdog may be at work, and is then the last to let go of the client.
    let give_up_at = Instant::now() + 10 * S;
    while ["fairlock_waiting", "fairlock_holds lock="].map(&mut of) != [0.0, 0.0] {
        assert!(Instant::now() < give_up_at, "{:?}", records.of("fairlock_"));
        thread::yield_now();
    }
}

/// Each look-up by name takes longer than the event.
#[test]
fn the_series_of_a_lock_are_asked_for_once() {
    let records = Records::default();
    let [one, two] = ["one", "two"].map(fair);
    metrics::with_local_recorder(&records, || {
        let counters = Counters::new(2);
        for lock in [&one, &one, &two, &two] {
            counters.meter(lock, granted(None));
        }
        let third = fair("three");
        counters.meter(&third, granted(None));
    });
    let labels =
        records.of("fairlock_wait_seconds").into_iter().map(|(series, _)| series.replace(" by=at_once", ""));
    let series = ["one", "one", "two", "two", ""].map(|lock| format!("fairlock_wait_seconds lock={lock}"));
    assert_eq!(labels.collect::<Vec<_>>(), series);
    let registered = records.registered.lock();
    assert!(registered.values().all(|times| *times == 1), "{registered:?}");
    assert!(registered.keys().all(|series| !series.contains("three")), "{registered:?}");
}
