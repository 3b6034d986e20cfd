//! The layers one by one: `cargo bench --manifest-path bench/Cargo.toml`. Those on Redis need a URL in BENCH_REDIS.

use divan::{AllocProfiler, Bencher};
use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{Acquire, Acquired, Backend, Hold, LockId, Place, RequestId, only};
use fairlock::owner::OwnerId;
use fairlock::settings::Discipline;
use fairlock::{Client, Lock, MemoryBackend, RedisBackend};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn redis() -> Option<RedisBackend> {
    let Ok(url) = std::env::var("BENCH_REDIS") else {
        eprintln!("BENCH_REDIS is not set: there is nothing to measure");
        return None;
    };
    Some(RedisBackend::builder(&url).discipline(Discipline::HandOff).connect().expect("BENCH_REDIS answers"))
}

fn lock_on(client: &Client) -> Lock {
    client.fair_lock("bench:layers").expect("the name is valid")
}

/// A backend's part of lock and unlock, without core.
fn backend_cycle(bencher: Bencher<'_, '_>, backend: &impl Backend) {
    let lock = LockId::new(LockName::new("bench:layers").expect("the name is valid"), LockKind::Fair);
    let owner = OwnerId::new("2f1c9c34-7a2e-4d0e-9f0a-000000000000:1");
    let mut request = 0;
    bencher.bench_local(|| {
        request += 1;
        let request = RequestId::new(request);
        let ask = Acquire::new(Place::new(&lock, &owner, request), std::time::Duration::from_secs(30));
        let Ok(Acquired::Granted { token, .. }) = only(backend.acquire(&[ask])) else { panic!("not granted") };
        only(backend.release(&[Hold::new(&lock, &owner, request, token)])).expect("released")
    });
}

/// Lock and unlock by the public API.
fn whole_cycle(bencher: Bencher<'_, '_>, client: &Client) {
    let lock = lock_on(client);
    bencher.bench_local(|| lock.lock().expect("granted").unlock());
}

/// The same inside a hold: core, and a backend's part of a hold count.
fn reentry(bencher: Bencher<'_, '_>, client: &Client) {
    let lock = lock_on(client);
    let _held = lock.lock().expect("granted");
    bencher.bench_local(|| lock.lock().expect("granted").unlock());
}

#[divan::bench]
fn memory_1_backend(bencher: Bencher<'_, '_>) {
    backend_cycle(bencher, &MemoryBackend::new());
}

#[divan::bench]
fn memory_2_client(bencher: Bencher<'_, '_>) {
    whole_cycle(bencher, &Client::new(MemoryBackend::new()).expect("a client"));
}

#[divan::bench]
fn memory_3_reentry(bencher: Bencher<'_, '_>) {
    reentry(bencher, &Client::new(MemoryBackend::new()).expect("a client"));
}

#[divan::bench]
fn redis_1_backend(bencher: Bencher<'_, '_>) {
    if let Some(backend) = redis() {
        backend_cycle(bencher, &backend);
    }
}

#[divan::bench]
fn redis_2_client(bencher: Bencher<'_, '_>) {
    if let Some(backend) = redis() {
        whole_cycle(bencher, &Client::new(backend).expect("a client"));
    }
}

#[divan::bench]
fn redis_3_reentry(bencher: Bencher<'_, '_>) {
    if let Some(backend) = redis() {
        reentry(bencher, &Client::new(backend).expect("a client"));
    }
}
