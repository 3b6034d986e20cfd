//! The one thread of a client that keeps its promises while its callers sleep or work: it renews holds and places,
//! many in one round trip, notices losses in time, asks for requests that nobody waits on, and repeats releases
//! and withdrawals that the server did not answer.

mod chores;
mod patrol;
mod sentry;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use chores::Chores;

use crate::Clock;
use crate::backend::{BackendError, BackendErrorKind};
use crate::shared::Shared;
use crate::time::Signal;

/// A client's hold on its watchdog thread.
pub(crate) struct Watchdog {
    signal: Arc<Signal>,
    plan: Mutex<Plan>,
    /// How long the next round may take, judged by the last ones.
    round: Mutex<Duration>,
    thread: Mutex<Option<JoinHandle<()>>>,
    started: AtomicBool,
    ended: AtomicBool,
    chores: Chores,
}

/// When the thread looks after things next.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// It is at it: whatever comes up needs another look.
    Awake,
    /// It sleeps, at the longest until then.
    Asleep(Option<Instant>),
}

impl Watchdog {
    pub(crate) fn new(clock: &Clock) -> Watchdog {
        Watchdog {
            signal: Signal::new(clock),
            plan: Mutex::new(Plan::Asleep(None)),
            round: Mutex::new(Duration::ZERO),
            thread: Mutex::new(None),
            started: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            chores: Chores::default(),
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
        let run = move || watch(&weak, &signal, &clock);
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
        let late = match *self.plan.lock() {
            // The look may be past the claim that this is about: the raise leads to another one.
            Plan::Awake => true,
            Plan::Asleep(until) => until.is_none_or(|until| at < until),
        };
        if late {
            self.signal.raise();
        }
    }

    /// Ends the thread at its next step, without waiting for it.
    pub(crate) fn tell_to_end(&self) {
        self.ended.store(true, Ordering::Release);
        self.signal.raise();
    }

    /// Ends the thread and waits for it, unless the caller is that thread.
    pub(crate) fn end(&self) {
        self.tell_to_end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            log::error!(target: "fairlock::watchdog", event = "panicked"; "the watchdog had panicked");
        }
    }
}

/// The thread. It owns the client only while it looks after it, so that the last handle can go at any time.
fn watch(client: &Weak<Shared>, signal: &Signal, clock: &Clock) {
    let _here = clock.attend_in_background();
    loop {
        let seen = signal.epoch();
        let Some(shared) = client.upgrade() else { return };
        let watchdog = &shared.watchdog;
        if watchdog.ended.load(Ordering::Acquire) {
            return;
        }
        *watchdog.plan.lock() = Plan::Awake;
        let next = shared.patrol();
        *watchdog.plan.lock() = Plan::Asleep(next);
        drop(shared); // possibly the last one: its drop raises the signal, and the upgrade fails
        signal.wait(seen, next);
    }
}
