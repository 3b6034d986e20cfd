//! Feature `metrics`: the length of a line is recorded once for each request that joins it.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::store::{busy, queued};
use super::support::World;

/// Keeps what is recorded of the lines' lengths.
#[derive(Default)]
struct Lengths(Arc<Kept>);

#[derive(Default)]
struct Kept(Mutex<Vec<f64>>);

impl HistogramFn for Kept {
    fn record(&self, value: f64) {
        self.0.lock().push(value);
    }
}

impl Recorder for Lengths {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() == "fairlock_line_length" {
            return Histogram::from_arc(Arc::clone(&self.0));
        }
        Histogram::noop()
    }
}

#[test]
fn the_length_of_a_line_is_recorded_when_a_request_joins_it() {
    let lengths = Lengths::default();
    let world = metrics::with_local_recorder(&lengths, World::new);
    let recorded = || std::mem::take(&mut *lengths.0.0.lock());
    world.lock("free").lock().unwrap().unlock().unwrap();
    assert_eq!(recorded(), [0.0], "none was ahead");
    world.store.plan().acquire.extend([queued(3), queued(2), busy()]);
    let request = world.lock("line").request().unwrap();
    assert_eq!(recorded(), [3.0]);
    world.recheck(&world.claim("line")); // it asks again
    world.settle();
    assert_eq!(request.rank(), Some(2));
    world.push(&world.claim("line"), 9);
    request.wait().unwrap().unlock().unwrap();
    assert!(recorded().is_empty(), "each request is recorded once");
    // A plain lock has no line.
    let _waits = world.plain("plain").request().unwrap();
    world.plain("plain:free").lock().unwrap().unlock().unwrap();
    assert!(recorded().is_empty());
}
