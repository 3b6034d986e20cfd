//! Hearing of a lost hold: a callback, a channel, a flag, and the error of `unlock`.

mod common;

use std::time::Duration;

use fairlock::{Error, Result};

fn main() -> Result<()> {
    let client = common::connect()?;
    client.on_lost(|lost| println!("callback: {lost}"));
    let lock = client.fair_lock("lock:example-lost")?;
    let guard = lock.lock()?;

    // An operator takes the lock away (from another program: another client would do the same).
    lock.force_unlock()?;

    match guard.lost().recv_timeout(Duration::from_secs(5)) {
        Ok(lost) => println!("channel: cause {:?}, token {}", lost.cause, lost.token),
        Err(_) => println!("channel: nothing heard"),
    }
    println!("flag: {}", guard.is_lost());
    match guard.unlock() {
        Err(Error::Lost(lost)) => println!("unlock: {lost}"),
        other => println!("unlock: {other:?}"),
    }
    // The callback runs on a thread of its own; this waits for it.
    client.shutdown()
}
