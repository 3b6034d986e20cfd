//! `unlock` does what a drop does, and reports whether the hold was lost. A leaked hold waits for `Lock::unlock`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use fairlock::{Error, Result};

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-unlock")?;

    let guard = lock.lock()?;
    match guard.unlock() {
        Ok(()) => println!("released; the hold was never lost"),
        Err(Error::Lost(lost)) => println!("{lost}: check the work, or fence it by the token"),
        Err(error) => return Err(error),
    }

    // For code that can't keep a guard, for example between two callbacks.
    lock.lock()?.leak();
    println!("leaked, held {} time(s)", lock.hold_count());
    lock.unlock()?;
    println!("once more: {}", lock.unlock().unwrap_err());
    Ok(())
}
