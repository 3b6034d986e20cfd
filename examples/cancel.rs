//! Ending a wait from another thread, for example at a shutdown.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use std::thread;
use std::time::Duration;

use fairlock::{Cancel, Error, Result};

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-cancel")?;
    let cancel = Cancel::new();
    let _guard = lock.lock()?;

    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // The handle that `cancelled_by` gives works for every kind of wait.
            match lock.cancelled_by(&cancel).try_lock_for(Duration::from_secs(60)) {
                Err(Error::Cancelled { lock }) => println!("the wait for {lock} was cancelled"),
                other => println!("not cancelled? {other:?}"),
            }
        });
        thread::sleep(Duration::from_millis(100));
        cancel.cancel();
        waiter.join().expect("the waiter does not panic");
    });
    println!("still in the queue: {}", lock.inspect()?.queue_length);
    Ok(())
}
