//! Waiting for a lock and for jobs at the same time, and working only while the hold is valid. `cargo run --example select --features
//! crossbeam-channel-0_5`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "kept short: each says what can not fail")]

mod common;

use std::thread;
use std::time::Duration;

use fairlock::Result;
use fairlock::waits::Request;
use fairlock::waits::crossbeam_channel_0_5::{bounded, select};

fn main() -> Result<()> {
    let client = common::connect()?;
    let lock = client.fair_lock("lock:example-select")?;
    let (jobs, inbox) = bounded(8);

    thread::scope(|scope| {
        let holder = client.fair_lock("lock:example-select")?;
        let (ready, held) = bounded(0);
        scope.spawn(move || -> Result<()> {
            let guard = holder.lock()?;
            ready.send(()).expect("main waits for this message");
            for job in 1..=3 {
                jobs.send(job).expect("main takes the jobs");
                thread::sleep(Duration::from_millis(50));
            }
            guard.unlock()
        });
        held.recv().expect("the holder gets the lock");

        let mut request: Option<Request> = Some(lock.request()?);
        while let Some(waiting) = request.take() {
            select! {
                recv(waiting.decided().as_crossbeam()) -> _ => {
                    let guard = waiting.wait()?; // the request is decided, so this returns at once
                    println!("granted (token {})", guard.token());
                    select! {
                        recv(guard.lost().as_crossbeam()) -> lost => println!("stop: {lost:?}"),
                        default(Duration::from_millis(50)) => println!("worked for 50 ms, and the hold is still valid"),
                    }
                    guard.unlock()?;
                }
                recv(inbox) -> job => {
                    println!("job {job:?} meanwhile; {:?} ahead of us in the queue", waiting.rank());
                    request = Some(waiting);
                }
            }
        }
        Ok(())
    })
}
