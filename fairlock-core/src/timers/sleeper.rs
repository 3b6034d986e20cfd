//! A thread of the client that sleeps until something comes due.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::logging::log_line;
use crate::time::{Clock, Signal};

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
    pub(super) fn new(name: &'static str, clock: &Clock, body: Body) -> Sleeper {
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
    pub(super) fn start(&self, at_the_end: &Arc<Signal>, has_ended: impl FnOnce() -> bool) -> io::Result<()> {
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
    pub(super) fn is_gone(&self) -> bool {
        let thread = self.thread.lock();
        let is_this = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        self.gone.load(Ordering::Acquire) || thread.as_ref().is_none_or(is_this)
    }

    /// Waits for the thread, which is at its very end.
    pub(super) fn join(&self) {
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
