//! Learning of a lost hold: a callback, a channel, a flag, and the error of `unlock`.

mod common;

use std::time::Duration;

use fairlock::{Error, Result};

fn main() -> Result<()> {
    let client = common::connect()?;
    client.on_lost(|lost| println!("callback: {lost}"));
    let lock = client.fair_lock("lock:example-lost")?;
    let guard = lock.lock()?;

    // An operator takes the lock by force. Here another client does it.
    lock.force_unlock()?;

    match guard.lost().recv_timeout(Duration::from_secs(5)) {
        Ok(lost) => println!("channel: cause {:?}, token {}", lost.cause, lost.token),
        Err(_) => println!("channel: no message"),
    }
    println!("flag: {}", guard.is_lost());
    match guard.unlock() {
        Err(Error::Lost(lost)) => println!("unlock: {lost}"),
        other => println!("unlock: {other:?}"),
    }
    // The callback runs on its own thread; this waits for it.
    client.shutdown()
}
