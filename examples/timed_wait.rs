//! Waiting for a limited time, or not at all. A busy lock is `TryLock::Busy`, never an error.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Result, TryLock};

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-timed")?;
    let guard = lock.lock()?;

    thread::scope(|scope| {
        let waiter = scope.spawn(|| -> Result<()> {
            match lock.try_lock()? {
                TryLock::Granted(_guard) => println!("try_lock: got it"),
                TryLock::Busy(busy) => println!("try_lock: {busy}"),
            }
            let started = Instant::now();
            let guard = lock.try_lock_for(Duration::from_millis(200))?.guard();
            println!("try_lock_for 200 ms: {} after {:?}", guard.is_some(), started.elapsed());
            // This request is in the queue when the holder releases the lock.
            let guard = lock.try_lock_for(Duration::from_secs(5))?.guard();
            println!("try_lock_for 5 s: {}", guard.is_some());
            Ok(())
        });
        thread::sleep(Duration::from_millis(400));
        guard.unlock()?;
        waiter.join().expect("the waiter does not panic")
    })
}
