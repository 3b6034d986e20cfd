//! `unlock` does what a drop does, and says whether the work was alone; a leaked hold waits for `Lock::unlock`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use fairlock::{Error, Result};

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-unlock")?;

    let guard = lock.lock()?;
    match guard.unlock() {
        Ok(()) => println!("given back; nobody else had it meanwhile"),
        Err(Error::Lost(lost)) => println!("{lost}: check the work, or fence it by the token"),
        Err(error) => return Err(error),
    }

    // For code that can't keep a guard, between two callbacks for instance.
    lock.lock()?.leak();
    println!("leaked, held {} time(s)", lock.hold_count());
    lock.unlock()?;
    println!("once more: {}", lock.unlock().unwrap_err());
    Ok(())
}
