//! Tells the program of lost holds: on a thread of its own, so that a slow callback delays no renewal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::Lost;

type Callback = Arc<dyn Fn(&Lost) + Send + Sync>;

/// The callbacks of a client, and the thread that runs them; it is started with the first one.
#[derive(Default)]
pub(crate) struct Losses {
    callbacks: Arc<Mutex<Vec<Callback>>>,
    runner: Mutex<Option<Runner>>,
}

struct Runner {
    losses: Sender<Lost>,
    thread: JoinHandle<()>,
}

impl Losses {
    pub(crate) fn call(&self, callback: Callback) {
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

    /// Ends the thread when it has told what was reported; waits for it, unless the caller is that thread.
    pub(crate) fn stop(&self) {
        let runner = self.runner.lock().take();
        if let Some(Runner { losses, thread }) = runner {
            drop(losses);
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join(); // it catches its panics
            }
        }
    }
}

fn start(callbacks: Arc<Mutex<Vec<Callback>>>) -> Option<Runner> {
    let (losses, reports) = unbounded();
    let run = move || run(&reports, &callbacks);
    match thread::Builder::new().name("fairlock-calls".into()).spawn(run) {
        Ok(thread) => Some(Runner { losses, thread }),
        Err(error) => {
            log::error!(
                target: "fairlock::watchdog",
                event = "no thread", error:% = error;
                "no thread for loss callbacks, they won't run: {error}"
            );
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
                log::error!(
                    target: "fairlock::watchdog",
                    event = "callback panicked", lock = lost.lock.as_str();
                    "a callback for lost holds panicked ({lost})"
                );
            }
        }
    }
}
