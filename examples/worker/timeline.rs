//! The waits and holds of all workers under the same load, on the fair lock and on the plain one, as a picture.

#[path = "../common/timeline.rs"]
mod common;

use std::path::Path;
use std::thread;
use std::time::Duration;

use fairlock::{Client, Lock, MemoryBackend, TryLock};

use super::{Failure, LOCK, Options, connect};
use common::{Diary, Timeline, Worker};

/// How long a worker holds the lock, and its pause before the next request.
const WORK: Duration = Duration::from_millis(6);
const PAUSE: Duration = Duration::from_micros(300);

/// Runs both, one after the other, and writes the picture.
pub(crate) fn draw(options: &Options, file: &Path) -> Result<(), Failure> {
    common::report(&run_both(options)?, Some(file))
}

fn run_both(options: &Options) -> Result<[Timeline; 2], Failure> {
    let fair = run(options, "fair lock: first asked, first served", |client| client.fair_lock(LOCK))?;
    let plain = run(options, "plain lock: no order", |client| client.plain_lock(LOCK))?;
    Ok([fair, plain])
}

fn run(
    options: &Options,
    title: &'static str,
    lock_of: impl Fn(&Client) -> fairlock::Result<Lock>,
) -> Result<Timeline, Failure> {
    let memory = MemoryBackend::new();
    let workers: Vec<Worker> =
        (0..options.workers).map(|number| (format!("worker {}", number + 1), number)).collect();
    let lock_of = |(name, _): &Worker| lock_of(&connect(options, &memory, name)?);
    let locks: Vec<Lock> = workers.iter().map(lock_of).collect::<Result<_, _>>()?;
    Timeline::run(title, workers, |diary| work(&locks[diary.worker], diary))
}

/// Takes turns until the time is over.
fn work(lock: &Lock, diary: &mut Diary) -> fairlock::Result<()> {
    while let Some(left) = diary.time_left() {
        diary.asks();
        let waited = lock.try_lock_for(left)?;
        diary.waited();
        let TryLock::Granted(guard) = waited else { break };
        thread::sleep(WORK);
        diary.release(guard)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::common::{Did, Span, svg};
    use super::*;

    #[test]
    fn no_two_holds_of_a_run_overlap() {
        for run in run_both(&Options { workers: 4, ..Options::default() }).unwrap() {
            assert_eq!(run.most_at_once(), 1);
        }
    }

    #[test]
    fn a_picture_has_every_span() {
        let ms = Duration::from_millis;
        let span = |worker, did, from, to| Span { worker, did, from: ms(from), to: ms(to) };
        let spans = vec![
            span(0, Did::Wait, 0, 10),
            span(0, Did::Hold, 10, 20),
            span(1, Did::Wait, 0, 20),
            span(1, Did::Hold, 20, 25),
        ];
        let workers = vec![("one".to_owned(), 0), ("two".to_owned(), 1)];
        let run = Timeline { title: "two workers", workers, length: ms(100), spans };
        assert_eq!((run.turns(), run.longest_wait(1)), (vec![1, 1], ms(20)));
        let picture = svg::picture(&[run]);
        let count = |what: &str| picture.matches(what).count();
        assert_eq!((count("v-12z"), count("v-20z")), (2, 2), "the bars of waits and holds");
    }
}
