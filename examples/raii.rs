//! The guard releases the lock on every way out of its scope, including an early return or a panic.

mod common;

use fairlock::{Lock, Result};

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-raii")?;

    assert_eq!(half(&lock, 8)?, Some(4));
    assert_eq!(half(&lock, 7)?, None); // left by an early return
    println!("locked after both: {}", lock.is_locked()?);

    // Beware: `let _ = lock.lock()?;` releases it on the same line. A name keeps it.
    let _guard = lock.lock()?;
    println!("locked under a named guard: {}", lock.is_locked()?);

    // The holding thread gets the lock again; each guard counts.
    let inner = lock.lock()?;
    println!("held {} times, under one token: {}", lock.hold_count(), inner.token());
    Ok(())
}

fn half(lock: &Lock, number: u32) -> Result<Option<u32>> {
    let _guard = lock.lock()?;
    if number % 2 == 1 {
        return Ok(None);
    }
    Ok(Some(number / 2))
}
