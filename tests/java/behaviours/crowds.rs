//! Many threads and clients on one lock: each gets its turn, and holds the lock alone.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::LockKind;

use crate::world::on_redis;

/// A count that goes wrong with two threads in the section: it is read first and written later.
#[derive(Default)]
struct Careless(AtomicU32);

impl Careless {
    fn add_one(&self) {
        let read = self.0.load(Ordering::Relaxed);
        thread::yield_now();
        self.0.store(read + 1, Ordering::Relaxed);
    }

    fn sum(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Redisson: `testMultipleLocks`.
#[test]
fn five_hundred_waiters_on_one_lock_all_get_it() {
    let _alone = fairlock_tests::Alone::here();
    const BOUND: Duration = Duration::from_secs(60);
    let world = on_redis(LockKind::Fair);
    let (done, started) = (Careless::default(), Instant::now());
    let locks: Vec<_> = (0..10).map(|_| world.lock("crowd").fixed_lease(Duration::from_secs(5))).collect();
    let guard = locks[0].lock().unwrap();
    thread::scope(|scope| {
        for number in 0..500 {
            let (lock, done) = (&locks[number % locks.len()], &done);
            scope.spawn(move || {
                let guard = lock.try_lock_for(BOUND).unwrap().guard().expect("in time");
                done.add_one();
                guard.unlock().unwrap();
            });
        }
        world.until_waiting("crowd", 500);
        guard.unlock().unwrap();
    });
    assert_eq!(done.sum(), 500);
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    world.assert_no_residue("crowd");
}
