//! Tells the program of lost holds: on a thread of its own, so that a slow callback delays no renewal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::Lost;
use crate::say::say;

type Callback = Arc<dyn Fn(&Lost) + Send + Sync>;

/// The callbacks of a client, and the thread that runs them; it is started with the first one.
#[derive(Default)]
pub(crate) struct LossCallbacks {
    callbacks: Arc<Mutex<Vec<Callback>>>,
    runner: Mutex<Option<Runner>>,
}

struct Runner {
    losses: Sender<Lost>,
    /// Closed when the thread has done everything.
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

/// How the end of the callbacks was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Ended,
    /// One of them still runs.
    Running,
}

impl LossCallbacks {
    pub(crate) fn add(&self, callback: Callback) {
        self.callbacks.lock().push(callback);
        let mut runner = self.runner.lock();
        if runner.is_none() {
            *runner = start(Arc::clone(&self.callbacks));
        }
    }

    pub(crate) fn report(&self, lost: &Lost) {
        if let Some(runner) = &*self.runner.lock() {
            // The channel is unbounded, but there is at most one message for each hold.
            let _ = runner.losses.send(lost.clone());
        }
    }

    /// Ends the thread when it has told what was reported. Waits so long for it (in real time: it runs user code), unless
    /// the caller is that thread. A callback may want a mutex of the caller's, and would never end before the caller goes on.
    pub(crate) fn stop(&self, at_most: Duration) -> Stopped {
        let runner = self.runner.lock().take();
        let Some(Runner { losses, done, thread }) = runner else { return Stopped::Ended };
        drop(losses);
        if thread.thread().id() == thread::current().id() {
            return Stopped::Ended;
        }
        if done.recv_timeout(at_most) == Err(RecvTimeoutError::Timeout) {
            return Stopped::Running;
        }
        let _ = thread.join(); // it catches its panics, and is at its very end
        Stopped::Ended
    }
}

fn start(callbacks: Arc<Mutex<Vec<Callback>>>) -> Option<Runner> {
    let ((losses, reports), (at_it, done)) = (unbounded(), bounded(0));
    let run = move || {
        run(&reports, &callbacks);
        drop(at_it);
    };
    match thread::Builder::new().name("fairlock-calls".into()).spawn(run) {
        Ok(thread) => Some(Runner { losses, done, thread }),
        Err(error) => {
            say(|| {
                log::error!(
                    target: "fairlock::watchdog",
                    event = "no thread", error:% = error;
                    "no thread for loss callbacks, they won't run: {error}"
                );
            });
            None
        }
    }
}

/// Ends when the client has dropped the other end of the channel.
fn run(reports: &Receiver<Lost>, callbacks: &Mutex<Vec<Callback>>) {
    for lost in reports {
        let current = callbacks.lock().clone(); // user code runs under none of our mutexes
        for callback in current {
            if catch_unwind(AssertUnwindSafe(|| callback(&lost))).is_err() {
                say(|| {
                    log::error!(
                        target: "fairlock::watchdog",
                        event = "callback panicked", lock = lost.lock.as_str();
                        "a callback for lost holds panicked ({lost})"
                    );
                });
            }
        }
    }
}
