//! When the threads of a client look next: the watchdog and those beside it. Each is a [`Sleeper`], which sleeps until something
//! comes due.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::Mutex;

use crate::backend::{Answer, BackendError, BackendErrorKind};
use crate::logging::log_line;
use crate::time::{Clock, Signal, TaskSlot, collect_wakers, wake};

/// How many threads make the first attempts of tasks, at most: as many as a far server gets connections.
pub(crate) const TASK_THREADS: usize = 8;

/// How many threads make the other calls of tasks, at most.
pub(crate) const CALL_THREADS: usize = 8;

pub(crate) struct Timers {
    /// The watchdog itself.
    pub(crate) dog: Sleeper,
    /// Reports holds that expire while the watchdog waits for answers.
    pub(crate) expiry: Sleeper,
    /// Make the first attempts of tasks.
    pub(crate) tasks: [Sleeper; TASK_THREADS],
    /// Make the other calls of tasks.
    pub(crate) calls: [Sleeper; CALL_THREADS],
    /// Runs the wakers of tasks that the first two, or a message, have to wake: user code must delay no renewal, and no other message.
    pub(crate) waker: Sleeper,
    /// Explains slow waits.
    pub(crate) slow: Sleeper,
    /// How long the watchdog's next round may take, by the last rounds: that round does what comes due by then as well.
    pub(crate) meanwhile: Mutex<Duration>,
    /// The tasks that pause, and until when.
    pausing: Mutex<Vec<(Instant, Weak<TaskSlot>)>>,
    wakers: Mutex<VecDeque<Waker>>,
    ended: AtomicBool,
}

/// What each thread does.
pub(crate) struct Bodies {
    pub(crate) dog: Body,
    pub(crate) expiry: Body,
    pub(crate) tasks: [Body; TASK_THREADS],
    pub(crate) calls: [Body; CALL_THREADS],
    pub(crate) waker: Body,
    pub(crate) slow: Body,
}

