//! When the threads of a client look next: the watchdog and those beside it. `sleeper.rs` has one such thread.

mod sleeper;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(crate) use sleeper::{Body, Sleeper};

use crate::backend::{Answer, BackendError, BackendErrorKind};
use crate::time::{Clock, Signal};

/// How many threads make the first attempts of tasks, at most: as many as a far server gets connections.
pub(crate) const TASK_THREADS: usize = 8;

pub(crate) struct Timers {
    /// The watchdog itself.
    pub(crate) dog: Sleeper,
    /// Reports holds that expire while the watchdog waits for answers.
    pub(crate) expiry: Sleeper,
    /// Make the first attempts of tasks.
    pub(crate) tasks: [Sleeper; TASK_THREADS],
    /// Explains slow waits.
    pub(crate) slow: Sleeper,
    /// How long the watchdog's next round may take, by the last rounds: that round does what comes due by then as well.
    pub(crate) meanwhile: Mutex<Duration>,
    ended: AtomicBool,
}

impl Timers {
    pub(crate) fn new(
        clock: &Clock,
        dog: Body,
        expiry: Body,
        tasks: [Body; TASK_THREADS],
        slow: Body,
    ) -> Timers {
        Timers {
            dog: Sleeper::new("fairlock-dog", clock, dog),
            expiry: Sleeper::new("fairlock-expiry", clock, expiry),
            tasks: tasks.map(|body| Sleeper::new("fairlock-tasks", clock, body)),
            slow: Sleeper::new("fairlock-slow", clock, slow),
            meanwhile: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Starts the watchdog with the first request.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give: without one no hold could be renewed.
    pub(crate) fn start_watchdog(&self) -> Answer<()> {
        self.start(&self.dog).map_err(|error| no_thread("no thread for the watchdog", error))
    }

    /// Starts the first thread for tasks with the first task. The others are started when there is something to do for them.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give.
    pub(crate) fn start_tasks(&self) -> Answer<()> {
        self.start(&self.tasks[0]).map_err(|error| no_thread("no thread for tasks", error))
    }

    /// Starts this thread, unless it runs or all have been told to end. It stays: a thread for each wait for answers would cost more
    /// than most waits.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(&self, sleeper: &Sleeper) -> io::Result<()> {
        sleeper.start(self.signal(), || self.is_told_to_end())
    }

    /// A hold ends at `at`, if it is not renewed.
    pub(crate) fn ends_by(&self, at: Option<Instant>) {
        if let Some(at) = at {
            self.expiry.due_by(at);
        }
    }

    /// Something comes due for the watchdog at `at`.
    pub(crate) fn due_by(&self, at: Option<Instant>) {
        match at {
            // The watchdog does not look any more, but the shutdown does, and waits for this signal.
            Some(_) if self.is_told_to_end() => self.signal().raise(),
            Some(at) => self.dog.due_by(at),
            None => {}
        }
    }

    /// A wait is slow at `at`.
    pub(crate) fn slow_by(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        // Without the thread the wait goes on as well, and is not explained.
        if self.start(&self.slow).is_ok() {
            self.slow.due_by(at);
        }
    }

    /// Ends the threads at their next step, without waiting for them.
    pub(crate) fn tell_to_end(&self) {
        self.ended.store(true, Ordering::Release);
        self.dog.signal().raise();
        self.expiry.signal().raise();
        self.tasks.iter().for_each(|thread| thread.signal().raise());
        self.slow.signal().raise();
    }

    pub(crate) fn is_told_to_end(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Raised when something comes due for the watchdog, and when a thread has ended.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        self.dog.signal()
    }

    /// Whether the threads have ended, or never ran.
    pub(crate) fn is_gone(&self) -> bool {
        let [dog, expiry, slow] = [&self.dog, &self.expiry, &self.slow].map(Sleeper::is_gone);
        dog && expiry && slow && self.tasks.iter().all(Sleeper::is_gone)
    }

    /// Waits for the threads, which are at their very end.
    pub(crate) fn join(&self) {
        self.dog.join();
        self.expiry.join();
        self.tasks.iter().for_each(Sleeper::join);
        self.slow.join();
    }
}

fn no_thread(message: &'static str, error: io::Error) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::time::ManualClock;

    const S: Duration = Duration::from_secs(1);

    /// Each thread has this body.
    fn timers(clock: &Clock, body: impl Fn() + Send + Sync + 'static) -> Timers {
        let body: Body = Arc::new(body);
        let tasks = [(); TASK_THREADS].map(|()| Arc::clone(&body));
        Timers::new(clock, Arc::clone(&body), Arc::clone(&body), tasks, body)
    }

    /// Whether this wakes the watchdog.
    fn wakes(timers: &Timers, act: impl FnOnce()) -> bool {
        let seen = timers.signal().generation();
        act();
        timers.signal().generation() != seen
    }

    #[test]
    fn the_watchdog_is_woken_only_for_what_is_due_before_it_looks() {
        let clock = Clock::from(ManualClock::new());
        let (timers, now) = (timers(&clock, || ()), clock.now());
        timers.dog.awake();
        let due_in = |time| wakes(&timers, || timers.due_by(Some(now + time)));
        assert!(!due_in(3 * S) && !due_in(4 * S), "it is awake");
        assert_eq!(timers.dog.asleep(Some(now + 5 * S)), Some(now + 3 * S));
        assert_eq!([due_in(5 * S), due_in(6 * S), due_in(4 * S)], [false, false, true]);
        timers.dog.awake();
        assert_eq!(timers.dog.asleep(None), None, "it has looked");
        assert!(due_in(6 * S) && !wakes(&timers, || timers.due_by(None)));
    }

    /// Once the threads are told to end, what would wake the watchdog wakes the thread that waits for their end.
    #[test]
    fn a_watchdog_that_is_told_to_end_is_woken_for_all() {
        let clock = Clock::from(ManualClock::new());
        let timers = timers(&clock, || ());
        timers.dog.awake();
        assert!(wakes(&timers, || timers.tell_to_end()));
        assert!(wakes(&timers, || timers.due_by(Some(clock.now() + S))));
    }

    #[test]
    fn the_threads_are_gone_when_all_of_them_are() {
        let threads: [fn(&Timers) -> &Sleeper; 4] = [|t| &t.dog, |t| &t.expiry, |t| &t.tasks[3], |t| &t.slow];
        for thread in threads {
            let (end, ends) = bounded::<()>(0);
            let timers = timers(&Clock::system(), move || _ = ends.recv());
            timers.start(thread(&timers)).unwrap();
            assert!(!timers.is_gone());
            drop(end);
            timers.join();
            assert!(timers.is_gone());
        }
    }

    #[test]
    fn no_thread_begins_once_they_are_told_to_end() {
        let (_end, ends) = bounded::<()>(0);
        let timers = timers(&Clock::system(), move || _ = ends.recv());
        timers.tell_to_end();
        timers.start_watchdog().unwrap();
        assert!(timers.is_gone());
    }
}
