//! Features `metrics` and `serde`: what a real exporter shows, and that the dashboard asks for nothing else.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock::admin::{Finding, Verdict};
use fairlock::owner::Owner;
use fairlock::testing::{ManualClock, Operation};
use fairlock::{Client, Lock, MemoryBackend};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::Value;

const S: Duration = Duration::from_secs(1);

/// No test counts for the recorder of another one. (A client that its own recorder has does not end, as `Alone` asks.)
static TURN: Mutex<()> = Mutex::new(());

/// As the guide does it. For the whole process, so in one test only.
fn install() -> Result<PrometheusHandle, Box<dyn Error>> {
    let seconds = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
    let waiters = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10000.0];
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds)?
        .set_buckets_for_metric(Matcher::Full("fairlock_queue_length".to_owned()), &waiters)?
        .build_recorder();
    let exporter = recorder.handle(); // `exporter.render()` is the page that Prometheus reads
    metrics::set_global_recorder(recorder)?; // before the client is built
    Ok(exporter)
}

/// One of everything: grants of each kind, losses, late renewals; on a lock with separate series and on one without.
fn life() -> Client {
    let clock = ManualClock::new();
    let backend = MemoryBackend::with_clock(clock.clone());
    let client = Client::builder(backend.clone()).clock(clock.clone()).stats_per_lock(1).build().unwrap();
    let own = |name: &str| -> Lock<Owner> {
        client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap()
    };
    // At once; then two waiters, one by a wake-up and one by a heartbeat.
    let guard = own("orders").lock().unwrap();
    let (second, third) = (own("orders").request().unwrap(), own("orders").request().unwrap());
    clock.advance(2 * S);
    guard.unlock().unwrap();
    let guard = second.wait().unwrap();
    backend.faults().lose_wake_ups(1);
    clock.advance(S);
    guard.unlock().unwrap();
    clock.advance(2 * S);
    let guard = third.wait().unwrap();
    // A renewal that needs a second attempt, then a loss.
    clock.advance(8 * S);
    backend.faults().fail_next(Operation::Renew, 1);
    clock.advance(12 * S);
    backend.faults().lose_hold("orders");
    clock.advance(12 * S);
    assert!(guard.is_lost());
    own("mails").lock().unwrap().unlock().unwrap();
    // Calls without the lock: at once, after a wait, and without an answer.
    let guard = own("orders").lock().unwrap();
    assert!(own("orders").try_lock().unwrap().granted().is_none());
    let mut late = own("orders").request().unwrap();
    clock.advance(2 * S);
    assert!(late.wait_for(Duration::ZERO).unwrap().granted().is_none(), "it keeps its place");
    assert!(late.withdraw().unwrap().granted().is_none());
    backend.faults().fail_next(Operation::Acquire, 2);
    client.semaphore("permits", 2).unwrap().try_acquire().unwrap_err();
    guard.leak();
    client
}

