//! Waits that are given up, by a drop or a time-out.

use std::time::{Duration, Instant};

use fairlock::TryLock;
use fairlock_tests::eventually;
use futures::executor::block_on;

use crate::support::{SLACK, SOON, begin, current, on_each_backend, take, unlock};

#[test]
fn a_wait_that_is_dropped_leaves_the_queue() {
    on_each_backend(|[one, other]| {
        let lock = one.fair_lock("lock:a").unwrap();
        let held = take(&other.fair_lock("lock:a").unwrap().to_async());
        let mut waits: Vec<_> = (0..10).map(|_| lock.to_async().lock()).collect();
        waits.iter_mut().for_each(begin);
        let in_queue = |n: u64| {
            eventually(SOON, "the queue has its length", || lock.inspect().unwrap().queue_length == n)
        };
        in_queue(10);
        drop(waits.drain(..9));
        in_queue(1);
        unlock(held);
        unlock(block_on(waits.remove(0)).unwrap());
    });
}

/// A timed wait ends on time, and a time-out of the runtime is a drop.
#[test]
fn a_timed_wait_of_a_task_ends_on_time() {
    on_each_backend(|[one, other]| {
        let time = Duration::from_millis(80);
        let held = take(&one.fair_lock("lock:a").unwrap().to_async());
        let lock = other.fair_lock("lock:a").unwrap();
        let is_on_time = |began: Instant| {
            let took = began.elapsed();
            assert!(took >= time && took < time + SLACK, "{took:?}");
            eventually(SOON, "the queue is empty", || lock.inspect().unwrap().queue_length == 0);
        };
        let began = Instant::now();
        assert!(matches!(block_on(lock.to_async().try_lock_for(time)), Ok(TryLock::Busy(_))));
        is_on_time(began);
        let began = Instant::now();
        let waiting = lock.to_async();
        current().block_on(async { tokio::time::timeout(time, waiting.lock()).await.unwrap_err() });
        is_on_time(began);
        assert!(matches!(block_on(lock.to_async().try_lock()), Ok(TryLock::Busy(_))));
        unlock(held);
        unlock(take(&lock.to_async()));
    });
}
