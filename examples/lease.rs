//! How long a hold lasts: renewed until it is released, for a fixed time, or renewed up to a limit.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use std::thread;
use std::time::Duration;

use fairlock::Result;

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-lease")?;

    // The default: the watchdog renews the lease. If this process dies, the lock is free 30 s later.
    let guard = lock.lock()?;
    println!("renewed: valid for {:?} without another renewal", guard.valid_for());
    guard.unlock()?;

    // Not renewed: the hold ends by itself.
    let guard = lock.fixed_lease(Duration::from_millis(100)).lock()?;
    thread::sleep(Duration::from_millis(150));
    println!("fixed: lost after its lease: {}; {}", guard.is_lost(), guard.unlock().unwrap_err());

    // Renewed up to a limit: a stuck holder can't keep the lock.
    let guard = lock.max_hold(Duration::from_secs(3600)).lock()?;
    println!("capped: valid for {:?}", guard.valid_for());
    guard.unlock()
}
