//! The one thread of a client that keeps its promises while its callers sleep or work: it renews holds and places,
//! many in one round trip, notices losses in time, asks for requests that nobody waits on, and repeats releases
//! and withdrawals that the server did not answer.

mod chores;
mod outage;
mod patrol;
mod retries;
mod sentry;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;

use chores::Chores;
pub(crate) use chores::Task;
use retries::{Rounds, longest_pause};

use crate::backend::{BackendError, BackendErrorKind};
use crate::say::say;
use crate::shared::{Shared, log_loss};
use crate::time::Signal;
use crate::{Clock, Lost, backoff};

/// A client's hold on its watchdog thread.
pub(crate) struct Watchdog {
    signal: Arc<Signal>,
    plan: Plan,
    rounds: Mutex<Rounds>,
    thread: Mutex<Option<JoinHandle<()>>>,
    started: AtomicBool,
    ended: AtomicBool,
    /// The thread has done its last step.
    gone: Arc<AtomicBool>,
    chores: Chores,
    /// Losses that were told and have no line in the log yet.
    unlogged: Mutex<VecDeque<Lost>>,
}

/// When the thread looks after things next, in nanoseconds since `made`.
///
/// An atomic is enough, since whatever comes due is written down under a mutex before the plan is read, and the thread
/// takes that mutex for its look after it has written that it is awake. So a change that its look has missed comes after
/// that look, sees "awake" or what was planned since, and raises the signal.
struct Plan {
    made: Instant,
    asleep_until: AtomicU64,
}

/// It is at it: whatever comes up needs another look.
const AWAKE: u64 = 0;

impl Plan {
    fn new(clock: &Clock) -> Plan {
        Plan { made: clock.now(), asleep_until: AtomicU64::new(u64::MAX) }
    }

    fn awake(&self) {
        self.asleep_until.store(AWAKE, Ordering::Release);
    }

    /// Asleep, without an end if there is none.
    fn asleep(&self, until: Option<Instant>) {
        self.asleep_until.store(until.map_or(u64::MAX, |until| self.nanos(until)), Ordering::Release);
    }

    fn is_later_than(&self, at: Instant) -> bool {
        let until = self.asleep_until.load(Ordering::Acquire);
        until == AWAKE || self.nanos(at) < until
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.made).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Watchdog {
    pub(crate) fn new(clock: &Clock) -> Watchdog {
        Watchdog {
            signal: Signal::new(clock),
            plan: Plan::new(clock),
            rounds: Mutex::default(),
            thread: Mutex::new(None),
            started: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            gone: Arc::default(),
            chores: Chores::default(),
            unlogged: Mutex::default(),
        }
    }

    /// Starts the thread with the first request.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give: without one no hold could be renewed.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> Result<(), BackendError> {
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if thread.is_some() || self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let (weak, signal) = (Arc::downgrade(shared), Arc::clone(&self.signal));
        let clock = shared.config.clock.clone();
        clock.announce_background();
        let gone = Gone(Arc::clone(&self.gone), Arc::clone(&self.signal));
        let run = move || {
            let _here = clock.attend_in_background();
            let _gone = gone;
            watch(&weak, &signal);
        };
        let started = thread::Builder::new().name("fairlock-dog".into()).spawn(run).map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, "no thread for the watchdog").with_source(error)
        })?;
        *thread = Some(started);
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    /// Something has to be looked after by then. The thread is only woken if it means to sleep longer.
    pub(crate) fn due_by(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        // Awake: its look may be past the claim that this is about, and the raise leads to another one.
        if self.plan.is_later_than(at) {
            self.signal.raise();
        }
    }

    /// There is a reason to believe that the server answers again: what waits for a pause is tried at once.
    pub(crate) fn hurry(&self, now: Instant) {
        self.with_rounds(|rounds| rounds.hurry(now));
        self.due_by(Some(now));
    }

    /// Writes the lines that are left.
    pub(crate) fn log_losses(&self) {
        let losses = std::mem::take(&mut *self.unlogged.lock());
        losses.iter().for_each(log_loss);
    }

    fn with_rounds<T>(&self, look: impl FnOnce(&mut Rounds) -> T) -> T {
        look(&mut self.rounds.lock())
    }

    /// Ends the thread at its next step, without waiting for it.
    pub(crate) fn tell_to_end(&self) {
        self.ended.store(true, Ordering::Release);
        self.signal.raise();
    }

    /// Raised when something has to be looked after, and when the thread has ended.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Whether the thread has ended, or never was. (To the thread itself it is as good as gone.)
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
            say(|| {
                log::error!(target: "fairlock::watchdog", event = "panicked"; "the watchdog had panicked");
            });
        }
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

/// The thread. It owns the client only while it looks after it, so that the last handle can go at any time.
fn watch(client: &Weak<Shared>, signal: &Signal) {
    let mut panics = 0;
    loop {
        let seen = signal.epoch();
        let Some(shared) = client.upgrade() else { return };
        let watchdog = &shared.watchdog;
        // Before the look whether it is over: then it stays awake, and what comes up later raises the signal.
        watchdog.plan.awake();
        if watchdog.ended.load(Ordering::Acquire) {
            watchdog.log_losses();
            return;
        }
        // A backend may panic. What was under way is put back as it unwinds, see `Due`, `Asking` and `Taken`.
        let next = match catch_unwind(AssertUnwindSafe(|| shared.patrol())) {
            Ok(next) => {
                panics = 0;
                next
            }
            Err(panic) => {
                panics += 1;
                shared.watchdog_panicked(panic);
                Some(shared.now() + backoff::pause(panics))
            }
        };
        watchdog.plan.asleep(next);
        drop(shared); // possibly the last one: its drop raises the signal, and the upgrade fails
        signal.wait(seen, next);
    }
}

impl Shared {
    /// What the round was about waits for a pause, as if it had not been answered, so that a panic each time does not
    /// make the watchdog spin. There is a line a minute at most.
    fn watchdog_panicked(&self, panic: Box<dyn Any + Send>) {
        let (now, longest) = (self.now(), longest_pause(&self.config));
        let is_told = self.watchdog.with_rounds(|rounds| rounds.panicked(now, longest));
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
        if is_told {
            say(|| {
                log::error!(
                    target: "fairlock::watchdog",
                    event = "panicked", panic = words;
                    "the watchdog panicked, and goes on: {words}"
                );
            });
        }
        std::mem::forget(panic); // its drop may panic as well
    }
}
