//! Counts the allocations of one uncontended lock and unlock after a warm-up: `<backend> <allocations> <bytes>`. It
//! is a separate program, since counting costs time. Needs a URL in BENCH_REDIS.

use std::alloc::System;
use std::error::Error;

use fairlock::{Client, Discipline, MemoryBackend, RedisBackend};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CYCLES: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("BENCH_REDIS")?;
    let redis = Client::new(RedisBackend::builder(&url).discipline(Discipline::HandOff).connect()?)?;
    let memory = Client::new(MemoryBackend::new())?;
    for (name, client) in [("redis", redis), ("memory", memory)] {
        let lock = client.fair_lock("bench:allocations")?;
        let cycle = || lock.lock()?.unlock();
        for _ in 0..CYCLES {
            cycle()?;
        }
        let region = Region::new(ALLOCATOR);
        for _ in 0..CYCLES {
            cycle()?;
        }
        let change = region.change();
        let per_cycle = |n: usize| n as f64 / CYCLES as f64;
        println!(
            "{name} {:.1} {:.0}",
            per_cycle(change.allocations + change.reallocations),
            per_cycle(change.bytes_allocated)
        );
    }
    Ok(())
}
