//! Calls that block, for tasks. The client's threads for calls make those that last for a few attempts, and a thread of its own makes
//! each of the others. No executor's pool is used: the program's own work may fill it, and wait for this very call.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use parking_lot::Mutex;

use crate::backend::{BackendError, BackendErrorKind};
use crate::backlog::Lasts;
use crate::error::{Error, Result};
use crate::ids::LockName;
use crate::shared::Shared;
use crate::tasks;
use crate::time::{Clock, TaskSlot};
use crate::timers::no_thread;

/// Where the other thread leaves the result, and the task its waker.
struct Outcome<T> {
    result: Mutex<Option<thread::Result<Result<T>>>>,
    task: TaskSlot,
}

impl<T: Send + 'static> Outcome<T> {
    /// The call for another thread, and where it leaves its result. If no task waits any more, the call is made all the same.
    fn of(
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> (impl FnOnce() + Send + 'static, Arc<Outcome<T>>) {
        let here = Arc::new(Outcome { result: Mutex::new(None), task: TaskSlot::default() });
        let there = Arc::clone(&here);
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(call));
            let mut kept = there.result.lock();
            *kept = Some(result);
            there.task.is_due();
            drop(kept);
            there.task.wake_if_due();
        };
        (run, here)
    }

    /// Waits for the result, and passes a panic on.
    async fn wait(&self) -> Result<T> {
        let result = poll_fn(|context| {
            self.task.register(context.waker());
            self.result.lock().take().map_or(Poll::Pending, Poll::Ready)
        });
        result.await.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Makes a call that may last long on a thread of this name, from the first poll on.
pub(crate) async fn on_its_own_thread<T: Send + 'static>(
    name: &str,
    clock: Clock,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (run, outcome) = Outcome::of(call);
    clock.announce_background();
    let run = move || {
        // Held until the task is woken: a manual clock does not move between the end of the call and the wake-up.
        let _attends = clock.attend_in_background();
        run();
    };
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        let source = Box::new(no_thread("no thread for this call", error));
        return Err(Error::Unavailable { lock: None, source });
    }
    outcome.wait().await
}

/// Makes a call about this lock on a thread for calls, from the first poll on. A backend that does not block is asked here: under a paused
/// clock of a runtime no other thread may be needed.
///
/// # Errors
/// Those of the call; [`Error::Unavailable`] if it had to wait for the outage limit: others were not answered.
pub(super) async fn asked<T: Send + 'static>(
    shared: &Arc<Shared>,
    lock: &LockName,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if shared.backend.is_non_blocking() {
        call()
    } else {
        by_the_client(shared, lock, Lasts::Briefly, call).await
    }
}

/// The same, but never here: the call may pause.
pub(super) async fn by_the_client<T: Send + 'static>(
    shared: &Arc<Shared>,
    lock: &LockName,
    lasts: Lasts,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (config, name) = (Arc::clone(&shared.config), lock.clone());
    let until = shared.now() + config.outage_limit;
    let (run, outcome) = Outcome::of(move || {
        if config.now() < until {
            return call();
        }
        let what = "the call had to wait too long to be made";
        Err(Error::about(&name, BackendError::new(BackendErrorKind::Unavailable, what)))
    });
    tasks::call_elsewhere(shared, Box::new(run), lasts).map_err(|error| Error::about(lock, error))?;
    outcome.wait().await
}