/// An exporter shows every metric, and the dashboard asks for no other.
#[test]
fn an_exporter_shows_what_the_dashboard_asks_for() {
    let _turn = TURN.lock();
    let exporter = install().unwrap();
    let client = life();
    let page = exporter.render();
    let value = |series: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
    };
    for (series, expected) in [
        (r#"fairlock_wait_seconds_count{lock="orders",by="at_once"}"#, 2.0),
        (r#"fairlock_wait_seconds_count{lock="orders",by="wake_up"}"#, 1.0),
        (r#"fairlock_wait_seconds_sum{lock="orders",by="wake_up"}"#, 2.0),
        (r#"fairlock_wait_seconds_count{lock="orders",by="polling"}"#, 1.0),
        (r#"fairlock_wait_seconds_count{lock="",by="at_once"}"#, 1.0),
        (r#"fairlock_hold_seconds_count{lock="orders"}"#, 3.0),
        (r#"fairlock_hold_seconds_count{lock=""}"#, 1.0),
        (r#"fairlock_queue_length_bucket{lock="orders",le="0"}"#, 4.0),
        (r#"fairlock_queue_length_bucket{lock="orders",le="1"}"#, 5.0),
        (r#"fairlock_lost_total{lock="orders",cause="taken"}"#, 1.0),
        (r#"fairlock_lost_total{lock="",cause="taken"}"#, 0.0),
        (r#"fairlock_late_renewals_total{lock="orders"}"#, 1.0),
        (r#"fairlock_not_granted_total{lock="orders",kind="fair",outcome="busy"}"#, 1.0),
        (r#"fairlock_not_granted_total{lock="orders",kind="fair",outcome="timed_out"}"#, 1.0),
        (r#"fairlock_not_granted_total{lock="",kind="semaphore",outcome="unavailable"}"#, 1.0),
        (r#"fairlock_failed_wait_seconds_sum{lock="orders"}"#, 2.0),
        (r#"fairlock_slow_waits_total{lock="orders"}"#, 3.0),
        (r#"fairlock_holds{lock="orders"}"#, 1.0),
        (r#"fairlock_holds{lock=""}"#, 0.0),
        ("fairlock_outage", 0.0),
    ] {
        assert_eq!(value(series), expected, "{series} in\n{page}");
    }
    let of_orders = client.fair_lock("orders").unwrap().stats().unwrap();
    assert_eq!(value(r#"fairlock_renewals_total{lock="orders"}"#), of_orders.renewals as f64);

    // As the guide says. (This lock is a fair one; no hold of it has an end of its own.)
    let of_orders = page.lines().filter(|line| line.contains(r#"lock="orders""#));
    assert_eq!(of_orders.count(), 100, "{page}");

    let reference = std::fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let exported = metrics_of(&page);
    for name in &exported {
        assert!(reference.contains(&format!("\n| `{name}` | ")), "{name} is not in docs/reference.md");
        assert!(page.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    let queries = queries();
    assert!(queries.len() >= 8, "only {} queries", queries.len());
    let mut asked = BTreeSet::new();
    for query in &queries {
        for series in names_in(query) {
            // A series of a histogram has its name and an ending. The page has each label that the query names.
            let line = page.lines().find(|line| {
                let (name, labels) = line.split_once(['{', ' ']).unwrap_or((line, ""));
                name == series && labels_in(query).iter().all(|label| labels.contains(&format!("{label}=")))
            });
            assert!(line.is_some(), "{series} of the query {query} is not exported:\n{page}");
            asked.insert(without_ending(&series));
        }
    }
    assert_eq!(asked, exported, "the dashboard shows everything");
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names on a page, as `# TYPE name kind` has them.
fn metrics_of(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|of| of.split_whitespace().next()).map(str::to_owned).collect()
}

fn without_ending(series: &str) -> String {
    let endings = ["_bucket", "_count", "_sum"];
    endings.iter().find_map(|ending| series.strip_suffix(ending)).unwrap_or(series).to_owned()
}

/// The queries of the dashboard's panels.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

fn names_in(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("fairlock_")).map(str::to_owned).collect()
}

/// The labels that a query groups by.
fn labels_in(query: &str) -> Vec<&str> {
    let groups = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    groups.flat_map(|group| group.split(',')).map(str::trim).collect()
}

/// Stats, the state of a lock, and a loss are serialized with their names.
#[test]
fn stats_states_and_losses_are_serialized_with_names() {
    let _turn = TURN.lock();
    let client = Client::builder(MemoryBackend::new()).label("worker 3").stats_per_lock(1).build().unwrap();
    let lock = client.fair_lock("orders").unwrap();
    let guard = lock.lock().unwrap();
    let label = lock.admin().inspect().unwrap().holder().unwrap().label.clone().unwrap();
    assert!(label.starts_with("worker 3 ("), "{label}");
    let request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
    let [stats, state] = [
        serde_json::to_value(client.stats()).unwrap(),
        serde_json::to_value(lock.admin().inspect().unwrap()).unwrap(),
    ];
    let waiter = client.waiting()[0].owner.to_string();
    let held = serde_json::to_value(client.held()).unwrap();
    let found = serde_json::to_value(Finding::new("here", "evictions", Verdict::Unsafe, "why")).unwrap();
    drop(request);
    assert!(lock.admin().force_unlock().unwrap());
    let lost = serde_json::to_value(guard.lost().recv_timeout(10 * S).unwrap()).unwrap();
    for (json, path, expected) in [
        (&stats, "/granted_at_once", 1.into()),
        (&stats, "/waits/count", 1.into()),
        (&stats, "/waiting/0/lock", "orders".into()),
        (&stats, "/waiting/0/rank", 0.into()),
        (&stats, "/waiting/0/owner", waiter.into()),
        (&state, "/holders/0/owner", guard.owner().as_str().into()),
        (&state, "/holders/0/label", label.as_str().into()),
        (&state, "/holders/0/traceparent", Value::Null),
        (&state, "/holders/0/token", guard.token().get().into()),
        (&state, "/holders/0/hold_count", 1.into()),
        (&state, "/holders/0/request", guard.request_id().to_string().into()),
        (&state, "/queue_length", 1.into()),
        (&held, "/0/lock", "orders".into()),
        (&held, "/0/kind", "fair".into()),
        (&held, "/0/token", guard.token().get().into()),
        (&found, "/topic", "evictions".into()),
        (&found, "/verdict", "unsafe".into()),
        (&state, "/queue/0/units", 1.into()),
        (&lost, "/lock", "orders".into()),
        (&lost, "/cause", "taken".into()),
        (&lost, "/label", label.as_str().into()),
        (&lost, "/token", guard.token().get().into()),
    ] {
        assert_eq!(json.pointer(path), Some::<&Value>(&expected), "{path} in {json}");
    }
}

/// A recorder that asks the client at each event, and panics now and then.
#[derive(Clone, Default)]
struct Nosy(Arc<Seen>);

#[derive(Default)]
struct Seen {
    of: OnceLock<(Client, Lock)>,
    events: AtomicU64,
}

impl Seen {
    fn ask(&self) {
        let Some((client, lock)) = self.of.get() else { return };
        drop((client.stats(), lock.stats(), client.held(), lock.admin().inspect()));
    }

    fn event(&self) {
        self.ask();
        assert!(self.events.fetch_add(1, Ordering::SeqCst) % 50 != 2, "planned");
    }
}

impl CounterFn for Seen {
    fn increment(&self, _: u64) {
        self.event();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Seen {
    fn increment(&self, _: f64) {
        self.event();
    }

    fn decrement(&self, _: f64) {
        self.event();
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Seen {
    fn record(&self, _: f64) {
        self.event();
    }
}

impl Recorder for Nosy {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(&self.0))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(&self.0))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.ask();
        Histogram::from_arc(Arc::clone(&self.0))
    }
}

/// It would deadlock under one of our mutexes.
#[test]
fn a_recorder_may_call_the_client_and_may_panic() {
    let _turn = TURN.lock();
    let (done, ended) = channel();
    thread::spawn(move || {
        let nosy = Nosy::default();
        metrics::with_local_recorder(&nosy, || {
            let backend = MemoryBackend::new();
            let client = Client::builder(backend).stats_per_lock(2).build().unwrap();
            let lock = client.fair_lock("nosy").unwrap();
            assert!(nosy.0.of.set((client.clone(), lock.clone())).is_ok());
            for _ in 0..20 {
                let guard = lock.lock().unwrap();
                let request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
                guard.unlock().unwrap();
                let guard = request.wait().unwrap();
                assert!(lock.admin().force_unlock().unwrap());
                guard.lost().recv_timeout(10 * S).unwrap();
            }
            assert_eq!(client.stats().holds.count, 40);
        });
        done.send(nosy.0.events.load(Ordering::SeqCst)).unwrap();
    });
    let events = ended.recv_timeout(60 * S).expect("no call hangs");
    assert!(events >= 20 * 7, "{events}");
}
