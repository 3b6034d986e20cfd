//! Testing your own code: time moved by hand, and injected faults. No sleeps, no server.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

use std::thread;
use std::time::Duration;

use fairlock::testing::{ManualClock, Operation};
use fairlock::{Client, Error, MemoryBackend, Result};

/// The code under test: takes the lock for a job, and returns whether it held the lock all the time.
fn guarded_job(client: &Client, job: impl FnOnce()) -> Result<bool> {
    let guard = client.fair_lock("lock:job")?.lock()?;
    job();
    match guard.unlock() {
        Ok(()) => Ok(true),
        Err(Error::Lost(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn main() -> Result<()> {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    let connect = || Client::builder(store.clone()).clock(clock.clone()).build();
    let (one, other) = (connect()?, connect()?); // two processes

    // An hour of work: the watchdog renews the lease 360 times, instantly.
    assert!(guarded_job(&one, || clock.advance(Duration::from_secs(3600)))?);

    // The process stands still for a minute: its lease ends, and it learns of it.
    assert!(!guarded_job(&one, || clock.jump(Duration::from_secs(60)))?);

    // A waiter, without a sleep: the clock knows which threads wait.
    let lock = one.fair_lock("lock:job")?;
    let guard = lock.lock()?;
    thread::scope(|scope| -> Result<()> {
        let waiter = scope.spawn(|| guarded_job(&other, || ()));
        clock.wait_for_waiters(1);
        guard.unlock()?;
        waiter.join().expect("the waiter does not panic").map(|alone| assert!(alone))
    })?;

    // The answer to `release` is lost: the repeat releases nothing more.
    let guard = lock.lock()?;
    store.faults().lose_reply(Operation::Release, 1);
    guard.unlock()?;
    assert!(!lock.is_locked()?);
    println!("an hour of work, a stop, a wait and a lost answer: tested without a sleep");
    Ok(())
}
