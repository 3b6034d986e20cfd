//! What the watchdog thread and its client share: when the next round is, what it has to repeat, and whether it runs.

mod chores;
mod outage;
mod retries;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use chores::{Chore, ChoreInHand, Chores, Task};
pub(crate) use outage::Concerned;
pub(crate) use retries::{Rounds, longest_pause};

use crate::backend::{BackendError, BackendErrorKind};
use crate::logging::log_safely;
use crate::losses::log_loss;
use crate::time::Signal;
use crate::{Clock, Lost};

/// The schedule of a client's watchdog, and the thread that keeps it.
pub(crate) struct Schedule {
    signal: Arc<Signal>,
    sleep: Sleep,
    rounds: Mutex<Rounds>,
    pub(crate) chores: Chores,
    /// A call was not answered, and no other call since.
    silent: AtomicBool,
    /// Losses that were reported and have no line in the log yet.
    unlogged: Mutex<VecDeque<Lost>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    started: AtomicBool,
    ended: AtomicBool,
    /// The thread has done its last step.
    gone: Arc<AtomicBool>,
}

/// Until when the thread sleeps, in nanoseconds since `made`.
///
/// An atomic is enough. Whatever comes due is written under a mutex before the atomic is read, and the thread takes that
/// mutex for its look after it has written `AWAKE`. So a change that its look has missed comes after that look, reads
/// `AWAKE` or the time that was planned since, and raises the signal.
struct Sleep {
    made: Instant,
    until: AtomicU64,
}

/// The thread is at work: whatever comes due needs another look.
const AWAKE: u64 = 0;

/// The thread sleeps until it is woken.
const NO_END: u64 = u64::MAX;

impl Sleep {
    fn new(clock: &Clock) -> Sleep {
        Sleep { made: clock.now(), until: AtomicU64::new(NO_END) }
    }

    fn set(&self, until: u64) {
        self.until.store(until, Ordering::Release);
    }

    fn is_past(&self, at: Instant) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == AWAKE || self.nanos(at) < until
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.made).as_nanos()).unwrap_or(NO_END)
    }
}

/// Says that the thread is gone, however it ends.
struct Gone(Arc<AtomicBool>, Arc<Signal>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.raise();
    }
}

impl Schedule {
    pub(crate) fn new(clock: &Clock) -> Schedule {
        Schedule {
            signal: Signal::new(clock),
            sleep: Sleep::new(clock),
            rounds: Mutex::default(),
            chores: Chores::default(),
            silent: AtomicBool::new(false),
            unlogged: Mutex::default(),
            thread: Mutex::new(None),
            started: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            gone: Arc::default(),
        }
    }

    /// Starts the watchdog with `watch` as its body, unless it runs or has been told to end.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give: without one no hold could be renewed.
    pub(crate) fn start<F>(&self, clock: &Clock, watch: impl FnOnce() -> F) -> Result<(), BackendError>
    where
        F: FnOnce() + Send + 'static,
    {
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if thread.is_some() || self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let (watch, clock) = (watch(), clock.clone());
        clock.announce_background();
        let gone = Gone(Arc::clone(&self.gone), Arc::clone(&self.signal));
        let run = move || {
            let _here = clock.attend_in_background();
            let _gone = gone;
            watch();
        };
        let started = thread::Builder::new().name("fairlock-dog".into()).spawn(run).map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, "no thread for the watchdog").with_source(error)
        })?;
        *thread = Some(started);
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    /// Something comes due at `at`. The thread is only woken if it means to sleep longer.
    pub(crate) fn due_by(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        // Awake: its look may be past the claim that this is about, and the raise leads to another one.
        if self.sleep.is_past(at) {
            self.signal.raise();
        }
    }

    /// The server probably answers again: what waits for a pause is tried at once.
    pub(crate) fn hurry(&self, now: Instant) {
        self.with_rounds(|rounds| rounds.hurry(now));
        self.due_by(Some(now));
    }

    /// A call was not answered.
    pub(crate) fn heard_nothing(&self) {
        self.silent.store(true, Ordering::Release);
    }

    /// A call was answered: if it is the first in an outage, the thread looks whether that is over.
    pub(crate) fn heard(&self) {
        if self.is_silent() {
            self.silent.store(false, Ordering::Release);
            self.signal.raise();
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// The thread begins a round.
    pub(crate) fn awake(&self) {
        self.sleep.set(AWAKE);
    }

    /// The thread is about to sleep.
    pub(crate) fn asleep(&self, until: Option<Instant>) {
        self.sleep.set(until.map_or(NO_END, |until| self.sleep.nanos(until)));
    }

    pub(crate) fn with_rounds<T>(&self, look: impl FnOnce(&mut Rounds) -> T) -> T {
        look(&mut self.rounds.lock())
    }

    /// When the next chore is due; those that were tried before wait for the pause.
    pub(crate) fn chores_due_at(&self) -> Option<Instant> {
        self.chores.due_at(self.with_rounds(|rounds| rounds.chores.not_before()))
    }

    /// Whether a chore that has failed is to be tried again only after a pause.
    pub(crate) fn chores_pause(&self, now: Instant) -> bool {
        self.with_rounds(|rounds| rounds.chores.not_before()).is_some_and(|at| at > now)
    }

    /// Takes the next chore that is due.
    pub(crate) fn next_chore(&self, now: Instant) -> Option<ChoreInHand<'_>> {
        let may_retry = self.with_rounds(|rounds| rounds.chores.not_before()).is_none_or(|at| at <= now);
        self.chores.next(may_retry)
    }

    /// Keeps a loss that was reported, to be logged later.
    pub(crate) fn log_later(&self, lost: Lost) {
        self.unlogged.lock().push_back(lost);
    }

    /// Logs the losses that were kept until `stop`, which is asked after each line. False: some are left.
    pub(crate) fn log_losses(&self, stop: impl Fn() -> bool) -> bool {
        loop {
            let Some(lost) = self.unlogged.lock().pop_front() else { return true };
            log_loss(&lost);
            if stop() {
                return false;
            }
        }
    }

    /// Ends the thread at its next step, without waiting for it.
    pub(crate) fn tell_to_end(&self) {
        self.ended.store(true, Ordering::Release);
        self.signal.raise();
    }

    pub(crate) fn is_told_to_end(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Raised when something comes due, and when the thread has ended.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Whether the thread has ended, or never ran. (The thread itself counts as gone when it asks.)
    pub(crate) fn is_gone(&self) -> bool {
        let thread = self.thread.lock();
        let is_this = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        self.gone.load(Ordering::Acquire) || thread.as_ref().is_none_or(is_this)
    }

    /// Waits for the thread, which is at its very end.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            log_safely(|| {
                log::error!(target: "fairlock::watchdog", event = "panicked"; "the watchdog had panicked");
            });
        }
    }
}
