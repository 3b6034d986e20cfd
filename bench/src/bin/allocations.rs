//! Counts the allocations of one uncontended lock and unlock after a warm-up: `<backend> <allocations> <bytes>`. It
//! is a separate program, since counting costs time. Needs a URL in BENCH_REDIS.
//!
//! With a backend and a number as arguments it measures as many cycles on that backend alone: for `against --instructions`.

use std::alloc::System;
use std::error::Error;

use fairlock::settings::Discipline;
use fairlock::{Client, MemoryBackend, RedisBackend};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("BENCH_REDIS")?;
    let redis = Client::new(RedisBackend::builder(&url).discipline(Discipline::HandOff).connect()?)?;
    let memory = Client::new(MemoryBackend::new())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let cycles = arguments.get(1).map_or(Ok(1000), |cycles| cycles.parse())?;
    for (name, client) in [("redis", redis), ("memory", memory)] {
        if arguments.first().is_some_and(|only| only != name) {
            continue;
        }
        let lock = client.fair_lock("bench:allocations")?;
        let cycle = || lock.lock()?.unlock();
        for _ in 0..WARM_UP {
            cycle()?;
        }
        let region = Region::new(ALLOCATOR);
        for _ in 0..cycles {
            cycle()?;
        }
        let change = region.change();
        let per_cycle = |n: usize| n as f64 / cycles as f64;
        println!(
            "{name} {:.1} {:.0}",
            per_cycle(change.allocations + change.reallocations),
            per_cycle(change.bytes_allocated)
        );
    }
    Ok(())
}
