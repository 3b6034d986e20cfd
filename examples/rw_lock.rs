//! A price list that many read and few write: readers hold the lock together, a writer alone, and all wait in one queue.
//!
//! ```text
//! cargo run --example rw_lock -- --timeline out.svg    # the same load on a fair lock beside it
//! cargo run --example rw_lock -- --redis redis://127.0.0.1:6379
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod common;
#[path = "common/timeline.rs"]
mod timeline;

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use fairlock::Lock;
use timeline::{Diary, Timeline, Worker};

const READERS: usize = 5;
const WRITERS: usize = 2;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    timeline::report(&run_both()?, common::option("--timeline").map(PathBuf::from).as_deref())
}

fn run_both() -> Result<[Timeline; 2], Failure> {
    Ok([
        run("read-write lock: readers together", |prices| {
            let lock = common::connect()?.rw_lock(prices)?;
            // As `lock.read()` and `lock.write()`, but the two have one type.
            Ok((lock.reader().clone(), lock.writer().clone()))
        })?,
        run("fair lock: one at a time", |prices| {
            let lock = common::connect()?.fair_lock(format!("{prices}-fair"))?;
            Ok((lock.clone(), lock))
        })?,
    ])
}

/// Each worker has its own client.
fn run(
    title: &'static str,
    locks_of: impl Fn(&str) -> fairlock::Result<(Lock, Lock)>,
) -> Result<Timeline, Failure> {
    let readers = (1..=READERS).map(|number| (format!("reader {number}"), 0));
    let writers = (1..=WRITERS).map(|number| (format!("writer {number}"), 3));
    let workers: Vec<Worker> = readers.chain(writers).collect();
    let locks: Vec<_> =
        workers.iter().map(|_| locks_of("lock:example-prices")).collect::<fairlock::Result<_>>()?;
    let prices = Prices::default();
    Timeline::run(title, workers, |diary| {
        let (reader, writer) = &locks[diary.worker];
        if diary.worker < READERS { read(reader, &prices, diary) } else { write(writer, &prices, diary) }
    })
}

/// The resource: two numbers that belong together.
#[derive(Default)]
struct Prices {
    net: AtomicU64,
    gross: AtomicU64,
}

fn read(lock: &Lock, prices: &Prices, diary: &mut Diary) -> fairlock::Result<()> {
    loop {
        diary.asks();
        let guard = lock.lock()?; // beside other readers
        diary.waited();
        let net = prices.net.load(SeqCst);
        thread::sleep(Duration::from_millis(5 + diary.worker as u64));
        assert_eq!(prices.gross.load(SeqCst), net * 2, "no writer came in between");
        diary.release(guard)?;
        thread::sleep(Duration::from_millis(4));
        if diary.time_left().is_none() {
            return Ok(());
        }
    }
}

fn write(lock: &Lock, prices: &Prices, diary: &mut Diary) -> fairlock::Result<()> {
    loop {
        thread::sleep(Duration::from_millis(40));
        diary.asks();
        let guard = lock.lock()?; // alone; readers that come now stand behind it
        diary.waited();
        let net = prices.net.fetch_add(1, SeqCst) + 1;
        thread::sleep(Duration::from_millis(10));
        prices.gross.store(net * 2, SeqCst);
        diary.release(guard)?;
        if diary.time_left().is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timeline::{Did, Span};

    #[test]
    fn readers_overlap_and_a_writer_is_alone() {
        let run = run_both().unwrap().into_iter().next().unwrap();
        assert!(run.most_at_once() > 1, "{}", run.summary());
        let holds: Vec<&Span> = run.spans.iter().filter(|span| span.did == Did::Hold).collect();
        let writes = holds.iter().filter(|hold| hold.worker >= READERS);
        for write in writes {
            let beside = holds.iter().filter(|hold| hold.from < write.to && write.from < hold.to).count();
            assert_eq!(beside, 1, "a write overlaps only itself");
        }
    }
}
