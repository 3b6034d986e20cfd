//! What the feature `metrics` costs: lock and unlock of a free lock without a recorder and with the exporter for Prometheus, in
//! turns. `<backend> <kind> <ns>` is the median of many batches. `ratio` is with by without the recorder, with its quartiles; and
//! `noise` the same for two clients that both have none. Needs a URL in BENCH_REDIS for Redis.

use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fairlock::backend::Backend;
use fairlock::{Client, Lock, MemoryBackend, RedisBackend};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

/// Cycles in a batch.
const CYCLES: u32 = 20;
const TIME: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    measure("memory", MemoryBackend::new())?;
    if let Ok(url) = std::env::var("BENCH_REDIS") {
        measure("redis", RedisBackend::connect(&url)?)?;
    }
    Ok(())
}

fn measure(name: &str, backend: impl Backend + Clone) -> Result<(), Box<dyn Error>> {
    let clients = [Client::new(backend.clone())?, Client::new(backend.clone())?, recorded(backend)?];
    let mut locks = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        locks.push(client.fair_lock(&format!("bench:metrics:{number}"))?);
    }
    let (mut times, mut ratios, mut noise) = ([const { Vec::new() }; 3], Vec::new(), Vec::new());
    let until = Instant::now() + TIME;
    while Instant::now() < until {
        let mut sums = [0.0; 3];
        // In both orders, so that none is always the one after a pause.
        for at in [0, 1, 2, 2, 1, 0] {
            let time = batch(&locks[at])?;
            sums[at] += time;
            times[at].push(time);
        }
        ratios.push(2.0 * sums[2] / (sums[0] + sums[1]));
        noise.push(sums[1] / sums[0]);
    }
    for (kind, times) in ["no-recorder", "no-recorder", "prometheus"].iter().zip(times) {
        println!("{name} {kind} {:.0}", quartiles(times)[1]);
    }
    for (kind, ratios) in [("ratio", ratios), ("noise", noise)] {
        let [low, median, high] = quartiles(ratios);
        println!("{name} {kind} {median:.3} [{low:.3} - {high:.3}]");
    }
    Ok(())
}

fn recorded(backend: impl Backend) -> fairlock::Result<Client> {
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

/// Nanoseconds for one cycle.
fn batch(lock: &Lock) -> fairlock::Result<f64> {
    let begun = Instant::now();
    for _ in 0..CYCLES {
        lock.lock()?.unlock()?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(CYCLES))
}

fn quartiles(mut of: Vec<f64>) -> [f64; 3] {
    of.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| of[of.len() * quarter / 4])
}
