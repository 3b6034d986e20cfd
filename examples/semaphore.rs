//! A foreign API that refuses a sixth call at the same time: five permits, which all processes share.
//!
//! ```text
//! cargo run --example semaphore -- --timeline out.svg
//! cargo run --example semaphore -- --redis redis://127.0.0.1:6379
//! ```
//!
//! Now and then one worker takes all five permits, to change the key of the API while no call is under way.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod common;
#[path = "common/timeline.rs"]
mod timeline;

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use fairlock::Semaphore;
use timeline::{Diary, Timeline, Worker};

const CALLERS: usize = 8;
/// How many calls the API accepts at once.
const AT_ONCE: u32 = 5;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    timeline::report(&[run()?], common::option("--timeline").map(PathBuf::from).as_deref())
}

/// Each worker has its own client.
fn run() -> Result<Timeline, Failure> {
    let callers = (1..=CALLERS).map(|number| (format!("caller {number}"), 0));
    let workers: Vec<Worker> = callers.chain([("key change".to_owned(), 3)]).collect();
    let permits_of = |_| common::connect()?.semaphore("lock:example-api", AT_ONCE);
    let permits: Vec<Semaphore> = workers.iter().map(permits_of).collect::<fairlock::Result<_>>()?;
    let api = Api::default();
    Timeline::run("a semaphore of five permits", workers, |diary| {
        let permits = &permits[diary.worker];
        if diary.worker < CALLERS { call(permits, &api, diary) } else { change_key(permits, &api, diary) }
    })
}

fn call(permits: &Semaphore, api: &Api, diary: &mut Diary) -> fairlock::Result<()> {
    loop {
        diary.asks();
        let permit = permits.acquire()?; // waits while five calls are under way, in whatever process
        diary.waited();
        api.call();
        diary.release(permit)?;
        thread::sleep(Duration::from_millis(2));
        if diary.time_left().is_none() {
            return Ok(());
        }
    }
}

fn change_key(permits: &Semaphore, api: &Api, diary: &mut Diary) -> fairlock::Result<()> {
    loop {
        thread::sleep(Duration::from_millis(70));
        diary.asks();
        let all = permits.acquire_many(AT_ONCE)?; // no later call passes it
        diary.waited();
        api.change_key();
        diary.release(all)?;
        if diary.time_left().is_none() {
            return Ok(());
        }
    }
}

/// The foreign API.
#[derive(Default)]
struct Api {
    under_way: AtomicU32,
}

impl Api {
    fn call(&self) {
        let under_way = self.under_way.fetch_add(1, SeqCst);
        assert!(under_way < AT_ONCE, "429 Too Many Requests");
        thread::sleep(Duration::from_millis(12));
        self.under_way.fetch_sub(1, SeqCst);
    }

    fn change_key(&self) {
        assert_eq!(self.under_way.load(SeqCst), 0, "401 Unauthorized: a call with the old key");
        thread::sleep(Duration::from_millis(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_calls_are_under_way_at_once_and_never_six() {
        let run = run().unwrap(); // the API panics at the sixth
        assert_eq!(run.most_at_once(), 5, "{}", run.summary());
        assert!(run.turns().iter().all(|turns| *turns > 0), "{:?}", run.turns());
    }
}
