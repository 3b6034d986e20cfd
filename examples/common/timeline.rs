//! What workers did, and when: written down while they run, and drawn as a picture. Shared by the examples that draw one.

pub(crate) mod svg;

use std::error::Error;
use std::path::Path;
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::Guard;
use fairlock::owner::Ownership;

type Failure = Box<dyn Error + Send + Sync>;

/// The length of each run.
const LENGTH: Duration = Duration::from_millis(300);

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
}

/// A worker: its name, and the number of its colour.
pub(crate) type Worker = (String, usize);

/// One run.
pub(crate) struct Timeline {
    pub(crate) title: &'static str,
    pub(crate) workers: Vec<Worker>,
    pub(crate) length: Duration,
    pub(crate) spans: Vec<Span>,
}

impl Timeline {
    /// Runs each worker on its own thread.
    pub(crate) fn run(
        title: &'static str,
        workers: Vec<Worker>,
        work: impl Fn(&mut Diary) -> fairlock::Result<()> + Sync,
    ) -> Result<Timeline, Failure> {
        let spans = Mutex::new(Vec::new());
        let (all, started) = (Barrier::new(workers.len()), OnceLock::new()); // one start for all workers
        let work_of = |worker| -> fairlock::Result<()> {
            all.wait();
            let started = *started.get_or_init(Instant::now);
            let mut diary = Diary { worker, started, since: Duration::ZERO, spans: Vec::new() };
            work(&mut diary)?;
            spans.lock().unwrap_or_else(PoisonError::into_inner).extend(diary.spans);
            Ok(())
        };
        thread::scope(|scope| {
            let threads = (0..workers.len()).map(|worker| scope.spawn(move || work_of(worker)));
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .try_for_each(|thread| Ok::<_, Failure>(thread.join().map_err(|_| "a worker panicked")??))
        })?;
        let spans = spans.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Timeline { title, workers, length: LENGTH, spans })
    }

    /// The number of holds of each worker.
    pub(crate) fn turns(&self) -> Vec<usize> {
        let turns = |worker| self.of(worker).filter(|span| span.did != Did::Wait).count();
        (0..self.workers.len()).map(turns).collect()
    }

    /// The longest wait of a worker.
    pub(crate) fn longest_wait(&self, worker: usize) -> Duration {
        let waits = self.of(worker).filter(|span| span.did == Did::Wait).map(|span| span.to - span.from);
        waits.max().unwrap_or_default()
    }

    /// How many workers held the lock at the same time, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        let holds: Vec<&Span> = self.spans.iter().filter(|span| span.did == Did::Hold).collect();
        let held_at = |time| holds.iter().filter(|hold| hold.from <= time && time < hold.to).count();
        holds.iter().map(|hold| held_at(hold.from)).max().unwrap_or(0)
    }

    /// The run in a few words.
    pub(crate) fn summary(&self) -> String {
        let turns = self.turns();
        let (fewest, most) = (turns.iter().min().unwrap_or(&0), turns.iter().max().unwrap_or(&0));
        let range = if fewest == most { format!("{most}") } else { format!("{fewest} to {most}") };
        let longest = (0..self.workers.len()).map(|worker| self.longest_wait(worker)).max();
        let longest = longest.unwrap_or_default().as_millis();
        format!("{range} turns each, {} at once, longest wait {longest} ms", self.most_at_once())
    }

    fn of(&self, worker: usize) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.worker == worker)
    }
}

/// Says what became of the runs, and draws them side by side into the file, if there is one.
pub(crate) fn report(runs: &[Timeline], file: Option<&Path>) -> Result<(), Failure> {
    for run in runs {
        println!("{}: {}", run.title, run.summary());
    }
    if let Some(file) = file {
        std::fs::write(file, svg::picture(runs))?;
        println!("the picture is in {}", file.display());
    }
    Ok(())
}

/// Where a worker writes down what it does.
pub(crate) struct Diary {
    pub(crate) worker: usize,
    started: Instant,
    /// Since when it does what it does.
    since: Duration,
    spans: Vec<Span>,
}

impl Diary {
    /// How much time the run has left; none when it is over.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        LENGTH.checked_sub(self.started.elapsed())
    }

    /// The worker begins to wait.
    pub(crate) fn asks(&mut self) {
        self.since = self.started.elapsed();
    }

    /// The wait is over, with the lock or without it.
    pub(crate) fn waited(&mut self) {
        self.note(Did::Wait, self.started.elapsed());
    }

    /// Releases the lock.
    pub(crate) fn release<O: Ownership>(&mut self, guard: Guard<O>) -> fairlock::Result<()> {
        let until = self.started.elapsed(); // before another worker can have it
        guard.unlock()?;
        self.note(Did::Hold, until);
        Ok(())
    }

    fn note(&mut self, did: Did, to: Duration) {
        self.spans.push(Span { worker: self.worker, did, from: self.since, to });
        self.since = to;
    }
}
