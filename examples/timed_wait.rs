//! Waiting for a limited time, or not at all. A busy lock is `None`, never an error.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use fairlock::Result;

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-timed")?;
    let guard = lock.lock()?;

    thread::scope(|scope| {
        let waiter = scope.spawn(|| -> Result<()> {
            println!("try_lock: {}", if lock.try_lock()?.is_some() { "got it" } else { "busy" });
            let started = Instant::now();
            let got = lock.try_lock_for(Duration::from_millis(200))?;
            println!("try_lock_for 200 ms: {} after {:?}", got.is_some(), started.elapsed());
            // This request is in line when the holder releases the lock.
            let got = lock.try_lock_for(Duration::from_secs(5))?;
            println!("try_lock_for 5 s: {}", got.is_some());
            Ok(())
        });
        thread::sleep(Duration::from_millis(400));
        guard.unlock()?;
        waiter.join().expect("the waiter does not panic")
    })
}
