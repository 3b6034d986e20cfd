//! What the feature `metrics` costs: lock and unlock of a free lock without a recorder and with the exporter for Prometheus, in
//! turns. `<backend> <kind> <ns>` is the median of many batches, `<backend> ratio` that of each pair. Without `--features
//! metrics` it measures the library as it is without the feature. Needs a URL in BENCH_REDIS for Redis.

use std::error::Error;
use std::time::{Duration, Instant};

use fairlock::backend::Backend;
use fairlock::{Client, Lock, MemoryBackend, RedisBackend};

/// Cycles in a batch.
const CYCLES: u32 = 20;
const TIME: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    measure("memory", MemoryBackend::new())?;
    if let Ok(url) = std::env::var("BENCH_REDIS") {
        measure("redis", RedisBackend::connect(&url)?)?;
    }
    Ok(())
}

fn measure(name: &str, backend: impl Backend + Clone) -> Result<(), Box<dyn Error>> {
    let clients = [Client::new(backend.clone())?, recorded(backend)?];
    let locks = [clients[0].fair_lock("bench:metrics:1")?, clients[1].fair_lock("bench:metrics:2")?];
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    let until = Instant::now() + TIME;
    while Instant::now() < until {
        let [plain, recorded] = [batch(&locks[0])?, batch(&locks[1])?];
        times[0].push(plain);
        times[1].push(recorded);
        ratios.push(recorded / plain);
    }
    let [plain, recorded] = times.map(median);
    if cfg!(feature = "metrics") {
        println!(
            "{name} no-recorder {plain:.0}\n{name} prometheus {recorded:.0}\n{name} ratio {:.3}",
            median(ratios)
        );
    } else {
        println!("{name} without-the-feature {plain:.0}\n{name} noise {:.3}", median(ratios));
    }
    Ok(())
}

#[cfg(feature = "metrics")]
fn recorded(backend: impl Backend) -> fairlock::Result<Client> {
    use std::sync::OnceLock;

    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

    static RECORDER: OnceLock<PrometheusRecorder> = OnceLock::new();
    let recorder = RECORDER.get_or_init(|| {
        let buckets = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
        let matcher = Matcher::Prefix("fairlock_".to_owned());
        let builder =
            PrometheusBuilder::new().set_buckets_for_metric(matcher, &buckets).expect("there are buckets");
        let recorder = builder.build_recorder();
        let exporter = recorder.handle();
        // As a server that Prometheus reads: else the samples pile up.
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                exporter.run_upkeep();
            }
        });
        recorder
    });
    metrics::with_local_recorder(recorder, || Client::new(backend))
}

#[cfg(not(feature = "metrics"))]
fn recorded(backend: impl Backend) -> fairlock::Result<Client> {
    Client::new(backend)
}

/// Nanoseconds for one cycle.
fn batch(lock: &Lock) -> fairlock::Result<f64> {
    let begun = Instant::now();
    for _ in 0..CYCLES {
        lock.lock()?.unlock()?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(CYCLES))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}