impl Timers {
    pub(crate) fn new(clock: &Clock, bodies: Bodies) -> Timers {
        let Bodies { dog, expiry, tasks, calls, waker, slow } = bodies;
        Timers {
            dog: Sleeper::new("fairlock-dog", clock, dog),
            expiry: Sleeper::new("fairlock-expiry", clock, expiry),
            tasks: tasks.map(|body| Sleeper::new("fairlock-tasks", clock, body)),
            calls: calls.map(|body| Sleeper::new("fairlock-tasks", clock, body)),
            waker: Sleeper::new("fairlock-wake", clock, waker),
            slow: Sleeper::new("fairlock-slow", clock, slow),
            meanwhile: Mutex::default(),
            pausing: Mutex::default(),
            wakers: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Sleeper> {
        [&self.dog, &self.expiry, &self.waker, &self.slow].into_iter().chain(&self.tasks).chain(&self.calls)
    }

    /// Starts the watchdog with the first request.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give: without one no hold could be renewed.
    pub(crate) fn start_watchdog(&self) -> Answer<()> {
        self.start(&self.dog).map_err(|error| no_thread("no thread for the watchdog", error))
    }

    /// Sleeps without a thread. The client's end ends it early.
    pub(crate) async fn pause(&self, until: Instant, clock: &Clock) {
        let task = Arc::new(TaskSlot::default());
        if self.start(&self.dog).is_err() {
            return; // no thread would wake the task
        }
        self.pausing.lock().push((until, Arc::downgrade(&task)));
        self.due_by(Some(until));
        // First the waker, then the look: the end of the pause after the look wakes the task.
        poll_fn(|context| {
            task.register(context.waker());
            if clock.now() >= until || self.is_told_to_end() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Wakes the tasks whose pause is over. Returns when the next one is.
    pub(crate) fn end_pauses(&self, is_over: impl Fn(Instant) -> bool) -> Option<Instant> {
        let (mut over, mut next) = (Vec::new(), None::<Instant>);
        self.pausing.lock().retain(|(at, task)| {
            if is_over(*at) {
                over.extend(task.upgrade());
                return false;
            }
            next = Some(next.map_or(*at, |next| next.min(*at)));
            task.strong_count() > 0
        });
        over.iter().for_each(|task| task.wake()); // without the mutex
        next
    }

    /// Runs a look of the watchdog, or of the thread beside it, and leaves the wakers of the tasks that it has decided to another thread:
    /// a waker that blocks must not delay the next renewal.
    pub(crate) fn wake_elsewhere<T>(&self, now: Instant, look: impl FnOnce() -> T) -> T {
        collect_wakers(look, |wakers| {
            self.wakers.lock().extend(wakers);
            // Without the thread, or once it may have ended, they run here.
            match self.start(&self.waker) {
                Ok(()) if !self.is_told_to_end() => self.waker.due_by(now),
                _ => self.run_wakers(),
            }
        })
    }

    pub(crate) fn run_wakers(&self) {
        loop {
            let waker = self.wakers.lock().pop_front();
            let Some(waker) = waker else { return };
            wake(waker);
        }
    }

    /// Starts the first thread for tasks with the first task. The others are started when there is something to do for them.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give.
    pub(crate) fn start_tasks(&self) -> Answer<()> {
        self.start(&self.tasks[0]).map_err(|error| no_thread("no thread for tasks", error))
    }

    /// Starts the first thread for other calls of tasks with the first call, in the same way.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give.
    pub(crate) fn start_calls(&self) -> Answer<()> {
        self.start(&self.calls[0]).map_err(|error| no_thread("no thread for calls of tasks", error))
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
        self.all().for_each(|thread| thread.signal().raise());
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
        self.all().all(Sleeper::is_gone)
    }

    /// Waits for the threads, which are at their very end.
    pub(crate) fn join(&self) {
        self.all().for_each(Sleeper::join);
    }
}

pub(crate) fn no_thread(message: &'static str, error: io::Error) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, message).with_source(error)
}

/// What the thread does. It keeps a `Weak` of the client.
pub(crate) type Body = Arc<dyn Fn() + Send + Sync>;

/// The thread, if it was started, and until when it sleeps.
pub(crate) struct Sleeper {
    pub(crate) name: &'static str,
    body: Body,
    clock: Clock,
    signal: Arc<Signal>,
    made: Instant,
    /// Until when it sleeps, in nanoseconds since `made`.
    until: AtomicU64,
    /// The first of what has come due since its last look began, in the same unit.
    ///
    /// Atomics are enough. Whatever comes due is written under a mutex, then `first` is lowered, then `until` is read. The thread
    /// resets `first`, takes these mutexes for its look, writes `until` and reads `first`. A deadline that is added during the
    /// look is either read from `first` before the thread sleeps, or its writer reads the planned `until` and raises the signal.
    first: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    started: AtomicBool,
    /// The thread has done its last step.
    gone: Arc<AtomicBool>,
}

/// The thread is at work. When it goes to sleep it sees what has come due meanwhile: no time is less than this.
const AWAKE: u64 = 0;

/// Before the first look, which finds everything that is due. (Nothing is due earlier than this.)
const NOT_YET: u64 = 1;

/// The thread sleeps until it is woken.
const NO_END: u64 = u64::MAX;

/// Says that the thread is gone, however it ends.
struct Gone(Arc<AtomicBool>, Arc<Signal>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.raise();
    }
}

impl Sleeper {
    fn new(name: &'static str, clock: &Clock, body: Body) -> Sleeper {
        Sleeper {
            name,
            body,
            clock: clock.clone(),
            signal: Arc::new(Signal::new(clock)),
            made: clock.now(),
            until: AtomicU64::new(NOT_YET),
            first: AtomicU64::new(NO_END),
            thread: Mutex::new(None),
            started: AtomicBool::new(false),
            gone: Arc::default(),
        }
    }

    /// Starts the thread, unless it was started or `has_ended`. It raises `at_the_end` when it ends.
    ///
    /// # Errors
    /// The system has no thread to give.
    fn start(&self, at_the_end: &Arc<Signal>, has_ended: impl FnOnce() -> bool) -> io::Result<()> {
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if thread.is_some() || has_ended() {
            return Ok(());
        }
        let (body, clock) = (Arc::clone(&self.body), self.clock.clone());
        clock.announce_background();
        let gone = Gone(Arc::clone(&self.gone), Arc::clone(at_the_end));
        let run = move || {
            let _here = clock.attend_in_background();
            let _gone = gone;
            body();
        };
        *thread = Some(thread::Builder::new().name(self.name.into()).spawn(run)?);
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    /// Raised when something comes due.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Something comes due at `at`. The thread is only woken if it means to sleep longer.
    pub(crate) fn due_by(&self, at: Instant) {
        let at = self.nanos(at);
        self.first.fetch_min(at, Ordering::SeqCst);
        if at < self.until.load(Ordering::SeqCst) {
            self.signal.raise();
        }
    }

    /// The thread is about to look.
    pub(crate) fn awake(&self) {
        self.until.store(AWAKE, Ordering::SeqCst);
        self.first.store(NO_END, Ordering::SeqCst);
    }

    /// The thread has looked, and found nothing to do before `next`. Returns until when it is to sleep.
    pub(crate) fn asleep(&self, next: Option<Instant>) -> Option<Instant> {
        let next = next.map_or(NO_END, |next| self.nanos(next));
        self.until.store(next, Ordering::SeqCst);
        let until = next.min(self.first.load(Ordering::SeqCst));
        (until != NO_END).then(|| self.made + Duration::from_nanos(until))
    }

    /// Whether the thread has ended, or never ran. (The thread itself counts as gone when it asks.)
    fn is_gone(&self) -> bool {
        let thread = self.thread.lock();
        let is_this = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        self.gone.load(Ordering::Acquire) || thread.as_ref().is_none_or(is_this)
    }

    /// Waits for the thread, which is at its very end.
    fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            let name = self.name;
            log_line!(error, "fairlock::watchdog",
                event = "panicked", thread = name;
                "the thread {name} had panicked"
            );
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.made).as_nanos()).unwrap_or(NO_END)
    }
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
        let one = || Arc::clone(&body);
        let (tasks, calls) = (std::array::from_fn(|_| one()), std::array::from_fn(|_| one()));
        let bodies = Bodies { dog: one(), expiry: one(), tasks, calls, waker: one(), slow: one() };
        Timers::new(clock, bodies)
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
        let threads: [fn(&Timers) -> &Sleeper; 6] =
            [|t| &t.dog, |t| &t.expiry, |t| &t.tasks[3], |t| &t.calls[3], |t| &t.waker, |t| &t.slow];
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
