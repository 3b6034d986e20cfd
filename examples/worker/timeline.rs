//! The waits and holds of all workers under the same load, on the fair lock and on the plain one, as a picture.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Lock, MemoryBackend, TryLock};

use super::{Failure, LOCK, Options, connect, svg};

/// The length of each run.
const LENGTH: Duration = Duration::from_millis(300);
/// How long a worker holds the lock, and its pause before the next request.
const WORK: Duration = Duration::from_millis(6);
const PAUSE: Duration = Duration::from_micros(300);

/// One activity of a worker. Times count from the start of the run.
pub(crate) struct Span {
    pub(crate) worker: usize,
    pub(crate) did: Did,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Wait,
    Hold,
    /// The worker held the lock and lost it at the end of the span.
    HoldAndLose,
}

/// One run.
pub(crate) struct Timeline {
    pub(crate) title: &'static str,
    pub(crate) workers: usize,
    pub(crate) length: Duration,
    pub(crate) spans: Vec<Span>,
}

impl Timeline {
    /// The number of holds of each worker.
    pub(crate) fn turns(&self) -> Vec<usize> {
        let turns = |worker| self.of(worker).filter(|span| span.did != Did::Wait).count();
        (0..self.workers).map(turns).collect()
    }

    /// The longest wait of a worker.
    pub(crate) fn longest_wait(&self, worker: usize) -> Duration {
        let waits = self.of(worker).filter(|span| span.did == Did::Wait).map(|span| span.to - span.from);
        waits.max().unwrap_or_default()
    }

    fn of(&self, worker: usize) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.worker == worker)
    }
}

/// Runs both, one after the other, and writes the picture.
pub(crate) fn draw(options: &Options, file: &Path) -> Result<(), Failure> {
    let runs = run_both(options)?;
    for run in &runs {
        let longest = (0..run.workers).map(|worker| run.longest_wait(worker)).max().unwrap_or_default();
        println!("{}: turns {:?}, longest wait {} ms", run.title, run.turns(), longest.as_millis());
    }
    std::fs::write(file, svg::picture(&runs))?;
    println!("the picture is in {}", file.display());
    Ok(())
}

pub(crate) fn run_both(options: &Options) -> Result<[Timeline; 2], Failure> {
    let fair = run(options, "fair lock: first asked, first served", |client| client.fair_lock(LOCK))?;
    let plain = run(options, "plain lock: no order", |client| client.plain_lock(LOCK))?;
    Ok([fair, plain])
}

fn run(
    options: &Options,
    title: &'static str,
    lock_of: impl Fn(&Client) -> fairlock::Result<Lock> + Sync,
) -> Result<Timeline, Failure> {
    let memory = MemoryBackend::new();
    let spans = Mutex::new(Vec::new());
    let operator = connect(options, &memory, "operator")?;
    let clients = (1..=options.workers).map(|number| connect(options, &memory, &format!("worker {number}")));
    let clients: Vec<Client> = clients.collect::<Result<_, _>>()?;
    let started = Instant::now(); // one clock for all workers
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (worker, client) in clients.iter().enumerate() {
            let (lock_of, spans) = (&lock_of, &spans);
            workers.push(scope.spawn(move || -> fairlock::Result<()> {
                let done = work(&lock_of(client)?, worker, started)?;
                spans.lock().unwrap_or_else(PoisonError::into_inner).extend(done);
                Ok(())
            }));
        }
        let taken = lock_of(&operator).and_then(|lock| take_by_force(&lock, started));
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        taken.map_err(Failure::from)
    })?;
    let spans = spans.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Timeline { title, workers: options.workers, length: LENGTH, spans })
}

/// Takes the lock by force in the middle of the run, to show a loss.
fn take_by_force(lock: &Lock, started: Instant) -> fairlock::Result<()> {
    thread::sleep(LENGTH / 2);
    // The lock may be free at this moment, between two holders.
    while started.elapsed() < LENGTH && !lock.force_unlock()? {}
    Ok(())
}

/// Takes turns until the time is over.
fn work(lock: &Lock, worker: usize, started: Instant) -> fairlock::Result<Vec<Span>> {
    let mut spans = Vec::new();
    while started.elapsed() < LENGTH {
        let asked = started.elapsed();
        let waited = lock.try_lock_until(started + LENGTH)?;
        let granted = started.elapsed();
        spans.push(Span { worker, did: Did::Wait, from: asked, to: granted });
        let TryLock::Granted(guard) = waited else { break };
        // The work; it stops at once when the hold is lost.
        let _ = guard.lost().recv_timeout(WORK);
        let done = started.elapsed();
        let did = match guard.unlock() {
            Ok(()) => Did::Hold,
            Err(fairlock::Error::Lost(_)) => Did::HoldAndLose,
            Err(error) => return Err(error),
        };
        spans.push(Span { worker, did, from: granted, to: done });
        thread::sleep(PAUSE);
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_holds_of_a_run_overlap() {
        for run in run_both(&Options { workers: 4, ..Options::default() }).unwrap() {
            // A loser learns of its loss a moment after the next grant.
            let mut holds: Vec<_> = run.spans.iter().filter(|span| span.did == Did::Hold).collect();
            holds.sort_by_key(|span| span.from);
            assert!(
                !holds.is_empty() && holds.iter().zip(&holds[1..]).all(|(one, next)| one.to <= next.from)
            );
        }
    }

    #[test]
    fn a_picture_has_every_span_and_marks_every_loss() {
        let ms = Duration::from_millis;
        let span = |worker, did, from, to| Span { worker, did, from: ms(from), to: ms(to) };
        let spans = vec![
            span(0, Did::Wait, 0, 10),
            span(0, Did::Hold, 10, 20),
            span(1, Did::Wait, 0, 20),
            span(1, Did::HoldAndLose, 20, 25),
        ];
        let run = Timeline { title: "two workers", workers: 2, length: ms(100), spans };
        assert_eq!((run.turns(), run.longest_wait(1)), (vec![1, 1], ms(20)));
        let picture = svg::picture(&[run]);
        let count = |what: &str| picture.matches(what).count();
        assert_eq!((count("v-14z"), count("v-24z")), (2, 2), "the bars of waits and holds");
        assert_eq!(count("class=\"loss\""), 1 + 1, "the loss, and the one in the legend");
    }
}
