//! How often an uncontended cycle asks the allocator. This test has its own binary, since it has an allocator that counts.

use std::time::Duration;

use fairlock::{Client, Lock, MemoryBackend};
use fairlock_tests::locks::patient;
use fairlock_tests::{Bound, RedisServer};

/// After this many cycles all lists that grow with use are full: the statistics keep 1,024 times.
const WARM_UP: usize = 1100;

/// The allocations of the calling thread in each of some cycles.
fn of_cycles(lock: &Lock) -> Vec<u64> {
    let cycle = || lock.lock().unwrap().unlock().unwrap();
    (0..WARM_UP).for_each(|_| cycle());
    (0..100).map(|_| allocation_counter::measure(cycle).count_total).collect()
}

#[test]
fn an_uncontended_cycle_has_few_allocations() {
    let _bound = Bound::here(Duration::from_secs(120));
    let server = RedisServer::start();
    let redis = Client::new(patient(&server.url()).connect().unwrap()).unwrap();
    let memory = Client::new(MemoryBackend::new()).unwrap();
    for (client, most) in [(redis, 32), (memory, 4)] {
        let counts = of_cycles(&client.fair_lock("lock:allocations").unwrap());
        assert!(counts.iter().all(|count| *count > 0), "nothing is counted");
        // A cycle that a renewal or a reconnect meets may have more.
        let over = counts.iter().filter(|count| **count > most).count();
        assert!(over <= 2, "more than {most}: {counts:?}");
    }
}
